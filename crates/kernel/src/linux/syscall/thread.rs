//! Calls about threads: making and ending them, futexes, where they run.

use super::call::Call;
use super::info::process_of;
use super::time;
use crate::linux::errno::{self, Errno};
use crate::linux::futex::{self, Key};
use crate::linux::process::identity::Capability;
use crate::linux::process::table::INIT;
use crate::linux::process::thread::Thread;
use crate::port::arch::{cpu, segments};
use crate::port::mm::{self, USER_END};
use crate::port::power::End;
use crate::port::sched;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT, FUTEX_WAIT_BITSET,
    FUTEX_WAKE, FUTEX_WAKE_BITSET,
};

const ARCH_SET_GS: u32 = 0x1001;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
const ARCH_GET_GS: u32 = 0x1004;

pub fn futex(call: &mut Call) -> errno::Result {
    let [addr, op, value, timeout, other, last] = call.args;
    let (op, value) = (op as u32, value as u32);
    let private = op & FUTEX_PRIVATE_FLAG != 0;
    let key = || Key::of(call.space(), addr, private);
    // As Linux: signed, and at least one is woken.
    let nr_woken = (value as i32).max(1) as u32;
    let realtime = op & FUTEX_CLOCK_REALTIME != 0;
    match op & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) {
        op if realtime && op != FUTEX_WAIT_BITSET => Err(Errno::ENOSYS),
        FUTEX_WAIT => {
            let deadline = time::deadline(call, timeout, false, false)?;
            futex::wait(call.space(), key()?, addr, value, u32::MAX, deadline)
        }
        FUTEX_WAIT_BITSET => {
            let deadline = time::deadline(call, timeout, true, realtime)?;
            let key = if last as u32 == 0 { Err(Errno::EINVAL) } else { key() };
            futex::wait(call.space(), key?, addr, value, last as u32, deadline)
        }
        FUTEX_WAKE => Ok(futex::wake(key()?, nr_woken, u32::MAX)),
        FUTEX_WAKE_BITSET if last as u32 == 0 => Err(Errno::EINVAL),
        FUTEX_WAKE_BITSET => Ok(futex::wake(key()?, nr_woken, last as u32)),
        op @ (FUTEX_REQUEUE | FUTEX_CMP_REQUEUE) => {
            // Both counts are signed; the second comes in the timeout's place.
            if (value as i32) < 0 || (timeout as i32) < 0 {
                return Err(Errno::EINVAL);
            }
            let (from, to) = (key()?, Key::of(call.space(), other, private)?);
            if op == FUTEX_CMP_REQUEUE && mm::get::<u32>(call.space(), addr)? != last as u32 {
                return Err(Errno::EAGAIN);
            }
            Ok(futex::requeue(from, to, value, timeout as u32))
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// The thread ends on its way back to the program.
pub fn exit(call: &mut Call) -> errno::Result {
    call.thread.exiting.store(1 << 32 | call.args[0] & 0xff, Ordering::Relaxed);
    call.thread.attention.store(true, Ordering::Relaxed);
    Ok(0)
}

pub fn exit_group(call: &mut Call) -> errno::Result {
    call.process.begin_end(End::Exit(call.args[0] as u8));
    Ok(0)
}

pub fn set_tid_address(call: &mut Call) -> errno::Result {
    call.thread.clear_tid.store(call.args[0], Ordering::Relaxed);
    Ok(call.thread.tid.into())
}

pub fn set_robust_list(call: &mut Call) -> errno::Result {
    if call.args[1] != 24 {
        return Err(Errno::EINVAL);
    }
    call.thread.robust_list.store(call.args[0], Ordering::Relaxed);
    Ok(0)
}

pub fn arch_prctl(call: &mut Call) -> errno::Result {
    let [code, addr, ..] = call.args;
    match code as u32 {
        ARCH_SET_FS | ARCH_SET_GS if addr >= USER_END => return Err(Errno::EPERM),
        ARCH_SET_FS => segments::set_fs_base(addr),
        ARCH_SET_GS => segments::set_gs_base(addr),
        ARCH_GET_FS => mm::put(call.space(), addr, &segments::fs_base())?,
        ARCH_GET_GS => mm::put(call.space(), addr, &segments::gs_base())?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub fn sched_yield() -> errno::Result {
    sched::yield_now();
    Ok(0)
}

/// The thread of that number, of any process.
fn find(call: &Call, tid: u32) -> errno::Result<Arc<Thread>> {
    if tid == 0 {
        return Ok(crate::linux::process::thread::current());
    }
    let thread = process_of(call, tid)?.threads.lock().get(&tid).cloned();
    thread.ok_or(Errno::ESRCH)
}

fn all_cpus() -> u64 {
    u64::MAX >> (64 - cpu::nr_cpus())
}

pub fn sched_setaffinity(call: &mut Call) -> errno::Result {
    let mut mask = [0u8; 8];
    let bytes = mask.len().min(call.args[1] as usize);
    mm::copy_in(call.space(), call.args[2], &mut mask[..bytes])?;
    let mask = u64::from_le_bytes(mask) & all_cpus();
    // Linux calls a thread of the kernel so that stays where it is.
    let thread = if call.int(0) == INIT { Err(Errno::EINVAL) } else { find(call, call.int(0)) }?;
    // One lock at a time: two processes may move each other.
    let own = *call.process.identity.lock();
    let other = *thread.process().identity.lock();
    if !own.owns(&other) && !own.has(Capability::SysNice) {
        return Err(Errno::EPERM);
    }
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    thread.affinity.store(mask, Ordering::Relaxed);
    // Another thread moves when its turn ends.
    if core::ptr::eq(Arc::as_ptr(&thread), call.thread) && mask & 1 << cpu::index() == 0 {
        sched::migrate();
    }
    Ok(0)
}

pub fn sched_getaffinity(call: &mut Call) -> errno::Result {
    let len = call.int(1);
    if len < 8 || !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    // Process 1 is the kernel's own.
    let mask = match call.int(0) {
        INIT => all_cpus(),
        tid => find(call, tid)?.affinity.load(Ordering::Relaxed) & all_cpus(),
    };
    mm::put(call.space(), call.args[2], &mask)?;
    Ok(8)
}

pub fn getcpu(call: &mut Call) -> errno::Result {
    let [cpu_at, node_at, ..] = call.args;
    if cpu_at != 0 {
        mm::put(call.space(), cpu_at, &(cpu::index() as u32))?;
    }
    if node_at != 0 {
        mm::put(call.space(), node_at, &0u32)?;
    }
    Ok(0)
}
