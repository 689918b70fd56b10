//! Everything that is timed, and what is done right before and after it.
//!
//! Each function here takes one sample: makes the page dirty and cold, stops the
//! time of the clear, and of the loads that follow it.

use crate::clearing::folios::Folios;
use crate::clearing::linux::Fresh;
use crate::clearing::span::Span;
use crate::clearing::{HUGE_BYTES, NR_SUBPAGES};
use crate::error::LabError;
use softfault::clear::ClearOrder;
use std::time::Instant;

/// In which order the lines of a sub-page are loaded.
pub type Lines = Vec<usize>;

/// What is timed.
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

/// What the other CPU does meanwhile.
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

/// Where the fault is, and what is touched after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The sub-page that the fault is on.
    pub target: u64,
    /// Sub-pages from it to the one that is loaded.
    pub distance: u64,
    /// That one.
    pub touched: u64,
}

impl Place {
    /// To the right, or to the left where the page ends before that.
    pub fn new(target: u64, distance: u64) -> Place {
        let right = target + distance;
        let touched = if right < NR_SUBPAGES { right } else { target.saturating_sub(distance) };
        Place { target, distance, touched }
    }
}

/// One row at one distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// What.
    pub work: Work,
    /// Where.
    pub place: Place,
}

/// What it took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The clear or the copy, nanoseconds.
    pub ns: f64,
    /// A load of the lines touched, nanoseconds.
    pub ns_per_line: f64,
    /// Bytes that were read or written.
    pub bytes_touched: u64,
}

/// A page of ours, the `i`th; a copy is made from the one after it.
pub fn ours(folios: &Folios, i: u64, work: Work, place: Place, lines: &Lines) -> Result<Sample, LabError> {
    let (page, source) = (folios.span(i), folios.span(i + 1));
    page.soil();
    page.evict();
    if !matches!(work, Work::Clear(_)) {
        // The source is zero, so that the loads below can wait for one another.
        folios.clear(i + 1, 0, ClearOrder::Forward);
        source.evict();
    }
    let start = Instant::now();
    let bytes_touched = match work {
        Work::Clear(how) => {
            folios.clear(i, place.target, how);
            HUGE_BYTES
        }
        Work::Copy(how) => folios.copy(i, i + 1, place.target, how),
        Work::CopySubpage => folios.copy_subpage(i, i + 1, place.target),
        Work::Linux | Work::LinuxCow => unreachable!("`linux` and `Cow` are for that"),
    };
    page.touch(place.target);
    let ns = start.elapsed().as_nanos() as f64;
    let ns_per_line = load(page, place, lines);
    if work != Work::CopySubpage && !page.is_clear() {
        return Err(LabError::subsystem(format!("a page after {}", work.name()), "has another content than it should"));
    }
    Ok(Sample { ns, ns_per_line, bytes_touched })
}

/// The `i`th of Linux's pages, which nobody has touched.
pub fn linux(fresh: &Fresh, i: u64, place: Place, lines: &Lines) -> Sample {
    let page = fresh.span(i);
    let start = Instant::now();
    page.touch(place.target);
    let ns = start.elapsed().as_nanos() as f64;
    Sample { ns, ns_per_line: load(page, place, lines), bytes_touched: HUGE_BYTES }
}

fn load(page: Span<'_>, place: Place, lines: &Lines) -> f64 {
    let start = Instant::now();
    page.load(place.touched, lines);
    start.elapsed().as_nanos() as f64 / lines.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_lies_in_the_page_at_that_distance() {
        for target in 0..NR_SUBPAGES {
            for distance in super::super::options::DISTANCES {
                let place = Place::new(target, distance);
                assert!(place.touched < NR_SUBPAGES);
                assert_eq!(place.touched.abs_diff(target), distance, "{place:?}");
            }
        }
    }
}
