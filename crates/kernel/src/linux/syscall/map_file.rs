//! mmap(2) of what is open. Files shared are their object; files private are
//! anonymous memory that is filled at once, since there is no page cache to copy
//! from later: writes to the file after the call are not seen, and what lies
//! behind its end, in whole pages, is zero rather than out of reach.

use super::Call;
use super::memory::to_errno;
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::linux::fs::Inode;
use crate::linux::fs::seals::Seals;
use crate::port::mm::{self, USER_END};
use softfault::{MapFlags, MapType, ObjectPart, Prot};

const PAGE_BYTES: u64 = 4096;
/// What MAP_SHARED_VALIDATE knows: all flags of old.
const VALID: MapFlags = MapFlags::SHARED_VALIDATE
    .union(MapFlags::FIXED)
    .union(MapFlags::DENYWRITE)
    .union(MapFlags::EXECUTABLE)
    .union(MapFlags::GROWSDOWN)
    .union(MapFlags::LOCKED)
    .union(MapFlags::NORESERVE)
    .union(MapFlags::POPULATE)
    .union(MapFlags::NONBLOCK)
    .union(MapFlags::STACK)
    .union(MapFlags::UNINITIALIZED)
    .union(MapFlags::HUGE_2MB)
    .union(MapFlags::HUGE_1GB)
    .union(MapFlags::BITS_32)
    .union(MapFlags::ABOVE4G);

/// The arguments of mmap(2), but for the file.
pub struct Asked {
    pub addr: u64,
    pub len: u64,
    pub prot: Prot,
    pub flags: MapFlags,
    pub offset_bytes: u64,
}

/// The mapping that the call asks for, of `open`.
pub fn map(call: &Call, open: &Open, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    if flags.contains(MapFlags::HUGETLB) || len == 0 {
        return Err(Errno::EINVAL);
    }
    if len > USER_END {
        return Err(Errno::ENOMEM);
    }
    if (offset_bytes >> 12) + len.div_ceil(PAGE_BYTES) > i64::MAX as u64 >> 12 {
        return Err(Errno::EOVERFLOW);
    }
    let is_shared = match flags.map_type() {
        MapType::Shared => true,
        MapType::SharedValidate if !VALID.contains(flags) => return Err(Errno::EOPNOTSUPP),
        MapType::SharedValidate => true,
        MapType::Private => false,
        _ => return Err(Errno::EINVAL),
    };
    if !open.may_read() || is_shared && prot.contains(Prot::WRITE) && !open.may_write() {
        return Err(Errno::EACCES);
    }
    let kind = if is_shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let flags = (flags - MapFlags::TYPE) | kind;
    let asked = &Asked { flags, ..*asked };
    match open.kind {
        Kind::Zero | Kind::File if flags.contains(MapFlags::GROWSDOWN) => Err(Errno::EINVAL),
        Kind::Zero if is_shared && !open.may_write() => {
            let object = mm::new_object(len.next_multiple_of(PAGE_BYTES))?;
            let part = ObjectPart::new(&object).with_may_write(false);
            to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
        }
        Kind::Zero => to_errno!(call.space().mmap(addr, len, prot, flags | MapFlags::ANONYMOUS)),
        Kind::File if is_shared => map_shared(call, open, asked),
        Kind::File => map_copy(call, &open.inode, asked),
        // What has no name is on no file system that programs are run from.
        Kind::Pipe { .. } | Kind::Event(_) | Kind::Epoll(_) if prot.contains(Prot::EXEC) => Err(Errno::EPERM),
        _ => Err(Errno::ENODEV),
    }
}

/// The file itself. Its writers wait, so that nobody seals it between the question and
/// the mapping.
fn map_shared(call: &Call, open: &Open, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    let object = open.object()?;
    let writer = open.inode.content()?.writer();
    let is_sealed = writer.seals().intersects(Seals::NO_WRITES);
    if is_sealed && prot.contains(Prot::WRITE) {
        return Err(Errno::EPERM);
    }
    let may_write = open.may_write() && !is_sealed;
    let part = ObjectPart::new(&object).with_offset_bytes(offset_bytes).with_may_write(may_write);
    to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
}

/// Private memory with the file's bytes. Until the call returns another thread
/// may see part of them.
fn map_copy(call: &Call, inode: &Inode, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    let at = to_errno!(call.space().mmap_file_copy(addr, len, prot, flags))?;
    let copied = copy(call, inode, offset_bytes, at, len);
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
            written.map_err(|error| error.errno())?;
        }
        number += 1;
    }
    Ok(())
}
