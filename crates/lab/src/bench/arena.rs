//! The hosted machine that an experiment's rows share, and the state of its frames.

use crate::error::LabError;
use clap::ValueEnum;
use softfault::clear::{ClearTable, Scratch, calibrate};
use softfault::machine::{CpuId, Machine};
use softfault_host::Hosted;

/// Bytes in a page of both systems.
pub const PAGE_BYTES: u64 = 4096;
/// In which state frames are when a repetition starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Frames {
    /// Dirty: each has to be zeroed inside the timed part
    Fresh,
    /// Known to be zero: the software alone
    Zeroed,
    /// Known to be zero, and scattered: the software alone, after a long day
    Aged,
}

/// Of 64 frames, how many are free in memory that has aged.
pub const AGED_FREE_OF_64: u32 = 8;

impl Frames {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Frames::Fresh => "fresh",
            Frames::Zeroed => "zeroed",
            Frames::Aged => "aged",
        }
    }
    /// Whether all frames are zero.
    pub fn are_zero(self) -> bool {
        self != Frames::Fresh
    }
}

/// The first word of a dirty frame.
const MARK: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// One warm machine, which serves the `Vm`s of all rows one after the other.
pub struct Arena(Option<Hosted>);

impl Arena {
    /// With this machine.
    pub fn of(hosted: Hosted) -> Arena {
        Arena(Some(hosted))
    }
    /// The machine, between two `Vm`s.
    ///
    /// # Panics
    ///
    /// After a measurement that failed: there is no next one.
    pub fn hosted(&self) -> &Hosted {
        self.0.as_ref().expect("the run ends with the first measurement that fails")
    }
    /// The same, to be changed.
    ///
    /// # Panics
    ///
    /// As [`hosted`](Arena::hosted).
    pub fn hosted_mut(&mut self) -> &mut Hosted {
        self.0.as_mut().expect("the run ends with the first measurement that fails")
    }
    /// Takes it, to make a `Vm` of.
    ///
    /// # Panics
    ///
    /// As [`hosted`](Arena::hosted).
    pub fn take(&mut self) -> Hosted {
        self.0.take().expect("the run ends with the first measurement that fails")
    }
    /// Puts back what a `Vm` was made of.
    pub fn put(&mut self, hosted: Hosted) {
        self.0 = Some(hosted);
    }
}

/// The calling thread becomes that CPU.
pub fn bind(hosted: &Hosted, cpu: usize) -> Result<softfault_host::CpuGuard<'_>, LabError> {
    hosted.bind(CpuId(cpu as u16)).map_err(|e| LabError::subsystem(format!("binding CPU {cpu}"), e))
}

/// Makes true what the row claims: a mark in every frame, or zeroes in all of them.
pub fn prepare_frames(hosted: &mut Hosted, frames: Frames) {
    match frames {
        Frames::Zeroed | Frames::Aged => hosted.zero(),
        Frames::Fresh => hosted.soil(MARK),
    }
}

/// Brings the whole arena near: memory that a virtual machine touches for the
/// first time ever costs several microseconds a page.
pub fn warm(hosted: &mut Hosted) {
    prepare_frames(hosted, Frames::Zeroed);
}

/// In which order large pages are best cleared in this arena.
pub fn calibrated(hosted: &mut Hosted) -> ClearTable {
    let range = hosted.frames()[0];
    calibrate(&mut Scratch::new(hosted, range).expect("frames of the machine"))
}
