//! A file in memory, read on Debian's Linux in QEMU with the window of fault-around set: for `softfault fault-around`.
//!
//! The machine counts instructions, as for `--icount`: the same in each run but for a percent.

use super::boot::Bench;
use super::linux;
use super::options::Options;
use super::system::System;
use crate::bench::{PAGE_BYTES, typed};
use crate::run::RunError;
use serde::Deserialize;

/// Memory that Linux has besides the file.
const LINUX_BYTES: u64 = 384 << 20;

/// Counts of a window, all rounds together; the keys are those that the probe writes.
#[derive(Deserialize, Clone, Copy, Debug)]
pub struct Around {
    /// log2 of the pages of the window.
    pub order: u8,
    /// Instructions of the passes that fault.
    pub first: u64,
    /// Instructions of the same passes again.
    pub second: u64,
    /// Of the first passes.
    pub minor_faults: u64,
    /// Likewise.
    pub major_faults: u64,
    /// Pages that they mapped.
    pub nr_mapped: u64,
}

/// Reads a file of so many pages with each of the windows; the kernel's name, too.
pub fn around(pattern: &str, nr_pages: u64, nr_rounds: u64, orders: &[u8]) -> Result<(String, Vec<Around>), RunError> {
    let mem = (nr_pages * PAGE_BYTES + LINUX_BYTES) >> 20;
    let options: Options = typed(&format!("compare --icount --only linux --mem {mem}M --timeout 900"));
    let kernel = linux::find(None)?;
    let words = ["around", pattern, &nr_pages.to_string(), &nr_rounds.to_string()].map(String::from);
    let words = words.into_iter().chain(orders.iter().map(u8::to_string));
    let bench = Bench::asking(&options, Some(&kernel), words.map(String::into_bytes).collect())?;
    Ok((kernel.name, bench.records(System::Linux)?))
}
