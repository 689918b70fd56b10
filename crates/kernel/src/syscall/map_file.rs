//! mmap(2) of what is open. Files shared are their object; files private are
//! anonymous memory that is filled at once, since there is no page cache to copy
//! from later: writes to the file after the call are not seen, and what lies
//! behind its end, in whole pages, is zero rather than out of reach.

use super::Call;
use super::memory::to_errno;
use crate::errno::{self, Errno};
use crate::file::{Kind, Open};
use crate::fs::Inode;
use crate::fs::seals::Seals;
use crate::mm::{self, USER_END};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_DENYWRITE, MAP_EXECUTABLE, MAP_FIXED, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK,
    MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED,
    PROT_EXEC, PROT_WRITE,
};
use softfault::ObjectPart;

const PAGE_BYTES: u64 = 4096;
/// Flags that Linux has on x86 alone.
const MAP_32BIT: u32 = 0x40;
const MAP_ABOVE4G: u32 = 0x80;
/// Sizes of huge pages, 2 MiB and 1 GiB.
const MAP_HUGE_SIZES: u32 = (21 | 30) << 26;
/// What MAP_SHARED_VALIDATE knows: all flags of old.
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
    | MAP_UNINITIALIZED
    | MAP_HUGE_SIZES
    | MAP_32BIT
    | MAP_ABOVE4G;

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
        Kind::Zero | Kind::File if low & MAP_GROWSDOWN != 0 => Err(Errno::EINVAL),
        Kind::Zero if is_shared && !open.may_write() => {
            let object = mm::new_object(len.next_multiple_of(PAGE_BYTES))?;
            let part = ObjectPart { object: &object, offset_bytes: 0, may_write: false };
            to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
        }
        Kind::Zero => to_errno!(call.space().mmap(addr, len, prot, flags | u64::from(MAP_ANONYMOUS))),
        Kind::File if is_shared => map_shared(call, open, flags),
        Kind::File => map_copy(call, &open.inode, flags),
        // What has no name is on no file system that programs are run from.
        Kind::Pipe { .. } | Kind::Event(_) | Kind::Epoll(_) if prot & u64::from(PROT_EXEC) != 0 => Err(Errno::EPERM),
        _ => Err(Errno::ENODEV),
    }
}

/// The file itself. Its writers wait, so that nobody seals it between the question and
/// the mapping.
fn map_shared(call: &Call, open: &Open, flags: u64) -> errno::Result {
    let [addr, len, prot, _, _, offset] = call.args;
    let object = open.object()?;
    let writer = open.inode.content()?.writer();
    let is_sealed = writer.seals().intersects(Seals::NO_WRITES);
    if is_sealed && prot & u64::from(PROT_WRITE) != 0 {
        return Err(Errno::EPERM);
    }
    let may_write = open.may_write() && !is_sealed;
    let part = ObjectPart { object: &object, offset_bytes: offset, may_write };
    to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
}

/// Private memory with the file's bytes. Until the call returns another thread
/// may see part of them.
fn map_copy(call: &Call, inode: &Inode, flags: u64) -> errno::Result {
    let [addr, len, prot, _, _, offset] = call.args;
    let at = to_errno!(call.space().mmap_file_copy(addr, len, prot, flags))?;
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
