//! The bytes of fills and writes that the embedder has, without `unsafe`.
//!
//! A fill owns its frames, and a write holds them, until it comes back (I52, I56). Both are made by one `Vm` and know its
//! number, which no other `Vm` of the process has or will have. So the number decides whether the frames are frames of
//! this `Vm`'s machine, and that of a `Vm` that has ended fits none (I63).
//!
//! Locks on entry: none, no section.

use crate::addr::{PAGE_SIZE, Pfn};
use crate::errno::op_error;
use crate::machine::{FileFill, FileWrite, Machine};
use crate::pace::Pace;
use crate::program;
use crate::space::Vm;
use core::ops::Range;

op_error! {
    /// Why bytes of a fill or a write are neither read nor written. Nothing has changed.
    BytesRefused {
        OtherVm: EXDEV = "it belongs to another Vm, or to one that has ended",
        Beyond: EINVAL = "the bytes go beyond its length",
    }
}

impl<M: Machine> Vm<M> {
    /// Writes bytes into the frames of a fill that the embedder has ([kept](crate::Filling::UnderWay), or of an
    /// [install](crate::SharedObject::begin_install)), from byte `offset` on, up to its
    /// [length](FileFill::len_bytes). Not in a callback of the machine.
    ///
    /// # Errors
    ///
    /// [`BytesRefused`]; nothing was written.
    pub fn write_fill(&self, fill: &mut FileFill, offset: u64, bytes: &[u8]) -> Result<(), BytesRefused> {
        self.check_number(fill.vm)?;
        self.call();
        let range = bytes_within(offset, bytes.len(), fill.len_bytes)?;
        self.each_frame(fill.first_frame, range, |pfn, at, part| program::write(&self.machine, pfn, at, &bytes[part]));
        Ok(())
    }

    /// Reads bytes from the frames of a fill that the embedder has, of a page that is [taken out](crate::SharedObject::begin_evict) as a rule, from
    /// byte `offset` on, up to the end of the frames. Not in a callback of the machine.
    ///
    /// # Errors
    ///
    /// [`BytesRefused`]; `into` is as it was.
    pub fn read_fill(&self, fill: &FileFill, offset: u64, into: &mut [u8]) -> Result<(), BytesRefused> {
        self.check_number(fill.vm)?;
        self.call();
        let range = bytes_within(offset, into.len(), fill.nr_frames() * PAGE_SIZE)?;
        self.each_frame(fill.first_frame, range, |pfn, at, part| {
            program::read(&self.machine, pfn, at, &mut into[part])
        });
        Ok(())
    }

    /// Reads bytes of a write that was [kept](crate::Writing::UnderWay), from byte `offset` on, up to its
    /// [length](FileWrite::len_bytes), as they are now: any of those that programs have stored since it began may be among
    /// them. Not in a callback of the machine.
    ///
    /// # Errors
    ///
    /// [`BytesRefused`]; `into` is as it was.
    pub fn read_write(&self, write: &FileWrite, offset: u64, into: &mut [u8]) -> Result<(), BytesRefused> {
        self.check_number(write.vm)?;
        self.call();
        let range = bytes_within(offset, into.len(), write.len_bytes)?;
        self.each_frame(write.first_frame, range, |pfn, at, part| {
            program::read(&self.machine, pfn, at, &mut into[part])
        });
        Ok(())
    }

    fn check_number(&self, number: u64) -> Result<(), BytesRefused> {
        if number == self.number { Ok(()) } else { Err(BytesRefused::OtherVm) }
    }

    /// Calls `copy(frame, offset in it, bytes of the caller)` for each frame of adjacent ones.
    fn each_frame(&self, first: Pfn, bytes: Range<u64>, mut copy: impl FnMut(Pfn, usize, Range<usize>)) {
        let mut pace = Pace::new(&self.machine);
        let mut at = bytes.start;
        while at < bytes.end {
            let end = (at - at % PAGE_SIZE + PAGE_SIZE).min(bytes.end);
            let part = (at - bytes.start) as usize..(end - bytes.start) as usize;
            copy(Pfn(first.0 + (at / PAGE_SIZE) as u32), (at % PAGE_SIZE) as usize, part);
            pace.page();
            at = end;
        }
    }
}

/// The bytes from `offset` on, if they end at `most` or before.
fn bytes_within(offset: u64, nr_bytes: usize, most: u64) -> Result<Range<u64>, BytesRefused> {
    let end = offset.checked_add(nr_bytes as u64).filter(|end| *end <= most);
    end.map(|end| offset..end).ok_or(BytesRefused::Beyond)
}
