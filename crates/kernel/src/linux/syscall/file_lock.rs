//! fcntl(2)'s locks and flock(2).

use super::call::Call;
use super::path::open_file;
use crate::linux::errno::{self, Errno};
use crate::linux::file::locks::{self, Family, Owner, Request};
use crate::linux::file::{Kind, Open, bell};
use crate::port::mm;
use core::ops::Range;
use linux_raw_sys::general::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH,
    LOCK_UN,
};

/// `struct flock`: type and whence, start, length, process.
type Raw = [u64; 4];

fn owner_of_open(open: &Open) -> Owner {
    Owner::Open(core::ptr::from_ref(open) as usize)
}

/// The bytes that are meant.
fn range(open: &Open, raw: &Raw) -> errno::Result<Range<u64>> {
    let (start, len) = (raw[1] as i64, raw[2] as i64);
    let base = match raw[0] >> 16 & 0xffff {
        0 => 0,
        1 => *open.position.lock(),
        2 => open.inode.size_bytes(),
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add_signed(start).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
    match len {
        0 => Ok(start..u64::MAX),
        1.. => Ok(start..start.checked_add(len as u64).filter(|e| *e <= 1 << 63).ok_or(Errno::EOVERFLOW)?),
        _ => Ok(start.checked_add_signed(len).ok_or(Errno::EINVAL)?..start),
    }
}

/// The commands of fcntl(2) that are about locks.
pub fn fcntl(call: &Call, open: &Open, command: u32) -> errno::Result {
    let mut raw: Raw = mm::get(call.space(), call.args[2])?;
    let kind = (raw[0] & 0xffff) as u32;
    let is_of_open = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    if kind > F_UNLCK || is_of_open && raw[3] as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let owner = if is_of_open { owner_of_open(open) } else { Owner::Process(call.process.pid) };
    let range = range(open, &raw)?;
    let wanted = Request { family: Family::Part, owner, range, exclusive: kind == F_WRLCK };
    if matches!(command, F_GETLK | F_OFD_GETLK) {
        if kind == F_UNLCK {
            return Err(Errno::EINVAL);
        }
        match locks::conflict(open.inode.number, &wanted) {
            None => raw[0] = raw[0] & !0xffff | u64::from(F_UNLCK),
            Some(lock) => {
                let len = if lock.range.end == u64::MAX { 0 } else { lock.range.end - lock.range.start };
                let pid = if let Owner::Process(pid) = lock.owner { pid } else { u32::MAX };
                let kind = if lock.exclusive { F_WRLCK } else { F_RDLCK };
                raw = [
                    raw[0] & !0xffff_ffff | u64::from(kind),
                    lock.range.start,
                    len,
                    raw[3] & !0xffff_ffff | u64::from(pid),
                ];
            }
        }
        return mm::put(call.space(), call.args[2], &raw).map(|()| 0);
    }
    if kind == F_RDLCK && !open.may_read() || kind == F_WRLCK && !open.may_write() {
        return Err(Errno::EBADF);
    }
    take(call, open, &wanted, kind != F_UNLCK, matches!(command, F_SETLKW | F_OFD_SETLKW))
}

fn take(call: &Call, open: &Open, wanted: &Request, takes: bool, waits: bool) -> errno::Result {
    if matches!(wanted.owner, Owner::Open(_)) {
        open.note_lock();
    }
    let number = open.inode.number;
    if !waits {
        return locks::set(number, wanted, takes).map(|()| 0);
    }
    let set = || match locks::set(number, wanted, takes) {
        Err(Errno::EAGAIN) => None,
        other => Some(other),
    };
    let done = bell::wait(|| call.thread.is_interrupted(), None, |places| places.add(locks::bell()), set)?;
    done.unwrap_or(Err(Errno::EAGAIN)).map(|()| 0)
}

/// flock(2).
pub fn flock(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    let operation = call.int(1) & !LOCK_NB;
    if !matches!(operation, LOCK_SH | LOCK_EX | LOCK_UN) {
        return Err(Errno::EINVAL);
    }
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    let wanted = Request {
        family: Family::Whole,
        owner: owner_of_open(&open),
        range: 0..u64::MAX,
        exclusive: operation == LOCK_EX,
    };
    take(call, &open, &wanted, operation != LOCK_UN, call.int(1) & LOCK_NB == 0)
}
