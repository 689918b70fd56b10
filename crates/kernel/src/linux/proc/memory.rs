//! Texts about a process's memory and state, and its memory itself.

use super::system::{List, Mask, all_cpus};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::buffer::Buffer;
use crate::linux::process::identity::Identity;
use crate::linux::process::limits::INFINITY;
use crate::linux::process::{Mm, Process};
use crate::linux::signal::NR_SIGNALS;
use crate::port::mm::{Space, USER_END, copy_in, copy_in_forced_some, copy_out_forced_some, get};
use alloc::string::ToString;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use softfault::{PagemapPage, VmaFlags};

const NS_PER_TICK: u64 = 10_000_000;
/// Of an environment that a program has made endless, this much is shown.
const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;

/// Sizes of a program's memory, in pages.
#[derive(Default)]
struct Sizes {
    all: u64,
    anon: u64,
    shmem: u64,
    tables: u64,
    text: u64,
    data: u64,
    stack: u64,
    locked: u64,
    hugetlb: u64,
}

fn sizes(process: &Process) -> Sizes {
    let Some(mm) = process.mm() else { return Sizes::default() };
    let (rss, hugetlb) = mm.resident();
    let mut sizes = Sizes {
        all: mm.space.nr_mapped_pages(),
        anon: rss.anon,
        shmem: rss.shmem,
        hugetlb,
        tables: rss.tables,
        ..Sizes::default()
    };
    mm.space.maps(&mut |vma| {
        let nr = vma.range.nr_pages();
        let has = |flag| vma.flags.contains(flag);
        match () {
            () if has(VmaFlags::GROWSDOWN) => sizes.stack += nr,
            () if vma.flags.is_data() => sizes.data += nr,
            () if has(VmaFlags::EXEC) && !has(VmaFlags::WRITE) => sizes.text += nr,
            () => {}
        }
        if has(VmaFlags::LOCKED) {
            sizes.locked += nr;
        }
    });
    sizes
}

fn state(process: &Process, number: u32) -> &'static str {
    match process.state_letter(number) {
        'R' => "R (running)",
        'T' => "T (stopped)",
        'Z' => "Z (zombie)",
        _ => "S (sleeping)",
    }
}

/// Bit n-1 for each signal n that is ignored, and for each that is caught.
fn actions(process: &Process) -> (u64, u64) {
    const IGNORE: u64 = 1;
    let actions = process.actions.lock();
    (0..NR_SIGNALS).fold((0, 0), |(ignored, caught), n| match actions[n].handler {
        0 => (ignored, caught),
        IGNORE => (ignored | 1 << n, caught),
        _ => (ignored, caught | 1 << n),
    })
}

/// `status`.
pub fn status(process: &Process, number: u32, out: &mut dyn Write) -> fmt::Result {
    let pid = process.pid;
    writeln!(
        out,
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{}",
        process.name(),
        process.place.lock().umask,
        state(process, number)
    )?;
    writeln!(out, "Tgid:\t{pid}\nNgid:\t0\nPid:\t{number}\nPPid:\t{}\nTracerPid:\t0", process.parent_pid())?;
    let Identity { users, groups, capabilities } = *process.identity.lock();
    for (name, ids) in [("Uid", users), ("Gid", groups)] {
        writeln!(out, "{name}:\t{}\t{}\t{}\t{}", ids.real, ids.effective, ids.saved, ids.fs)?;
    }
    write!(out, "FDSize:\t64\nGroups:\t")?;
    let groups = process.kept.lock().groups.clone();
    groups.ids().iter().try_for_each(|id| write!(out, "{id} "))?;
    // Without any there is a blank, too.
    writeln!(out, "{}", if groups.ids().is_empty() { " " } else { "" })?;
    writeln!(
        out,
        "NStgid:\t{pid}\nNSpid:\t{number}\nNSpgid:\t{}\nNSsid:\t{}\nKthread:\t0",
        process.group(),
        process.session()
    )?;
    let sizes = sizes(process);
    let rss = sizes.anon + sizes.shmem;
    let lines = [
        ("VmPeak", sizes.all),
        ("VmSize", sizes.all),
        ("VmLck", sizes.locked),
        ("VmPin", 0),
        ("VmHWM", peak(process).max(rss)),
        ("VmRSS", rss),
        ("RssAnon", sizes.anon),
        ("RssFile", 0),
        ("RssShmem", sizes.shmem),
        ("VmData", sizes.data),
        ("VmStk", sizes.stack),
        ("VmExe", sizes.text),
        ("VmLib", 0),
        ("VmPTE", sizes.tables),
        ("VmSwap", 0),
        ("HugetlbPages", sizes.hugetlb),
    ];
    if process.mm().is_some() {
        lines.iter().try_for_each(|(name, pages)| writeln!(out, "{name}:\t{:>8} kB", pages * 4))?;
    }
    let thread = process.threads.lock().get(&number).cloned();
    let (own, blocked, affinity) = thread.map_or((0, 0, all_cpus()), |thread| {
        let signals = thread.signals.lock();
        (signals.pending.set(), signals.mask, thread.affinity.load(Ordering::Relaxed) & all_cpus())
    });
    let pending = process.pending.lock().set();
    let (ignored, caught) = actions(process);
    let may_be_huge = process.mm().is_some_and(|mm| !mm.space.thp_disable());
    writeln!(out, "THP_enabled:\t{}", u8::from(may_be_huge))?;
    writeln!(out, "Threads:\t{}\nSigQ:\t0/4096", process.nr_threads())?;
    writeln!(out, "SigPnd:\t{own:016x}\nShdPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}")?;
    writeln!(out, "SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}")?;
    writeln!(out, "CapInh:\t{:016x}\nCapPrm:\t{:016x}", capabilities.inheritable, capabilities.permitted)?;
    writeln!(out, "CapEff:\t{:016x}", capabilities.effective)?;
    writeln!(out, "CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t0")?;
    writeln!(out, "Cpus_allowed:\t{}\nCpus_allowed_list:\t{}", Mask(affinity), List(affinity))?;
    writeln!(out, "Mems_allowed:\t1\nMems_allowed_list:\t0")?;
    writeln!(out, "voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0")
}

/// The most pages that were resident.
fn peak(process: &Process) -> u64 {
    process.mm().map_or(0, |mm| mm.note_resident())
}

/// `stat`: 52 numbers; those that nobody counts here are 0.
pub fn stat(process: &Process, number: u32, out: &mut dyn Write) -> fmt::Result {
    let used = process.used();
    let sizes = sizes(process);
    write!(out, "{number} ({}) {} {} ", process.name(), process.state_letter(number), process.parent_pid())?;
    write!(out, "{} {} 0 -1 0 {} 0 0 0 ", process.group(), process.session(), used.nr_faults)?;
    write!(out, "{} {} 0 0 20 0 ", used.user_ns / NS_PER_TICK, used.system_ns / NS_PER_TICK)?;
    write!(out, "{} 0 0 {} {} ", process.nr_threads(), sizes.all * 4096, sizes.anon + sizes.shmem)?;
    writeln!(out, "{} 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0", u64::MAX)
}

/// `statm`, in pages.
pub fn statm(process: &Process, _: u32, out: &mut dyn Write) -> fmt::Result {
    let sizes = sizes(process);
    let data = sizes.data + sizes.stack;
    writeln!(out, "{} {} {} {} 0 {data} 0", sizes.all, sizes.anon + sizes.shmem, sizes.shmem, sizes.text)
}

/// `limits`.
pub fn limits(process: &Process, _: u32, out: &mut dyn Write) -> fmt::Result {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let limits = process.limits.lock().clone();
    writeln!(out, "{:<26}{:<21}{:<21}{:<10}", "Limit", "Soft Limit", "Hard Limit", "Units")?;
    for (which, (name, unit)) in (0..).zip(NAMES) {
        let [soft, hard] = limits.get(which).unwrap_or([INFINITY; 2]);
        writeln!(out, "{name:<26}{:<21}{:<21}{unit:<10}", Bound(soft).to_string(), Bound(hard).to_string())?;
    }
    Ok(())
}

struct Bound(u64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == INFINITY { f.write_str("unlimited") } else { write!(f, "{}", self.0) }
    }
}

/// `environ`: read from the program's stack, where it may have been changed.
pub fn write_environment(mm: &Mm, out: &mut Buffer) -> errno::Result<()> {
    let word = |at: u64| get::<u64>(&mm.space, at).ok();
    let Some(nr_args) = word(mm.program.first_sp) else { return Ok(()) };
    let first = mm.program.first_sp.wrapping_add(nr_args.wrapping_add(2).wrapping_mul(8));
    let mut left = MAX_ENVIRONMENT_BYTES;
    for n in 0.. {
        let text = word(first.wrapping_add(n * 8)).filter(|at| *at != 0);
        let Some(mut at) = text else { break };
        loop {
            let mut part = [0; 64];
            let nr = (4096 - at % 4096).min(part.len() as u64) as usize;
            if copy_in(&mm.space, at, &mut part[..nr]).is_err() || left < nr {
                return Ok(());
            }
            let end = part[..nr].iter().position(|byte| *byte == 0);
            out.push(&part[..end.map_or(nr, |end| end + 1)])?;
            (at, left) = (at + nr as u64, left - nr);
            if end.is_some() {
                break;
            }
        }
    }
    Ok(())
}

/// `mem`: the program's bytes at these addresses, whatever rights it has there: those before the first that is not there. EIO if
/// there are none.
pub fn read_memory(space: &Space, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
    copy_in_forced_some(space, offset, into).map_err(|_| Errno::EIO)
}

/// The same the other way.
pub fn write_memory(space: &Space, offset: u64, from: &[u8]) -> errno::Result<usize> {
    copy_out_forced_some(space, offset, from).map_err(|_| Errno::EIO)
}

/// `pagemap`: a word for each page, with bits for its state and, for root, the frame's number.
pub fn read_pagemap(space: &Space, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
    const EXCLUSIVE: u64 = 1 << 56;
    const GUARD: u64 = 1 << 58;
    const OF_FILE: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;
    if !offset.is_multiple_of(8) || !into.len().is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let first = offset / 8;
    let nr_pages = (USER_END / 4096).saturating_sub(first).min(into.len() as u64 / 8);
    if nr_pages == 0 {
        return Ok(0);
    }
    let words = &mut into[..nr_pages as usize * 8];
    words.fill(0);
    space.pagemap(first * 4096, nr_pages * 4096, &mut |entry| {
        let exclusive = |yes: bool| if yes { EXCLUSIVE } else { 0 };
        let word = match entry.page {
            PagemapPage::Private { pfn, is_exclusive } => PRESENT | exclusive(is_exclusive) | u64::from(pfn.0),
            PagemapPage::Object { pfn, is_exclusive } => PRESENT | OF_FILE | exclusive(is_exclusive) | u64::from(pfn.0),
            PagemapPage::Zero => PRESENT,
            PagemapPage::Absent => SWAPPED,
            PagemapPage::Guard => GUARD | SWAPPED,
            _ => 0,
        };
        let at = (entry.addr / 4096 - first) as usize * 8;
        words[at..at + 8].copy_from_slice(&word.to_le_bytes());
    });
    Ok(words.len())
}
