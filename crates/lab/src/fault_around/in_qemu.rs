//! The reads on Debian's Linux in QEMU, where the window can be set: one boot, before anything is timed.

use super::load::{Load, Sample};
use super::options::Options;
use crate::bench::Window;
use crate::compare::{self, Around};
use crate::error::LabError;
use std::time::Duration;

/// The result of each window there.
pub struct InQemu {
    /// Package and version.
    pub kernel: String,
    found: Vec<Around>,
}

impl InQemu {
    /// Boots it.
    pub fn measure(options: &Options, load: &Load) -> Result<InQemu, LabError> {
        let orders: Vec<u8> = options.windows().into_iter().filter_map(|window| Some(window.order()?.get())).collect();
        let (kernel, found) = compare::around(load.pattern.name(), load.nr_pages, load.nr_rounds(), &orders)
            .map_err(|e| LabError::host("Linux in QEMU", e))?;
        Ok(InQemu { kernel, found })
    }

    /// The same for each repetition. An instruction is a nanosecond.
    pub fn sample(&self, window: Window) -> Option<Sample> {
        let order = window.order()?.get();
        let found = self.found.iter().find(|of| of.order == order)?;
        Some(Sample {
            wall: Duration::from_nanos(found.first),
            resident: Duration::from_nanos(found.second),
            minor_faults: found.minor_faults,
            major_faults: found.major_faults,
            pages_mapped: found.nr_mapped,
        })
    }
}
