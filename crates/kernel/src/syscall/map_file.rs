//! mmap(2) of what is open. Files shared are their object; files private are
//! anonymous memory that is filled at once, since there is no page cache to copy
//! from later: writes to the file after the call are not seen, and what lies
//! behind its end, in whole pages, is zero rather than out of reach.

use super::Call;
use super::memory::to_errno;
use crate::errno::{self, Errno};
use crate::file::{Kind, Open};
use crate::fs::Inode;
use crate::mm::USER_END;
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_DENYWRITE, MAP_EXECUTABLE, MAP_FIXED, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK,
    MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, PROT_WRITE,
};
use softfault::ObjectPart;

const PAGE_BYTES: u64 = 4096;
/// What MAP_SHARED_VALIDATE knows: all flags of old, MAP_32BIT among them.
const VALID: u32 = MAP_SHARED_VALIDATE
    | MAP_FIXED
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | 0x40;

/// The mapping that the call asks for, of `open`.
pub fn map(call: &Call, open: &Open) -> errno::Result {
    let [addr, len, prot, flags, _, offset] = call.args;
    let low = flags as u32;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    if low & MAP_HUGETLB != 0 || len == 0 {
        return Err(Errno::EINVAL);
    }
    if len > USER_END {
        return Err(Errno::ENOMEM);
    }
    if (offset >> 12) + len.div_ceil(PAGE_BYTES) > i64::MAX as u64 >> 12 {
        return Err(Errno::EOVERFLOW);
    }
    let is_shared = match low & MAP_TYPE {
        MAP_SHARED => true,
        MAP_SHARED_VALIDATE if flags & !u64::from(VALID) != 0 => return Err(Errno::EOPNOTSUPP),
        MAP_SHARED_VALIDATE => true,
        MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if !open.may_read() || is_shared && prot & u64::from(PROT_WRITE) != 0 && !open.may_write() {
        return Err(Errno::EACCES);
    }
    let flags = flags & !u64::from(MAP_TYPE) | u64::from(if is_shared { MAP_SHARED } else { MAP_PRIVATE });
    match open.kind {
        Kind::Zero => to_errno!(call.space().mmap(addr, len, prot, flags | u64::from(MAP_ANONYMOUS))),
        Kind::File if low & MAP_GROWSDOWN != 0 => Err(Errno::EINVAL),
        Kind::File if is_shared => {
            let object = open.object()?;
            let part = ObjectPart { object: &object, offset_bytes: offset, may_write: open.may_write() };
            to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
        }
        Kind::File => map_copy(call, &open.inode, flags),
        _ => Err(Errno::ENODEV),
    }
}

/// Private memory with the file's bytes. Until the call returns another thread
/// may see part of them.
fn map_copy(call: &Call, inode: &Inode, flags: u64) -> errno::Result {
    let [addr, len, prot, _, _, offset] = call.args;
    let at = to_errno!(call.space().mmap(addr, len, prot, flags | u64::from(MAP_ANONYMOUS)))?;
    let copied = copy(call, inode, offset, at, len);
    if copied.is_err() {
        let _ = call.space().munmap(at, len);
    }
    copied.map(|()| at)
}

/// Pages of zeroes are left to be touched; where the file has none they are not
/// even looked at.
fn copy(call: &Call, inode: &Inode, offset: u64, at: u64, len: u64) -> errno::Result<()> {
    let object = if inode.archive_bytes().is_some() { None } else { Some(inode.object()?) };
    let end = offset.saturating_add(len.next_multiple_of(PAGE_BYTES)).min(inode.size_bytes()).div_ceil(PAGE_BYTES);
    let mut page = [0; PAGE_BYTES as usize];
    let mut number = offset / PAGE_BYTES;
    while number < end {
        if let Some(object) = &object {
            match object.next_resident(number..end) {
                Some(next) => number = next,
                None => break,
            }
        }
        let nr = inode.read_at(number * PAGE_BYTES, &mut page)?;
        if page[..nr].iter().any(|byte| *byte != 0) {
            let written = call.space().write_forced(at + (number * PAGE_BYTES - offset), &page[..nr]);
            written.map_err(|error| Errno::from(error.errno()))?;
        }
        number += 1;
    }
    Ok(())
}
