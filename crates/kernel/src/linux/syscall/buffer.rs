//! Memory that bytes come from or go to: the program's in one or several parts, or the kernel's own. Copies say how many bytes they
//! moved: a program's memory may end in the middle.

use crate::linux::errno::{self, Errno};
use crate::port::mm::{self, Space};

/// Bytes that are moved at a time.
pub const PAGE_BYTES: u64 = 4096;

/// Memory that bytes come from or go to, used up from its beginning.
pub enum Memory<'a> {
    /// The program's: parts with address and size.
    Program { space: &'a Space, parts: &'a [[u64; 2]], done: u64 },
    /// The kernel's, to be read.
    Source(&'a [u8]),
    /// The kernel's, to be filled.
    Target(&'a mut [u8]),
}

impl<'a> Memory<'a> {
    /// Parts of the program's memory.
    pub fn of_program(space: &'a Space, parts: &'a [[u64; 2]]) -> Memory<'a> {
        Memory::Program { space, parts, done: 0 }
    }
    /// Remaining bytes.
    pub fn left(&self) -> u64 {
        match self {
            Memory::Program { parts, done, .. } => parts.iter().map(|p| p[1]).sum::<u64>() - done,
            Memory::Source(bytes) => bytes.len() as u64,
            Memory::Target(bytes) => bytes.len() as u64,
        }
    }
    /// Whether it is an empty list.
    pub fn has_no_parts(&self) -> bool {
        matches!(self, Memory::Program { parts: [], .. })
    }
    /// Does `f` with the pieces that `nr` bytes lie in: address, where in the
    /// transfer, how many; it says how many bytes it has moved. Ends at a piece of which those are not all. All that were moved; an
    /// error if that is none.
    fn pieces(
        parts: &mut &[[u64; 2]],
        done: &mut u64,
        nr: usize,
        mut f: impl FnMut(u64, usize, usize) -> errno::Result<usize>,
    ) -> errno::Result<usize> {
        let mut moved = 0;
        while moved < nr {
            let Some([addr, len]) = parts.first().copied() else { break };
            let piece = (len - *done).min((nr - moved) as u64) as usize;
            let some = match f(addr.wrapping_add(*done), moved, piece) {
                Err(errno) if moved == 0 => return Err(errno),
                some => some.unwrap_or(0),
            };
            moved += some;
            *done += some as u64;
            if *done == len {
                (*parts, *done) = (&parts[1..], 0);
            }
            if some < piece {
                break;
            }
        }
        Ok(moved)
    }
    /// Whether the program has the next bytes, up to `nr`. It may unmap them afterwards.
    pub fn check(&self, nr: usize) -> errno::Result<()> {
        let Memory::Program { space, mut parts, mut done } = *self else { return Ok(()) };
        let seen = Memory::pieces(&mut parts, &mut done, nr, |addr, _, nr| {
            let in_page = nr.min((PAGE_BYTES - addr % PAGE_BYTES) as usize);
            let pages = (in_page..nr).step_by(PAGE_BYTES as usize);
            let firsts = core::iter::once(0).chain(pages);
            firsts
                .map(|at| mm::get::<u8>(space, addr.wrapping_add(at as u64)))
                .find_map(Result::err)
                .map_or(Ok(nr), Err)
        });
        if seen? < nr { Err(Errno::EFAULT) } else { Ok(()) }
    }
    /// Takes all of `into` out; EFAULT if there is less.
    pub fn take_all(&mut self, into: &mut [u8]) -> errno::Result<()> {
        if self.take(into)? < into.len() { Err(Errno::EFAULT) } else { Ok(()) }
    }
    /// Puts all of `from` in; EFAULT if there is no room for it.
    pub fn put_all(&mut self, from: &[u8]) -> errno::Result<()> {
        if self.put(from)? < from.len() { Err(Errno::EFAULT) } else { Ok(()) }
    }
    /// Takes the next bytes out, as far as the program has them; how many. An error if that is none.
    pub fn take(&mut self, into: &mut [u8]) -> errno::Result<usize> {
        match self {
            Memory::Program { space, parts, done } => Memory::pieces(parts, done, into.len(), |addr, at, nr| {
                mm::copy_in_some(space, addr, &mut into[at..at + nr])
            }),
            Memory::Source(bytes) => {
                let (first, rest) = bytes.split_at(into.len());
                into.copy_from_slice(first);
                *bytes = rest;
                Ok(into.len())
            }
            Memory::Target(_) => Err(Errno::EFAULT),
        }
    }
    /// Puts bytes in, as far as the program has memory for them; how many. An error if that is none.
    pub fn put(&mut self, from: &[u8]) -> errno::Result<usize> {
        match self {
            Memory::Program { space, parts, done } => Memory::pieces(parts, done, from.len(), |addr, at, nr| {
                mm::copy_out_some(space, addr, &from[at..at + nr])
            }),
            Memory::Target(bytes) => {
                let (first, rest) = core::mem::take(bytes).split_at_mut(from.len());
                first.copy_from_slice(from);
                *bytes = rest;
                Ok(from.len())
            }
            Memory::Source(_) => Err(Errno::EFAULT),
        }
    }
}

/// How a transfer ends that met an error: as done, if something was.
pub fn settle(done: u64, result: errno::Result<()>) -> errno::Result {
    match result {
        Err(errno) if done == 0 => Err(errno),
        _ => Ok(done),
    }
}
