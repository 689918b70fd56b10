//! Calls about signals.

use super::call::Call;
use super::time;
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::process::thread::AltStack;
use crate::linux::process::{self, Process, table};
use crate::linux::signal::deliver::raw_stack;
use crate::linux::signal::layout::{RawInfo, RawStack};
use crate::linux::signal::{Action, Info, NR_SIGNALS, UNBLOCKABLE, bit, send};
use crate::port::arch::time::now_ns;
use crate::port::mm;
use crate::port::sched;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SS_DISABLE, SS_ONSTACK};

const MASK_BYTES: u64 = 8;
const MIN_ALT_STACK: u64 = 2048;
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;

fn number(raw: u32) -> errno::Result<u32> {
    if raw == 0 || raw as usize > NR_SIGNALS { Err(Errno::EINVAL) } else { Ok(raw) }
}

fn check_mask_bytes(bytes: u64) -> errno::Result<()> {
    if bytes == MASK_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

pub fn rt_sigaction(call: &mut Call) -> errno::Result {
    let [_, new_at, old_at, bytes, ..] = call.args;
    let number = number(call.int(0))?;
    check_mask_bytes(bytes)?;
    let new = if new_at == 0 { None } else { Some(mm::get::<Action>(call.space(), new_at)?) };
    if new.is_some() && bit(number) & UNBLOCKABLE != 0 {
        return Err(Errno::EINVAL);
    }
    let old = match new {
        Some(new) => send::set_action(call.process, number, new),
        None => call.process.actions.lock()[number as usize - 1],
    };
    if old_at != 0 {
        mm::put(call.space(), old_at, &old)?;
    }
    Ok(0)
}

pub fn rt_sigprocmask(call: &mut Call) -> errno::Result {
    let [_, new_at, old_at, bytes, ..] = call.args;
    check_mask_bytes(bytes)?;
    let new = if new_at == 0 { None } else { Some(mm::get::<u64>(call.space(), new_at)?) };
    let old = call.thread.signals.lock().mask;
    if let Some(new) = new {
        let mask = match call.int(0) {
            SIG_BLOCK => old | new,
            SIG_UNBLOCK => old & !new,
            SIG_SETMASK => new,
            _ => return Err(Errno::EINVAL),
        };
        call.thread.set_mask(&mut call.thread.signals.lock(), mask);
    }
    if old_at != 0 {
        mm::put(call.space(), old_at, &old)?;
    }
    Ok(0)
}

pub fn rt_sigpending(call: &mut Call) -> errno::Result {
    if call.args[1] > MASK_BYTES {
        return Err(Errno::EINVAL);
    }
    let (own, mask) = {
        let signals = call.thread.signals.lock();
        (signals.pending.set(), signals.mask)
    };
    let set = (own | call.process.pending.lock().set()) & mask;
    mm::copy_out(call.space(), call.args[0], &set.to_le_bytes()[..call.args[1] as usize])?;
    Ok(0)
}

/// Waits with another mask; the old one comes back with the handler's return
/// (`ThreadSignals::restore_mask`).
pub fn rt_sigsuspend(call: &mut Call) -> errno::Result {
    check_mask_bytes(call.args[1])?;
    let mask = mm::get::<u64>(call.space(), call.args[0])?;
    {
        let mut signals = call.thread.signals.lock();
        signals.restore_mask = Some(signals.mask);
        call.thread.set_mask(&mut signals, mask);
    }
    pause(call)
}

pub fn pause(call: &mut Call) -> errno::Result {
    while !call.thread.is_interrupted() {
        sched::block();
    }
    Err(Restart::Unhandled.errno())
}

pub fn sigaltstack(call: &mut Call) -> errno::Result {
    let [new_at, old_at, ..] = call.args;
    let sp = call.frame.rsp;
    let old = raw_stack(&call.thread.signals.lock().alt_stack, sp);
    if new_at != 0 {
        let new = mm::get::<RawStack>(call.space(), new_at)?;
        if old.flags & SS_ONSTACK != 0 {
            return Err(Errno::EPERM);
        }
        let stack = match new.flags {
            SS_DISABLE => AltStack::default(),
            0 | SS_ONSTACK if new.bytes < MIN_ALT_STACK => return Err(Errno::ENOMEM),
            0 | SS_ONSTACK => AltStack { start: new.sp, bytes: new.bytes },
            _ => return Err(Errno::EINVAL),
        };
        call.thread.signals.lock().alt_stack = stack;
    }
    if old_at != 0 {
        mm::put(call.space(), old_at, &old)?;
    }
    Ok(0)
}

/// Waits for one of a set of blocked signals and takes it.
pub fn rt_sigtimedwait(call: &mut Call) -> errno::Result {
    let [set_at, info_at, timeout_at, bytes, ..] = call.args;
    check_mask_bytes(bytes)?;
    let set = mm::get::<u64>(call.space(), set_at)? & !UNBLOCKABLE;
    let deadline = time::deadline(call, timeout_at, false, false)?;
    let info = loop {
        let own = call.thread.signals.lock().pending.take(!set);
        if let Some(info) = own.or_else(|| call.process.pending.lock().take(!set)) {
            break info;
        }
        if deadline.is_some_and(|d| now_ns() >= d) {
            return Err(Errno::EAGAIN);
        }
        if call.thread.is_interrupted() {
            return Err(Restart::Untouched.errno());
        }
        sched::block_until(deadline);
    };
    if info_at != 0 {
        mm::put(call.space(), info_at, &RawInfo::new(&info))?;
    }
    Ok(info.signal.into())
}

/// The targets of kill(2), if a signal is sent at all: a process, a group, all processes but
/// the caller's.
fn targets(call: &Call, pid: i32, signal: u32) -> Vec<Arc<Process>> {
    let own = call.process.pid;
    let group = if pid == 0 { call.process.group() } else { pid.unsigned_abs() };
    let is_meant = |pid_of: u32, group_of: u32| if pid == -1 { pid_of != own } else { group_of == group };
    let mut all = match pid {
        1.. => process::find_with_thread(pid as u32).into_iter().collect(),
        _ => table::members_for(signal, is_meant),
    };
    // The caller comes last: it might not come back.
    all.sort_by_key(|p| p.pid == own);
    all
}

fn send_to_all(call: &Call, raw: u32, code: i32, extra: u64) -> errno::Result {
    let pid = call.int(0) as i32;
    if raw as usize > NR_SIGNALS {
        return Err(Errno::EINVAL);
    }
    let info = Info { extra, ..Info::sent(raw, code, call.process.pid) };
    let targets = targets(call, pid, raw);
    match (raw, pid) {
        (0, _) => {}
        (_, 1..) => targets.iter().filter(|p| !p.has_ended()).for_each(|p| send::to_process(p, info)),
        _ => send::to_members(&targets, info),
    }
    if targets.is_empty() { Err(Errno::ESRCH) } else { Ok(0) }
}

pub fn kill(call: &mut Call) -> errno::Result {
    send_to_all(call, call.int(1), SI_USER, 0)
}

/// sigqueue(3): to one process, with a value.
pub fn rt_sigqueueinfo(call: &mut Call) -> errno::Result {
    let (code, value) = queued_info(call, call.args[2], call.int(0))?;
    if call.int(0) as i32 <= 0 {
        return Err(Errno::ESRCH);
    }
    send_to_all(call, call.int(1), code, value)
}

/// Reads the information about a signal that a program sends to `target`: code and
/// value.
fn queued_info(call: &Call, at: u64, target: u32) -> errno::Result<(i32, u64)> {
    // signo, errno | code, pad | pid, uid | value
    let [_, code, _, value] = mm::get::<[u64; 4]>(call.space(), at)?;
    let code = code as u32 as i32;
    // Only the kernel may tell others that it was the kernel, or tkill(2).
    if (code >= 0 || code == SI_TKILL) && target != call.thread.tid { Err(Errno::EPERM) } else { Ok((code, value)) }
}

/// As rt_sigqueueinfo(2), to one thread.
pub fn rt_tgsigqueueinfo(call: &mut Call) -> errno::Result {
    let (code, value) = queued_info(call, call.args[3], call.int(1))?;
    let (pid, tid) = (call.int(0), call.int(1));
    if (pid as i32) <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = process::find(pid).ok_or(Errno::ESRCH)?;
    send(&process, tid, call.int(2), Info { extra: value, ..Info::sent(0, code, call.process.pid) })
}

/// Sends `raw` with the rest of `info`.
fn send(process: &Process, tid: u32, raw: u32, info: Info) -> errno::Result {
    if raw as usize > NR_SIGNALS || (tid as i32) <= 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process.threads.lock().get(&tid).cloned().ok_or(Errno::ESRCH)?;
    if raw != 0 {
        send::to_thread(&thread, Info { signal: raw, ..info });
    }
    Ok(0)
}

/// The thread may be of any process.
pub fn tkill(call: &mut Call) -> errno::Result {
    let tid = call.int(0);
    let home = process::find_with_thread(tid);
    let info = Info::sent(0, SI_TKILL, call.process.pid);
    send(home.as_ref().unwrap_or(call.process), tid, call.int(1), info)
}

pub fn tgkill(call: &mut Call) -> errno::Result {
    if (call.int(0) as i32) <= 0 || (call.int(1) as i32) <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = process::find(call.int(0)).ok_or(Errno::ESRCH)?;
    send(&process, call.int(1), call.int(2), Info::sent(0, SI_TKILL, call.process.pid))
}
