//! Calls about memory: the raw arguments go to the subsystem, its errors to the
//! program. What needs a file has none here.

use super::Call;
use crate::errno::{self, Errno};
use crate::file::Kind;
use crate::mm;
use linux_raw_sys::general::MAP_ANONYMOUS;

/// An error of the subsystem as the program sees it.
macro_rules! to_errno {
    ($result:expr) => {
        $result.map_err(|error| Errno(error.errno().0 as u16))
    };
}

pub fn mmap(call: &mut Call) -> errno::Result {
    let [addr, len, prot, mut flags, file, _] = call.args;
    if flags & u64::from(MAP_ANONYMOUS) == 0 {
        let open = call.process.files.lock().get(file as u32)?;
        // A mapping of /dev/zero is anonymous memory; there are no others.
        match open.kind {
            Kind::Zero => flags |= u64::from(MAP_ANONYMOUS),
            _ => return Err(Errno::ENODEV),
        }
    }
    to_errno!(call.space().mmap(addr, len, prot, flags))
}

pub fn munmap(call: &mut Call) -> errno::Result {
    to_errno!(call.space().munmap(call.args[0], call.args[1])).map(|()| 0)
}

pub fn mprotect(call: &mut Call) -> errno::Result {
    to_errno!(call.space().mprotect(call.args[0], call.args[1], call.args[2])).map(|()| 0)
}

pub fn mremap(call: &mut Call) -> errno::Result {
    let [old, old_len, new_len, flags, new, _] = call.args;
    to_errno!(call.space().mremap(old, old_len, new_len, flags, new))
}

pub fn brk(call: &mut Call) -> errno::Result {
    Ok(call.space().brk(call.args[0]))
}

pub fn madvise(call: &mut Call) -> errno::Result {
    let [addr, len, advice, ..] = call.args;
    to_errno!(call.space().madvise(addr, len, u64::from(advice as u32))).map(|()| 0)
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
        to_errno!(call.space().mincore(start, part * 4096, &mut |resident| {
            if let Some(slot) = answers.get_mut(nr) {
                *slot = u8::from(resident);
            }
            nr += 1;
        }))?;
        mm::copy_out(call.space(), out.wrapping_add(done), &answers[..part as usize])?;
        done += part;
        if done >= nr_pages {
            return Ok(0);
        }
    }
}
