//! How large the file is, who reads it, and what a run of a row gives.

use super::options::{Age, Folios};
use super::pattern::{Pattern, TABLE_PAGES};
use std::time::Duration;

/// Touches of a thread in the sparse pattern, at least: those of a file of 16 GiB, as in 2014.
const SPARSE_TOUCHES: u64 = 8192;
/// Pages that a thread reads in order, at least: those of 256 MiB.
const SEQ_PAGES: u64 = 1 << 16;
/// Most times that the file is mapped anew.
const MOST_ROUNDS: u64 = 64;

/// The parts that threads read.
#[derive(Clone, Debug)]
pub struct Load {
    /// In which order.
    pub pattern: Pattern,
    /// Pages of the file.
    pub nr_pages: u64,
    /// Size of the folios that they are in.
    pub folios: Folios,
    /// How ours maps neighbours.
    pub neighbours: Age,
    /// Host CPUs to pin threads to, in turn.
    pub cpus: Vec<usize>,
}

impl Load {
    /// How many times each thread maps the file at another address and reads it. One touch in each 2 MiB
    /// of a small file takes too little time for a clock. Of a small file that is read once, what the caches had
    /// before counts as much as the faults.
    pub fn nr_rounds(&self) -> u64 {
        match self.pattern {
            Pattern::Sparse => SPARSE_TOUCHES.div_ceil(self.nr_pages / TABLE_PAGES).min(MOST_ROUNDS),
            Pattern::Seq => SEQ_PAGES.div_ceil(self.nr_pages).min(MOST_ROUNDS),
            Pattern::Random => 1,
        }
    }
    /// Pages that a thread touches.
    pub fn nr_touched_each(&self) -> u64 {
        self.pattern.nr_touched(0..self.nr_pages) * self.nr_rounds()
    }
}

/// The costs of one run of a row. All threads together, but for the times.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sample {
    /// Of the reads of what was not mapped.
    pub wall: Duration,
    /// Of the same reads again.
    pub resident: Duration,
    /// Faults of the first reads that waited for nothing.
    pub minor_faults: u64,
    /// Faults that read a page from a device.
    pub major_faults: u64,
    /// Pages that were mapped after the first reads.
    pub pages_mapped: u64,
}

impl Sample {
    /// The times of alternating first and second reads.
    pub fn of_walls(walls: &[Duration]) -> Sample {
        let sum = |which: usize| walls.iter().skip(which).step_by(2).sum();
        Sample { wall: sum(0), resident: sum(1), ..Sample::default() }
    }
    /// The time of the faults, seconds: the first reads less the second ones.
    pub fn faults_s(&self) -> f64 {
        self.wall.as_secs_f64() - self.resident.as_secs_f64()
    }
}
