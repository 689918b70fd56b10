//! Calls about processes by descriptor: pidfd_open(2), process_madvise(2).

use super::call::Call;
use super::file::add;
use super::memory::advise;
use super::path::open_file;
use super::rw::read_parts;
use crate::linux::errno::{self, Errno};
use crate::linux::file::life::Life;
use crate::linux::file::{Kind, Open};
use crate::linux::process::identity::{Capability, Credentials};
use crate::linux::process::{self, Mm, Process};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT, MADV_WILLNEED, O_CLOEXEC, O_EXCL, O_NONBLOCK, O_RDWR,
};

/// A flag of pidfd_open(2), which F_GETFL tells.
const PIDFD_THREAD: u32 = O_EXCL;

/// In the place of a descriptor: the caller's thread, the caller.
const SELF_THREAD: i32 = -10_000;
const SELF_PROCESS: i32 = -10_001;

/// pidfd_open(2), of a process, or with `PIDFD_THREAD` of a thread.
pub fn open(call: &mut Call) -> errno::Result {
    let (number, flags) = (call.int(0), call.int(1));
    if flags & !(O_NONBLOCK | PIDFD_THREAD) != 0 || number as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let life = match process::find(number) {
        Some(process) => process.life.clone(),
        None => life_of_thread(number, flags)?,
    };
    add(call, Open::nameless(Kind::Process(life), "[pidfd]", O_RDWR | flags)?, O_CLOEXEC)
}

/// The life of a thread that is not the first of its process.
fn life_of_thread(tid: u32, flags: u32) -> errno::Result<Arc<Life>> {
    let process = process::find_with_thread(tid).ok_or(Errno::ESRCH)?;
    if flags & PIDFD_THREAD == 0 {
        return Err(Errno::ENOENT);
    }
    let threads = process.threads.lock();
    threads.get(&tid).map(|thread| thread.life.clone()).ok_or(Errno::ESRCH)
}

/// The process that argument 0 names; ESRCH for a thread that is not the first of its process, and once that has ended.
fn process_of(call: &Call) -> errno::Result<Arc<Process>> {
    if matches!(call.int(0) as i32, SELF_THREAD | SELF_PROCESS) {
        return Ok(call.process.clone());
    }
    match &open_file(call, 0)?.kind {
        // As on Linux, which asks the first thread for the memory.
        Kind::Process(life) => process::find_with_life(life).filter(|p| p.has_first_thread()).ok_or(Errno::ESRCH),
        _ => Err(Errno::EBADF),
    }
}

/// Its memory, if the caller may look into it by these credentials; else EACCES.
pub(super) fn memory_of(call: &Call, process: &Arc<Process>, by: Credentials) -> errno::Result<Arc<Mm>> {
    let mm = process.mm().ok_or(Errno::ESRCH)?;
    if Arc::ptr_eq(&mm, call.thread.mm()) || Arc::ptr_eq(process, call.process) {
        return Ok(mm);
    }
    // One lock at a time: two processes may look into each other.
    let own = *call.process.identity.lock();
    let other = *process.identity.lock();
    if own.may_look_into(&other, mm.dumpable.load(Ordering::Relaxed), by) { Ok(mm) } else { Err(Errno::EACCES) }
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
    let mm = memory_of(call, &process_of(call)?, Credentials::FileSystem)?;
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
    let result = advise_parts(&mm, &parts, advice);
    mm.leave();
    result
}

/// As on Linux an empty part is looked at if it is the first one, and others are not.
fn advise_parts(mm: &Mm, parts: &[[u64; 2]], advice: u32) -> errno::Result {
    let mut done = 0;
    let nr_bytes: u64 = parts.iter().map(|[_, len]| len).sum();
    for (i, &[addr, len]) in parts.iter().enumerate() {
        if nr_bytes == 0 || i > 0 && len == 0 {
            continue;
        }
        match advise(mm, addr, len, advice.into()) {
            Ok(()) => done += len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
