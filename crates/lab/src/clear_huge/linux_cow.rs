//! The host's copy-on-write of huge pages, in a separate process: fork makes all memory of
//! the calling process copy-on-write, and our pages must not be.

use super::work::Sample;
use crate::clearing::linux::{self, Fresh};
use crate::clearing::process::{self, Process};
use crate::clearing::{HUGE_BYTES, NR_SUBPAGES, SUBPAGE_BYTES};
use crate::error::LabError;
use crate::os;
use std::time::Instant;

/// The process, seen from the command.
pub struct Cow(Process);

impl Cow {
    /// On this CPU.
    pub fn on(cpu: usize) -> Result<Cow, LabError> {
        Ok(Cow(Process::start(&["clear-huge", "--copy", "--worker", &cpu.to_string()])?))
    }

    /// One write to a huge page that a child shares.
    pub fn sample(&mut self, target: u64) -> Result<Sample, LabError> {
        self.0.tell(&target.to_string())?;
        let said = self.0.line()?;
        let numbers = said.split_once(' ').and_then(|(ns, bytes)| Some((ns.parse().ok()?, bytes.parse().ok()?)));
        let (ns, bytes_touched) = numbers.ok_or_else(|| LabError::subsystem("the process that forks said", &said))?;
        Ok(Sample { ns, ns_per_line: f64::NAN, bytes_touched })
    }
}

/// In the process: a sample for each line, which is the sub-page to write to.
pub fn run(cpu: usize) -> Result<(), LabError> {
    os::pin(cpu)?;
    while let Some(line) = process::hear()? {
        let target: Option<u64> = line.parse().ok().filter(|target| *target < NR_SUBPAGES);
        let target = target.ok_or_else(|| LabError::subsystem("where to write", format!("`{line}` is no sub-page")))?;
        let fresh = Fresh::new(1)?;
        fresh.span(0).touch(target);
        fresh.span(0).evict();
        let before = linux::anon_huge_bytes();
        let ns = linux::while_shared(|| {
            let start = Instant::now();
            fresh.span(0).touch(target);
            start.elapsed().as_nanos()
        })?;
        // One huge mapping less: it was split, and a sub-page was copied.
        let is_split = linux::anon_huge_bytes().zip(before).is_none_or(|(after, before)| after < before);
        let bytes_copied = if is_split { SUBPAGE_BYTES } else { HUGE_BYTES };
        process::say(&format!("{ns} {}", 2 * bytes_copied))?;
    }
    Ok(())
}
