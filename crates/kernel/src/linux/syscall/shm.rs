//! shmget(2), shmat(2), shmdt(2), shmctl(2), with the rights of sysvipc(7). Of groups only the effective one counts, but for
//! who may have huge pages.

use super::call::{Call, to_errno};
use crate::linux::attached::nr_attached;
use crate::linux::errno::{self, Errno};
use crate::linux::knobs::{HUGETLB_SHM_GROUP, SHMALL, SHMMAX, SHMMNI};
use crate::linux::process::identity::{Capability, Identity};
use crate::linux::shm::{self, Huge, Maker, Meta, Segment};
use crate::port::mailbox;
use crate::port::mm;
use alloc::sync::Arc;
use softfault::{MapFlags, ObjectPart, Prot, VmaFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const IPC_CREAT: u32 = 0o1000;
const IPC_EXCL: u32 = 0o2000;
const SHM_HUGETLB: u32 = 0o4000;
const SHM_NORESERVE: u32 = 0o10000;
/// With `SHM_HUGETLB`: the size.
const SHM_HUGE_SHIFT: u32 = 26;

const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100_000;

/// Rights to a segment that are asked for.
const READ: u32 = 4;
const WRITE: u32 = 2;

const IPC_RMID: u32 = 0;
const IPC_SET: u32 = 1;
const IPC_STAT: u32 = 2;
const IPC_INFO: u32 = 3;
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
const SHM_STAT: u32 = 13;
const SHM_INFO: u32 = 14;
const SHM_STAT_ANY: u32 = 15;

/// `struct ipc_perm`.
#[derive(FromBytes, IntoBytes, Immutable, Default)]
#[repr(C)]
struct Perm {
    key: i32,
    uid: u32,
    gid: u32,
    cuid: u32,
    cgid: u32,
    mode: u32,
    sequence: u16,
    pad: [u16; 3],
    unused: [u64; 2],
}

/// `struct shmid_ds`.
#[derive(FromBytes, IntoBytes, Immutable, Default)]
#[repr(C)]
struct Status {
    perm: Perm,
    size_bytes: u64,
    attached_s: i64,
    detached_s: i64,
    changed_s: i64,
    creator_pid: u32,
    last_pid: u32,
    nr_attached: u64,
    unused: [u64; 2],
}
const _: () = assert!(size_of::<Perm>() == 48 && size_of::<Status>() == 112);

pub fn shmget(call: &mut Call) -> errno::Result {
    let (key, size_bytes, flags) = (call.int(0) as i32, call.args[1], call.int(2));
    loop {
        if let Some(segment) = (key != shm::PRIVATE).then(|| shm::with_key(key)).flatten() {
            if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL {
                return Err(Errno::EEXIST);
            }
            if size_bytes > segment.size_bytes {
                return Err(Errno::EINVAL);
            }
            check_rights(call, &segment, (flags >> 6 | flags >> 3 | flags) & 7)?;
            return Ok(segment.id.into());
        }
        if key != shm::PRIVATE && flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        let who = identity(call);
        let maker = Maker { pid: call.process.pid, owner: [who.users.effective, who.groups.effective] };
        match shm::create(key, size_bytes, flags & 0o777, &maker, huge(call, flags)?) {
            // Somebody else made it meanwhile.
            Err(Errno::EEXIST) => {}
            made => return made.map(|segment| segment.id.into()),
        }
    }
}

/// The huge pages that are asked for.
fn huge(call: &Call, flags: u32) -> errno::Result<Option<Huge>> {
    if flags & SHM_HUGETLB == 0 {
        return Ok(None);
    }
    let order = mm::huge_order(flags >> SHM_HUGE_SHIFT & 0x3f).ok_or(Errno::EINVAL)?;
    let is_allowed = identity(call).has(Capability::IpcLock) || is_in_group(call, HUGETLB_SHM_GROUP.get());
    Ok(Some(Huge { order, is_reserved: flags & SHM_NORESERVE == 0, is_allowed }))
}

/// Whether it is the caller's group, or one of its further ones. None has a number below 0.
fn is_in_group(call: &Call, group: u64) -> bool {
    let Some(group) = u32::try_from(group).ok().filter(|group| (*group as i32) >= 0) else { return false };
    identity(call).groups.fs == group || call.process.kept.lock().groups.ids().binary_search(&group).is_ok()
}

fn segment(call: &Call) -> errno::Result<Arc<Segment>> {
    shm::find(call.int(0)).ok_or(Errno::EINVAL)
}

fn identity(call: &Call) -> Identity {
    *call.process.identity.lock()
}

fn check_rights(call: &Call, segment: &Segment, wanted: u32) -> errno::Result<()> {
    if segment.meta().allows(&identity(call), wanted) { Ok(()) } else { Err(Errno::EACCES) }
}

/// The segment, which the caller may change or remove.
fn own_segment(call: &Call, instead: Capability) -> errno::Result<Arc<Segment>> {
    let (segment, who) = (segment(call)?, identity(call));
    if segment.meta().is_owned(&who) || who.has(instead) { Ok(segment) } else { Err(Errno::EPERM) }
}

/// Where shmat(2) is to map, with the flags of mmap(2) for it.
fn place(addr: u64, flags: u32) -> errno::Result<(u64, MapFlags)> {
    if addr == 0 {
        return if flags & SHM_REMAP != 0 { Err(Errno::EINVAL) } else { Ok((0, MapFlags::SHARED)) };
    }
    let rounded = addr & !0xfff;
    if rounded != addr && flags & SHM_RND == 0 || rounded == 0 && flags & SHM_REMAP != 0 {
        return Err(Errno::EINVAL);
    }
    let fixed = if flags & SHM_REMAP != 0 { MapFlags::FIXED } else { MapFlags::FIXED_NOREPLACE };
    Ok((rounded, MapFlags::SHARED | fixed))
}

pub fn shmat(call: &mut Call) -> errno::Result {
    let (addr, flags) = (call.args[1], call.int(2));
    let segment = segment(call)?;
    let (addr, map_flags) = place(addr, flags)?;
    let may_write = flags & SHM_RDONLY == 0;
    let exec = u32::from(flags & SHM_EXEC != 0);
    check_rights(call, &segment, READ | if may_write { WRITE } else { 0 } | exec)?;
    let mut prot = Prot::READ;
    prot.set(Prot::WRITE, may_write);
    prot.set(Prot::EXEC, flags & SHM_EXEC != 0);
    let part = ObjectPart::new(&segment.object).with_may_write(may_write);
    // A second reservation would be refused where the segment's own is in use, and make one for a segment without.
    let map_flags = if segment.is_huge { map_flags | MapFlags::NORESERVE } else { map_flags };
    let at = to_errno!(call.space().mmap_object(addr, segment.nr_pages() * 4096, prot, map_flags, part));
    // As for mmap(2).
    shm::sweep();
    // Of an address that is taken Linux says no more than that it is wrong.
    let at = at.map_err(|errno| if errno == Errno::EEXIST { Errno::EINVAL } else { errno })?;
    segment.change(|meta| (meta.attached_s, meta.last_pid) = (shm::now_s(), call.process.pid));
    Ok(at)
}

/// Unmaps what is still there of the attachment that began at the address. As on Linux,
/// the first remaining part tells which attachment that is.
pub fn shmdt(call: &mut Call) -> errno::Result {
    let addr = call.args[0];
    if !addr.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let (mut at, mut end, mut found) = (addr, u64::MAX, None);
    while let Some(vma) = call.space().next_vma(at).filter(|vma| vma.range.end.addr() <= end) {
        let start = vma.range.start.addr();
        at = vma.range.end.addr();
        mailbox::poll();
        if start < addr || vma.pgoff * 4096 != start - addr || !vma.flags.contains(VmaFlags::SHARED) {
            continue;
        }
        let Some(segment) = shm::of_object(vma.object) else { continue };
        let segment = &*found.get_or_insert(segment);
        if vma.object == segment.object.id() {
            // The first part goes whole, also where mremap(2) has made it larger than the segment.
            end = addr + segment.nr_pages() * 4096;
            to_errno!(call.space().munmap(start, at - start))?;
        }
    }
    let segment = found.ok_or(Errno::EINVAL)?;
    segment.change(|meta| (meta.detached_s, meta.last_pid) = (shm::now_s(), call.process.pid));
    shm::sweep();
    Ok(0)
}

fn status(segment: &Segment) -> Status {
    let meta = segment.meta();
    let mode = meta.shown_mode();
    let (Meta { uid, gid, creator: [cuid, cgid], .. }, sequence) = (meta, segment.sequence() as u16);
    Status {
        perm: Perm { key: meta.key, uid, gid, cuid, cgid, mode, sequence, ..Perm::default() },
        size_bytes: segment.size_bytes,
        attached_s: meta.attached_s,
        detached_s: meta.detached_s,
        changed_s: meta.changed_s,
        creator_pid: segment.creator_pid,
        last_pid: meta.last_pid,
        nr_attached: nr_attached(segment),
        unused: [0; 2],
    }
}

/// Highest place that is in use, or 0: what calls about the whole table give.
fn highest_index() -> u64 {
    shm::all().last().map_or(0, |segment| segment.index().into())
}

fn limits(call: &Call, buffer: u64) -> errno::Result {
    // shmmax, shmmin, shmmni, shmseg, shmall, and room.
    let words = [SHMMAX.get(), 1, SHMMNI.get(), SHMMNI.get(), SHMALL.get(), 0, 0, 0, 0];
    mm::put(call.space(), buffer, &words)?;
    Ok(highest_index())
}

fn totals(call: &Call, buffer: u64) -> errno::Result {
    let all = shm::all();
    let nr_pages = all.iter().fold(0u64, |nr, s| nr.saturating_add(s.nr_pages()));
    let nr_resident: u64 = all.iter().map(|s| s.object.nr_resident_pages()).sum();
    // used_ids, shm_tot, shm_rss; the rest is about swap, which there is not.
    mm::put(call.space(), buffer, &[all.len() as u64, nr_pages, nr_resident, 0, 0, 0])?;
    Ok(highest_index())
}

pub fn shmctl(call: &mut Call) -> errno::Result {
    let (id, command, buffer) = (call.int(0), call.int(1), call.args[2]);
    if (id as i32) < 0 || (command as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    shm::sweep();
    match command {
        IPC_INFO => limits(call, buffer),
        SHM_INFO => totals(call, buffer),
        IPC_STAT => {
            let segment = segment(call)?;
            check_rights(call, &segment, READ)?;
            mm::put(call.space(), buffer, &status(&segment))?;
            Ok(0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let segment = shm::at_index(id).ok_or(Errno::EINVAL)?;
            if command == SHM_STAT {
                check_rights(call, &segment, READ)?;
            }
            mm::put(call.space(), buffer, &status(&segment))?;
            Ok(segment.id.into())
        }
        IPC_SET => {
            let wanted: Status = mm::get(call.space(), buffer)?;
            own_segment(call, Capability::SysAdmin)?.change(|meta| {
                (meta.uid, meta.gid, meta.mode) = (wanted.perm.uid, wanted.perm.gid, wanted.perm.mode & 0o777);
                meta.changed_s = shm::now_s();
            });
            Ok(0)
        }
        IPC_RMID => {
            shm::doom(&*own_segment(call, Capability::SysAdmin)?);
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => {
            // Nothing is ever swapped out.
            own_segment(call, Capability::IpcLock)?.change(|meta| meta.is_locked = command == SHM_LOCK);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
