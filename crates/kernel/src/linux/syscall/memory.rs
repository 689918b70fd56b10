//! Calls about memory: the arguments go to the subsystem, converted once, its errors to the
//! program. Mappings of files are in `map_file`, locks in `lock`, memory policy
//! in `numa`, segments of System V in `shm`.

use super::call::{Call, to_errno};
use super::map_file::{self, Asked};
use crate::linux::errno::{self, Errno};
use crate::linux::process::Mm;
use crate::linux::shm;
use crate::port::mm;
use linux_raw_sys::general::RLIMIT_DATA;
use softfault::{Advice, MapFlags, MremapFlags, MsyncFlags, Prot};

pub fn mmap(call: &mut Call) -> errno::Result {
    let [addr, len, prot, flags, file, offset] = call.args;
    if !offset.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let (prot, flags) = (Prot::from_linux(prot), MapFlags::from_linux(flags));
    let at = if flags.contains(MapFlags::ANONYMOUS) {
        let flags = if flags.contains(MapFlags::HUGETLB) { map_file::of_huge(addr, len, flags)? } else { flags };
        to_errno!(call.space().mmap(addr, len, prot, flags))
    } else {
        let open = call.process.files.lock().get(file as u32)?;
        map_file::map(call, &open, &Asked { addr, len, prot, flags, offset_bytes: offset })
    };
    // It may have taken the place of something, also if it was refused in the end.
    shm::sweep();
    at
}

/// The largest resident size (ru_maxrss) is known only if somebody looks before
/// pages go; what is small makes no difference to it.
fn note_peak(mm: &Mm, bytes: u64) {
    const LEAST_BYTES: u64 = 1 << 20;
    if bytes >= LEAST_BYTES {
        mm.note_resident();
    }
}

pub fn munmap(call: &mut Call) -> errno::Result {
    note_peak(call.thread.mm(), call.args[1]);
    to_errno!(call.space().munmap(call.args[0], call.args[1]))?;
    shm::sweep();
    Ok(0)
}

pub fn mprotect(call: &mut Call) -> errno::Result {
    let [addr, len, prot, ..] = call.args;
    to_errno!(call.space().mprotect(addr, len, Prot::from_linux(prot))).map(|()| 0)
}

pub fn mremap(call: &mut Call) -> errno::Result {
    let [old, old_len, new_len, flags, new, _] = call.args;
    let at = to_errno!(call.space().mremap(old, old_len, new_len, MremapFlags::from_linux(flags), new));
    shm::sweep();
    at
}

pub fn brk(call: &mut Call) -> errno::Result {
    // The subsystem's limit takes 0 as mmap(2) does, for which it is none.
    let no_data = call.process.limits.lock().now(RLIMIT_DATA) == 0;
    Ok(call.space().brk(if no_data { 0 } else { call.args[0] }))
}

pub fn madvise(call: &mut Call) -> errno::Result {
    let [addr, len, advice, ..] = call.args;
    advise(call.thread.mm(), addr, len, advice).map(|()| 0)
}

/// madvise(2) in memory that may be another process's.
pub fn advise(mm: &Mm, addr: u64, len: u64, advice: u64) -> errno::Result<()> {
    note_peak(mm, len);
    let advice = to_errno!(Advice::from_linux(advice))?;
    to_errno!(mm.space.madvise(addr, len, advice))
}

/// Answers in chunks, so that no more than a chunk has to be kept.
pub fn mincore(call: &mut Call) -> errno::Result {
    const CHUNK_PAGES: u64 = 512;
    let [addr, len, out, ..] = call.args;
    let nr_pages = len.div_ceil(4096);
    let mut done = 0;
    loop {
        let part = (nr_pages - done).min(CHUNK_PAGES);
        let mut answers = [0u8; CHUNK_PAGES as usize];
        let mut nr = 0;
        let start = addr.checked_add(done * 4096).ok_or(Errno::ENOMEM)?;
        let asked = to_errno!(call.space().mincore(start, part * 4096, &mut |nr_run, resident| {
            let end = (nr + nr_run as usize).min(answers.len());
            answers[nr..end].fill(u8::from(resident));
            nr = end;
        }));
        // The answers before a hole are given.
        mm::copy_out(call.space(), out.wrapping_add(done), &answers[..nr])?;
        asked?;
        done += part;
        if done >= nr_pages {
            return Ok(0);
        }
    }
}

/// The pages of `addr..addr + len`, for calls that take part of a page for all of
/// it: first and last address, or EINVAL where it would wrap.
pub fn whole_pages(addr: u64, len: u64) -> errno::Result<(u64, u64)> {
    let start = addr & !0xfff;
    let len = len.wrapping_add(addr - start).wrapping_add(0xfff) & !0xfff;
    Ok((start, start.checked_add(len).ok_or(Errno::EINVAL)?))
}

pub fn msync(call: &mut Call) -> errno::Result {
    let [addr, len, flags, ..] = call.args;
    to_errno!(call.space().msync(addr, len, MsyncFlags::from_linux(flags)))?;
    Ok(0)
}

/// Mappings that are not in order do not exist here.
pub fn remap_file_pages(_: &mut Call) -> errno::Result {
    Err(Errno::EINVAL)
}

/// As on a processor without protection keys.
pub fn pkey_alloc(call: &mut Call) -> errno::Result {
    if call.args[0] != 0 || call.args[1] & !3 != 0 { Err(Errno::EINVAL) } else { Err(Errno::ENOSPC) }
}

pub fn pkey_free(_: &mut Call) -> errno::Result {
    Err(Errno::EINVAL)
}

/// mprotect(2) with the key -1, which every page has; there is no other.
pub fn pkey_mprotect(call: &mut Call) -> errno::Result {
    if call.int(3) as i32 == -1 { mprotect(call) } else { Err(Errno::EINVAL) }
}
