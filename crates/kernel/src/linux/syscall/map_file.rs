//! mmap(2) of what is open. Files are mapped as their objects, shared or private.

use super::call::{Call, to_errno};
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::linux::fs::content::Writer;
use crate::linux::fs::seals::Seals;
use crate::port::mm::{self, USER_END};
use softfault::{MapFlags, MapType, ObjectPart, Prot};

const PAGE_BYTES: u64 = 4096;
/// With MAP_HUGETLB: the binary logarithm of the size.
const SIZE_SHIFT: u32 = 26;
/// The flags that MAP_SHARED_VALIDATE accepts: all older ones.
const VALID: MapFlags = MapFlags::SHARED_VALIDATE
    .union(MapFlags::ANONYMOUS)
    .union(MapFlags::FIXED)
    .union(MapFlags::HUGETLB)
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

/// The flags of a mapping of huge pages without a name, with their size. For Linux they are those of a file: so it knows
/// MAP_SHARED_VALIDATE, and asks for the flags last.
pub fn of_huge(addr: u64, len: u64, flags: MapFlags) -> errno::Result<MapFlags> {
    let log = (flags.to_linux() >> SIZE_SHIFT & 0x3f) as u32;
    let order = mm::huge_order(log).ok_or(Errno::EINVAL)?;
    checked_len(addr, len, flags, order.nr_pages() * PAGE_BYTES)?;
    Ok(known(flags)? | MapFlags::from_linux((u64::from(order.0) + 12) << SIZE_SHIFT))
}

/// The length in bytes, of whole pages if they are huge. Length and place are checked before all else, in Linux's order.
fn checked_len(addr: u64, len: u64, flags: MapFlags, page_bytes: u64) -> errno::Result<u64> {
    let is_huge = page_bytes > PAGE_BYTES;
    // As many as are touched. As on Linux, a length that is too large for that becomes 0.
    let len = if is_huge { len.checked_next_multiple_of(page_bytes).unwrap_or(0) } else { len };
    let is_fixed = flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE);
    match () {
        () if len == 0 => Err(Errno::EINVAL),
        () if len > USER_END => Err(Errno::ENOMEM),
        () if is_fixed && is_huge && !addr.is_multiple_of(page_bytes) => Err(Errno::EINVAL),
        () if is_fixed && addr > USER_END - len => Err(Errno::ENOMEM),
        () if is_fixed && !addr.is_multiple_of(PAGE_BYTES) => Err(Errno::EINVAL),
        () => Ok(len),
    }
}

/// The flags of a mapping of a file: MAP_SHARED_VALIDATE is MAP_SHARED, if all of them are known.
fn known(flags: MapFlags) -> errno::Result<MapFlags> {
    match flags.map_type() {
        MapType::SharedValidate if !VALID.contains(flags) => Err(Errno::EOPNOTSUPP),
        MapType::SharedValidate => Ok((flags - MapFlags::TYPE) | MapFlags::SHARED),
        _ => Ok(flags),
    }
}

/// The mapping that the call asks for, of `open`.
pub fn map(call: &Call, open: &Open, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    let huge = matches!(open.kind, Kind::File).then(|| open.inode.content()).transpose()?;
    let huge = huge.filter(|content| content.huge_order().is_some());
    if flags.contains(MapFlags::HUGETLB) && huge.is_none() {
        return Err(Errno::EINVAL);
    }
    let page_bytes = huge.map_or(PAGE_BYTES, |content| content.page_bytes());
    let len = checked_len(addr, len, flags, page_bytes)?;
    // Offsets of devices have no sign.
    let most = if matches!(open.kind, Kind::Zero) { u64::MAX } else { i64::MAX as u64 };
    if (offset_bytes >> 12) + len.div_ceil(PAGE_BYTES) > most >> 12 {
        return Err(Errno::EOVERFLOW);
    }
    let flags = known(flags)?;
    let is_shared = match flags.map_type() {
        MapType::Shared => true,
        MapType::Private => false,
        _ => return Err(Errno::EINVAL),
    };
    if !open.may_read() || is_shared && prot.contains(Prot::WRITE) && !open.may_write() {
        return Err(Errno::EACCES);
    }
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
    let part = part.with_grows(grows(open, asked, &writer)?);
    to_errno!(call.space().mmap_object(addr, len, prot, flags, part))
}

/// The file itself, until the program writes to a page. No seal forbids that.
fn map_private(call: &Call, open: &Open, asked: &Asked) -> errno::Result {
    let &Asked { addr, len, prot, flags, offset_bytes } = asked;
    let object = open.object()?;
    let part = ObjectPart::new(&object).with_offset_bytes(offset_bytes);
    let content = open.inode.content()?;
    let writer = content.huge_order().map(|_| content.writer());
    let grows = writer.as_ref().map_or(Ok(false), |writer| grows(open, asked, writer))?;
    to_errno!(call.space().mmap_object(addr, len, prot, flags, part.with_grows(grows)))
}

/// Whether the file becomes as large as the mapping reaches: as hugetlbfs does for mappings that may be written. A seal keeps the
/// size as it is.
fn grows(open: &Open, asked: &Asked, writer: &Writer<'_>) -> errno::Result<bool> {
    let content = open.inode.content()?;
    let is_huge = content.huge_order().is_some() && asked.prot.contains(Prot::WRITE);
    Ok(is_huge && !writer.seals().contains(Seals::GROW))
}
