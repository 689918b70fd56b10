//! Calls, stores and looks that have to give what is known, and the stamps that pages carry.

use super::{CHUNK_PAGES, text_of};
use crate::op::{Call, Op, PAGE};
use softfault::table::format::Format;
use softfault::{Advice, FaultError, MapFlags, MremapFlags, Prot};
use softfault_host::Running;

/// Result of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    Done,
    /// The memory of the page has failed.
    Failed,
}

/// Offsets of the stamp in its page: a partial copy shows.
pub(super) const PLACES: [u64; 2] = [0, 4088];

/// `space` 63:56 | program 55:44 | place in the chunk 43:36 | number 35:0
pub(super) fn stamp(tag: u64, child: u64, place: u64, number: u64) -> u64 {
    tag << 56 | (child & 0xfff) << 44 | place << 36 | number & 0xf_ffff_ffff
}

/// Whether a root space may see it there.
pub(super) fn is_stamp(seen: u64, tag: u64, place: u64) -> bool {
    seen >> 36 == tag << 20 | place
}

pub(super) fn stamp_of_child(tag: u64, child: u64, addr: u64, number: u64) -> u64 {
    stamp(tag, child, addr / PAGE % CHUNK_PAGES, number)
}

/// A call that has to succeed with `value`.
pub(super) fn call<F: Format>(running: &Running<'_, F>, call: Call, args: &[u64], value: u64) -> Result<(), String> {
    let space = running.space();
    let [a, b, c, d, e, ..] = Op::new(0, call, args).args;
    let done = match call {
        Call::Mmap => space.mmap(a, b, Prot::from_linux(c), MapFlags::from_linux(d)).map_err(|e| e.to_string()),
        Call::Mremap => space.mremap(a, b, c, MremapFlags::from_linux(d), e).map_err(|e| e.to_string()),
        Call::Munmap => space.munmap(a, b).map(|()| 0).map_err(|e| e.to_string()),
        Call::Mprotect => space.mprotect(a, b, Prot::from_linux(c)).map(|()| 0).map_err(|e| e.to_string()),
        _ => match Advice::from_linux(c) {
            Ok(advice) => space.madvise(a, b, advice).map(|()| 0).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        },
    };
    match done {
        Ok(seen) if seen == value => Ok(()),
        other => Err(format!("{} gave {other:x?}", text_of(call, args))),
    }
}

pub(super) fn expect<F: Format>(running: &Running<'_, F>, addr: u64, value: u64) -> Result<Touch, String> {
    for place in PLACES {
        match running.read_u64(addr + place) {
            Ok(seen) if seen == value => {}
            Err(trap) if trap.cause == FaultError::Poisoned => return Ok(Touch::Failed),
            Ok(seen) => return Err(format!("{:#x} should show {value:#x} and shows {seen:#x}", addr + place)),
            Err(trap) => return Err(format!("a page with {value:#x}: {trap}")),
        }
    }
    Ok(Touch::Done)
}

pub(super) fn write<F: Format>(running: &Running<'_, F>, addr: u64, value: u64) -> Result<Touch, String> {
    for place in PLACES {
        match running.write_u64(addr + place, value) {
            Ok(()) => {}
            Err(trap) if trap.cause == FaultError::Poisoned => return Ok(Touch::Failed),
            Err(trap) => return Err(trap.to_string()),
        }
    }
    Ok(Touch::Done)
}

pub(super) fn refused<T>(seen: Result<T, FaultError>, as_this: FaultError, addr: u64) -> Result<(), String> {
    match seen {
        Err(cause) if cause == as_this => Ok(()),
        Err(cause) => Err(format!("{addr:#x} should be refused as {as_this:?} and is as {cause:?}")),
        Ok(_) => Err(format!("{addr:#x} should be refused as {as_this:?} and is not")),
    }
}
