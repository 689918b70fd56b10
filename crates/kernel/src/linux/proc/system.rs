//! Texts about the machine as a whole. Numbers about memory are the
//! subsystem's.

use crate::linux::process;
use crate::port::arch::cpu;
use crate::port::arch::time::{now_ns, wall_ns};
use crate::port::boot::info;
use crate::port::mm;
use crate::port::sched;
use core::fmt::{self, Write};
use softfault::{Order, RssPages};

const NS_PER_S: u64 = 1_000_000_000;

/// Pages that programs have resident, added up.
fn resident() -> RssPages {
    let mut sum = RssPages::default();
    for mm in process::all().iter().filter_map(|p| p.mm()) {
        let (rss, _) = mm.resident();
        sum.anon += rss.anon;
        sum.shmem += rss.shmem;
        sum.tables += rss.tables;
        sum.anon_huge += rss.anon_huge;
    }
    sum
}

fn kib(out: &mut dyn Write, prefix: &str, name: &str, pages: u64) -> fmt::Result {
    writeln!(out, "{prefix}{name:<16}{:>8} kB", pages * 4)
}

/// `/proc/meminfo`.
pub fn meminfo(out: &mut dyn Write) -> fmt::Result {
    write_meminfo(out, "")
}

/// The same of the one node.
pub fn node_meminfo(out: &mut dyn Write) -> fmt::Result {
    write_meminfo(out, "Node 0 ")?;
    let stat = mm::vm().vmstat();
    kib(out, "Node 0 ", "MemUsed:", stat.nr_total_pages.saturating_sub(stat.nr_free_pages))
}

fn write_meminfo(out: &mut dyn Write, prefix: &str) -> fmt::Result {
    let stat = mm::vm().vmstat();
    let RssPages { anon, shmem, tables, anon_huge, .. } = resident();
    let used = stat.nr_total_pages.saturating_sub(stat.nr_free_pages);
    let lines = [
        ("MemTotal:", stat.nr_total_pages),
        ("MemFree:", stat.nr_free_pages),
        ("MemAvailable:", stat.nr_free_pages),
        ("Buffers:", 0),
        ("Cached:", shmem),
        ("SwapCached:", 0),
        ("Active:", anon),
        ("Inactive:", 0),
        ("Unevictable:", 0),
        ("Mlocked:", 0),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("AnonPages:", anon),
        ("Mapped:", shmem),
        ("Shmem:", shmem),
        ("KReclaimable:", 0),
        ("Slab:", 0),
        ("SReclaimable:", 0),
        ("SUnreclaim:", 0),
        ("PageTables:", tables),
        ("CommitLimit:", stat.nr_total_pages),
        ("Committed_AS:", used),
        ("AnonHugePages:", anon_huge),
    ];
    lines.iter().try_for_each(|(name, pages)| kib(out, prefix, name, *pages))?;
    let order = mm::default_huge_order();
    let default = mm::huge_counts(order);
    let counts = [
        ("HugePages_Total:", default.nr),
        ("HugePages_Free:", default.free),
        ("HugePages_Rsvd:", default.reserved),
        ("HugePages_Surp:", default.surplus),
    ];
    counts.iter().try_for_each(|(name, nr)| writeln!(out, "{prefix}{name:<16}{nr:>8}"))?;
    kib(out, prefix, "Hugepagesize:", order.nr_pages())?;
    let of_pool = |order: Order| mm::huge_counts(order).nr * order.nr_pages();
    kib(out, prefix, "Hugetlb:", mm::HUGE_ORDERS.into_iter().map(of_pool).sum())
}

/// `/proc/vmstat`: the subsystem's counters, and what idle CPUs did.
pub fn vmstat(out: &mut dyn Write) -> fmt::Result {
    mm::vm().vmstat().iter().try_for_each(|(name, value)| writeln!(out, "{name} {value}"))?;
    writeln!(out, "nr_anon_transparent_hugepages {}", resident().anon_huge / Order::PMD.nr_pages())?;
    writeln!(out, "blocks_zeroed_ahead {}", sched::nr_blocks_zeroed())
}

/// `/proc/sys/vm/min_free_kbytes`: what follows from the memory there is. Not to be set here.
pub fn min_free_kbytes(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{}", mm::vm().watermarks().min_pages * 4)
}

/// `/proc/sys/vm/watermark_scale_factor`.
pub fn watermark_scale_factor(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{}", mm::vm().tunables().watermark_scale_factor)
}

/// `/proc/stat`, as far as it is known.
pub fn stat(out: &mut dyn Write) -> fmt::Result {
    let processes = process::all();
    let mut used = (0, 0);
    for process in &processes {
        let of_one = process.used();
        used = (used.0 + of_one.user_ns, used.1 + of_one.system_ns);
    }
    let ticks = |ns: u64| ns / (NS_PER_S / 100);
    let nr_cpus = cpu::nr_cpus() as u64;
    let idle = ticks((now_ns() * nr_cpus).saturating_sub(used.0 + used.1));
    writeln!(out, "cpu  {} 0 {} {idle} 0 0 0 0 0 0", ticks(used.0), ticks(used.1))?;
    for n in 0..nr_cpus {
        let part = |ns| ticks(ns) / nr_cpus;
        writeln!(out, "cpu{n} {} 0 {} {} 0 0 0 0 0 0", part(used.0), part(used.1), idle / nr_cpus)?;
    }
    let running = processes.iter().filter(|p| p.state_letter(p.pid) == 'R').count();
    writeln!(out, "intr 0\nctxt 0\nbtime {}", (wall_ns() - now_ns()) / NS_PER_S)?;
    writeln!(out, "processes {}\nprocs_running {running}\nprocs_blocked 0", processes.len())
}

/// `/proc/uptime`.
pub fn uptime(out: &mut dyn Write) -> fmt::Result {
    let hundredths = now_ns() / (NS_PER_S / 100);
    writeln!(out, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
}

/// `/proc/loadavg`; nobody averages.
pub fn loadavg(out: &mut dyn Write) -> fmt::Result {
    let processes = process::all();
    let running = processes.iter().filter(|p| p.state_letter(p.pid) == 'R').count();
    let last = processes.iter().map(|p| p.pid).max().unwrap_or(0);
    writeln!(out, "0.00 0.00 0.00 {running}/{} {last}", processes.len())
}

/// `/proc/cpuinfo`.
pub fn cpuinfo(out: &mut dyn Write) -> fmt::Result {
    for n in 0..cpu::nr_cpus() {
        writeln!(
            out,
            "processor\t: {n}\nvendor_id\t: AuthenticAMD\nmodel name\t: emulated x86-64\ncpu MHz\t\t: 1000.000"
        )?;
        writeln!(out, "flags\t\t: fpu tsc msr pae cx8 apic cmov pat mmx fxsr sse sse2 syscall nx lm smep smap")?;
        writeln!(out, "address sizes\t: 40 bits physical, 48 bits virtual\n")?;
    }
    Ok(())
}

/// `/proc/version`.
pub fn version(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "Linux version 6.18.0-softfault (softfault reference kernel) #1 SMP")
}

/// `/proc/cmdline`.
pub fn cmdline(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{}", info::get().cmdline())
}

/// `0-N`.
pub fn cpu_list(out: &mut dyn Write) -> fmt::Result {
    match cpu::nr_cpus() {
        1 => writeln!(out, "0"),
        n => writeln!(out, "0-{}", n - 1),
    }
}

/// The same as a mask.
pub fn cpu_map(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{}", Mask(all_cpus()))
}

/// A bit for each CPU.
pub fn all_cpus() -> u64 {
    u64::MAX >> (64 - cpu::nr_cpus())
}

/// A mask in words of 32 bits, with commas.
pub struct Mask(pub u64);

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = (self.0 >> 32, self.0 & 0xffff_ffff);
        if cpu::nr_cpus() > 32 { write!(f, "{high:08x},{low:08x}") } else { write!(f, "{low:x}") }
    }
}

/// A mask as the list of its bits: `0-1,4`.
pub struct List(pub u64);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        let mut comma = "";
        while left != 0 {
            let first = left.trailing_zeros();
            let nr = (left >> first).trailing_ones();
            match nr {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", first + nr - 1)?,
            }
            comma = ",";
            left = if first + nr >= 64 { 0 } else { left & u64::MAX << (first + nr) };
        }
        Ok(())
    }
}
