//! mmap(2) of what is open. Files are mapped as their objects, shared or private.

use super::call::{Call, to_errno};
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::linux::fs::content::Writer;
use crate::linux::fs::seals::Seals;
use crate::port::mm::{self, USER_END};
use softfault::{MapFlags, MapType, ObjectPart, Prot};

const PAGE_BYTES: u64 = 4096;
/// The flags that MAP_SHARED_VALIDATE accepts: all older ones.
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
    let huge = matches!(open.kind, Kind::File).then(|| open.inode.content()).transpose()?;
    let huge = huge.filter(|content| content.huge_order().is_some());
    // Of a file of huge pages as many as are touched. As on Linux, a length that is too large for that becomes 0.
    let len = huge.map_or(Some(len), |content| len.checked_next_multiple_of(content.page_bytes())).unwrap_or(0);
    if flags.contains(MapFlags::HUGETLB) && huge.is_none() || len == 0 {
        return Err(Errno::EINVAL);
    }
    if len > USER_END {
        return Err(Errno::ENOMEM);
    }
    // Offsets of devices have no sign.
    let most = if matches!(open.kind, Kind::Zero) { u64::MAX } else { i64::MAX as u64 };
    if (offset_bytes >> 12) + len.div_ceil(PAGE_BYTES) > most >> 12 {
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
    // Of a file of huge pages the flag says nothing more.
    let flags = flags - MapFlags::HUGETLB;
    let asked = &Asked { flags, len, ..*asked };
    match open.kind {
        Kind::Zero | Kind::File if flags.contains(MapFlags::GROWSDOWN) => Err(Errno::EINVAL),
        Kind::Zero if is_shared && !open.may_write() => {
            let object = mm::new_object(len.next_multiple_of(PAGE_BYTES))?;
            let part = ObjectPart::new(&object).with_may_write(false);
            to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
        }
        Kind::Zero if is_shared => to_errno!(call.space().mmap(addr, len, prot, flags | MapFlags::ANONYMOUS)),
        Kind::Zero => to_errno!(call.space().mmap_zero(addr, len, prot, flags, offset_bytes)),
        Kind::File if is_shared => map_shared(call, open, asked),
        Kind::File => map_private(call, open, asked),
        // A file without a name is on no file system that programs are run from.
        Kind::Pipe { .. } | Kind::Event(_) | Kind::Epoll(_) | Kind::Process(_) if prot.contains(Prot::EXEC) => {
            Err(Errno::EPERM)
        }
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
    grow_and_map(&object, end_of(open, asked, &writer)?, || {
        to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
    })
}

/// The file itself, until the program writes to a page. No seal forbids that.
fn map_private(call: &Call, open: &Open, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    let object = open.object()?;
    let part = ObjectPart::new(&object).with_offset_bytes(offset_bytes);
    let map = || to_errno!(call.space().mmap_object(addr, len, prot, flags, part));
    if open.inode.content()?.huge_order().is_none() {
        return map();
    }
    let writer = open.inode.content()?.writer();
    grow_and_map(&object, end_of(open, asked, &writer)?, map)
}

/// How large the file has to be for the mapping: as hugetlbfs has it, and 0 elsewhere. A seal keeps the size as it is.
fn end_of(open: &Open, asked: &Asked, writer: &Writer<'_>) -> errno::Result<u64> {
    let content = open.inode.content()?;
    let grows = content.huge_order().is_some() && asked.prot.contains(Prot::WRITE);
    let fits = asked.offset_bytes.is_multiple_of(content.page_bytes()) && !writer.seals().contains(Seals::GROW);
    Ok(if grows && fits { asked.offset_bytes + asked.len } else { 0 })
}

/// The mapping that `map` makes, of a file that becomes `end` bytes large with it, if it is smaller: as hugetlbfs does
/// for mappings that may be written. The caller is the file's writer.
fn grow_and_map(object: &mm::Object, end: u64, map: impl FnOnce() -> errno::Result) -> errno::Result {
    let before = object.size_bytes();
    if end > before {
        object.set_size_bytes(end);
    }
    map().inspect_err(|_| {
        if end > before {
            object.set_size_bytes(before);
        }
    })
}
