//! Calls that tell about the system and its limits.

use super::call::Call;
use crate::linux::errno::{self, Errno};
use crate::linux::process::identity::Capability;
use crate::linux::process::limits::LimitError;
use crate::linux::process::{self, Process};
use crate::linux::signal::NR_SIGNALS;
use crate::port::arch::time::now_ns;
use crate::port::mm;
use crate::port::random;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::prctl::{
    PR_GET_DUMPABLE, PR_GET_NAME, PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG, PR_GET_THP_DISABLE, PR_SET_DUMPABLE,
    PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_THP_DISABLE, PR_SET_VMA,
};

pub fn getrandom(call: &mut Call) -> errno::Result {
    let [out, len, flags, ..] = call.args;
    // GRND_NONBLOCK, GRND_RANDOM, GRND_INSECURE.
    if flags as u32 & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let len = len.min(1 << 20);
    let mut done = 0;
    while done < len {
        let part = (len - done).min(8);
        let bytes = random::next().to_le_bytes();
        match mm::copy_out_some(call.space(), out.wrapping_add(done), &bytes[..part as usize]) {
            Ok(nr) => done += nr as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Six fields of 65 bytes. The release is that of the Linux whose behaviour is
/// the model: C libraries refuse to run on old ones.
pub fn uname(call: &mut Call) -> errno::Result {
    let fields = ["Linux", "softfault", "6.18.0-softfault", "#1 SMP", "x86_64", "(none)"];
    let mut bytes = [0u8; 6 * 65];
    for (slot, text) in bytes.chunks_exact_mut(65).zip(fields) {
        slot[..text.len()].copy_from_slice(text.as_bytes());
    }
    mm::copy_out(call.space(), call.args[0], &bytes)?;
    Ok(0)
}

pub fn sysinfo(call: &mut Call) -> errno::Result {
    // uptime, loads[3], total, free, shared, buffers, swap, free swap, processes,
    // total high, free high, unit; 112 bytes.
    let mut words = [0u64; 14];
    words[0] = now_ns() / 1_000_000_000;
    // Like MemTotal: what the kernel does not keep for itself.
    let stat = mm::vm().vmstat();
    (words[4], words[5]) = (stat.nr_total_pages * 4096, stat.nr_free_pages * 4096);
    words[10] = process::all().len() as u64;
    words[13] = 1;
    mm::put(call.space(), call.args[0], &words)?;
    Ok(0)
}

/// The process that a call means: its own, or another by the number of one of its threads.
pub(super) fn process_of(call: &Call, pid: u32) -> errno::Result<Arc<Process>> {
    match pid {
        0 => Ok(call.process.clone()),
        _ => process::find_with_thread(pid).ok_or(Errno::ESRCH),
    }
}

fn set_limit(call: &Call, process: &Process, which: u32, pair: [u64; 2]) -> errno::Result<()> {
    let may_raise = call.process.identity.lock().has(Capability::SysResource);
    process.limits.lock().set(which, pair, may_raise).map_err(|error| match error {
        LimitError::Unknown | LimitError::Inverted => Errno::EINVAL,
        LimitError::Raised => Errno::EPERM,
    })?;
    process.apply_limits();
    Ok(())
}

pub fn prlimit64(call: &mut Call) -> errno::Result {
    let [_, _, new_at, old_at, ..] = call.args;
    let process = process_of(call, call.int(0))?;
    let before = process.limits.lock().get(call.int(1)).ok_or(Errno::EINVAL)?;
    if new_at != 0 {
        let new = mm::get::<[u64; 2]>(call.space(), new_at)?;
        set_limit(call, &process, call.int(1), new)?;
    }
    if old_at != 0 {
        mm::put(call.space(), old_at, &before)?;
    }
    Ok(0)
}

pub fn getrlimit(call: &mut Call) -> errno::Result {
    let limit = call.process.limits.lock().get(call.int(0)).ok_or(Errno::EINVAL)?;
    mm::put(call.space(), call.args[1], &limit)?;
    Ok(0)
}

pub fn setrlimit(call: &mut Call) -> errno::Result {
    let new = mm::get::<[u64; 2]>(call.space(), call.args[1])?;
    set_limit(call, call.process, call.int(0), new)?;
    Ok(0)
}

/// The start of a text, as far as it fits; its length. Nothing behind that is read.
fn read_start(call: &Call, addr: u64, into: &mut [u8]) -> errno::Result<usize> {
    let mut len = 0;
    while len < into.len() {
        // Up to the end of the page: the text may end there.
        let at = addr.wrapping_add(len as u64);
        let end = into.len().min(len + (4096 - at % 4096) as usize);
        mm::copy_in(call.space(), at, &mut into[len..end])?;
        if let Some(zero) = into[len..end].iter().position(|b| *b == 0) {
            return Ok(len + zero);
        }
        len = end;
    }
    Ok(len)
}

/// A thread's name is its process's here.
pub fn prctl(call: &mut Call) -> errno::Result {
    match call.int(0) {
        PR_SET_NAME => {
            let mut name = [0; 15];
            let len = read_start(call, call.args[1], &mut name)?;
            call.process.set_name(Some(String::from_utf8_lossy(&name[..len]).into_owned()));
            Ok(0)
        }
        PR_GET_NAME => {
            let mut name = [0u8; 16];
            let text = call.process.name();
            let len = text.len().min(15);
            name[..len].copy_from_slice(&text.as_bytes()[..len]);
            mm::copy_out(call.space(), call.args[1], &name)?;
            Ok(0)
        }
        PR_SET_PDEATHSIG if call.args[1] <= NR_SIGNALS as u64 => {
            call.process.death_signal.store(call.args[1] as u8, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_PDEATHSIG => {
            let signal = u32::from(call.process.death_signal.load(Ordering::Relaxed));
            mm::put(call.space(), call.args[1], &signal)?;
            Ok(0)
        }
        // Unused fields must be zero: others would mean something newer.
        PR_SET_THP_DISABLE if call.args[2..5] == [0; 3] => {
            call.space().set_thp_disable(call.args[1] != 0);
            Ok(0)
        }
        PR_GET_THP_DISABLE if call.args[1..5] == [0; 4] => Ok(call.space().thp_disable().into()),
        PR_GET_DUMPABLE => Ok(call.thread.mm().dumpable.load(Ordering::Relaxed).into()),
        PR_SET_DUMPABLE if call.args[1] <= 1 => {
            call.thread.mm().dumpable.store(call.args[1] == 1, Ordering::Relaxed);
            Ok(0)
        }
        PR_SET_NO_NEW_PRIVS if call.args[1..5] == [1, 0, 0, 0] => {
            call.process.kept.lock().no_new_privs = true;
            Ok(0)
        }
        PR_GET_NO_NEW_PRIVS if call.args[1..5] == [0; 4] => Ok(call.process.kept.lock().no_new_privs.into()),
        // Names of mappings are for reports only, and not kept.
        PR_SET_VMA => Err(Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}
