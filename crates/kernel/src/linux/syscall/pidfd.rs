//! Calls about processes by descriptor: pidfd_open(2), process_madvise(2).

use super::Call;
use super::file::add;
use super::memory::advise;
use super::path::open_file;
use super::rw::read_parts;
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::linux::process::identity::Capability;
use crate::linux::process::{self, Mm, Process};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT, MADV_WILLNEED, O_CLOEXEC, O_NONBLOCK, O_RDWR};

/// In the place of a descriptor: the caller's thread, the caller.
const SELF_THREAD: i32 = -10_000;
const SELF_PROCESS: i32 = -10_001;

/// pidfd_open(2), of processes only: `PIDFD_THREAD` is refused, as before Linux 6.9.
pub fn open(call: &mut Call) -> errno::Result {
    let (pid, flags) = (call.int(0), call.int(1));
    if flags & !O_NONBLOCK != 0 || pid as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let Some(process) = process::find(pid) else {
        let is_thread = process::find_with_thread(pid).is_some();
        return Err(if is_thread { Errno::ENOENT } else { Errno::ESRCH });
    };
    add(call, Open::nameless(Kind::Process(process), "[pidfd]", O_RDWR | flags)?, O_CLOEXEC)
}

/// The process that argument 0 names.
fn process_of(call: &Call) -> errno::Result<Arc<Process>> {
    if matches!(call.int(0) as i32, SELF_THREAD | SELF_PROCESS) {
        return Ok(call.process.clone());
    }
    match &open_file(call, 0)?.kind {
        Kind::Process(process) => Ok(process.clone()),
        _ => Err(Errno::EBADF),
    }
}

/// Its memory, if the caller may look into it.
fn memory_of(call: &Call, process: &Arc<Process>) -> errno::Result<Arc<Mm>> {
    let mm = process.mm().ok_or(Errno::ESRCH)?;
    if Arc::ptr_eq(&mm, call.thread.mm()) || Arc::ptr_eq(process, call.process) {
        return Ok(mm);
    }
    // One lock at a time: two processes may advise each other.
    let own = *call.process.identity.lock();
    let other = *process.identity.lock();
    if own.may_look_into(&other, mm.dumpable.load(Ordering::Relaxed)) { Ok(mm) } else { Err(Errno::EACCES) }
}

/// Advice that changes nothing that a program could read in its memory.
fn is_for_others(advice: u32) -> bool {
    matches!(advice, MADV_COLD | MADV_PAGEOUT | MADV_WILLNEED | MADV_COLLAPSE)
}

/// process_madvise(2): the ranges are advised in order, up to the first that is refused. Returns the bytes of those
/// before it. The memory stays as it is until the call ends, also if the process executes another program or ends.
pub fn process_madvise(call: &mut Call) -> errno::Result {
    let (advice, flags) = (call.int(3), call.int(4));
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let parts = read_parts(call)?;
    let mm = memory_of(call, &process_of(call)?)?;
    if !Arc::ptr_eq(&mm, call.thread.mm()) {
        if !is_for_others(advice) {
            return Err(Errno::EINVAL);
        }
        if !call.process.identity.lock().has(Capability::SysNice) {
            return Err(Errno::EPERM);
        }
    }
    if !mm.try_enter() {
        return Err(Errno::ESRCH);
    }
    let result = advise_parts(&mm, parts, advice);
    mm.leave();
    result
}

fn advise_parts(mm: &Mm, parts: impl IntoIterator<Item = [u64; 2]>, advice: u32) -> errno::Result {
    let mut done = 0;
    for [addr, len] in parts {
        match advise(mm, addr, len, advice.into()) {
            Ok(()) => done += len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
