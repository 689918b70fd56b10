//! The work that is timed, the load beside it, and the result.

use super::place::Place;
use softfault::clear::ClearOrder;
use std::fmt;

/// The work that is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Clearing a page of ours.
    Clear(ClearOrder),
    /// Copying a page of ours.
    Copy(ClearOrder),
    /// Copying one of its sub-pages.
    CopySubpage,
    /// The host's Linux: the first touch of a huge page.
    Linux,
    /// The host's Linux: a write to a huge page that a child shares.
    LinuxCow,
}

impl Work {
    /// The word in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Work::Clear(how) | Work::Copy(how) => how.name(),
            Work::CopySubpage => "4 KiB",
            Work::Linux => "touch",
            Work::LinuxCow => "cow",
        }
    }
    /// Whether it is the host's.
    pub fn is_linux(self) -> bool {
        matches!(self, Work::Linux | Work::LinuxCow)
    }
    /// The word for whose it is.
    pub fn system(self) -> &'static str {
        if self.is_linux() { "linux" } else { "softfault" }
    }
    /// Bytes that are cleared or copied where so many are read or written.
    pub fn nr_bytes(self, nr_touched: u64) -> u64 {
        if matches!(self, Work::Clear(_) | Work::Linux) { nr_touched } else { nr_touched / 2 }
    }
    /// Whether it leaves one sub-page to touch, or is done in another process.
    pub fn is_small(self) -> bool {
        matches!(self, Work::CopySubpage | Work::LinuxCow)
    }
    /// The order, if it is ours and one of a page.
    pub fn order(self) -> Option<ClearOrder> {
        match self {
            Work::Clear(how) | Work::Copy(how) => Some(how),
            Work::CopySubpage | Work::Linux | Work::LinuxCow => None,
        }
    }
}

/// The work of the other CPU meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Nothing of ours.
    Idle,
    /// Reads and writes more than the caches hold.
    Streaming,
}

impl Load {
    /// The word in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Streaming => "streaming",
        }
    }
}

/// One row at one distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The work of the other CPU.
    pub load: Load,
    /// The work that is timed.
    pub work: Work,
    /// Where.
    pub place: Place,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {} sub-pages away", self.load.name(), self.work.name(), self.place.distance)
    }
}

/// Times of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The clear or the copy, nanoseconds.
    pub ns: f64,
    /// A load of the lines touched, nanoseconds.
    pub ns_per_line: f64,
    /// Bytes that were read or written.
    pub bytes_touched: u64,
}
