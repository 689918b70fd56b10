//! One of the processes. It reads one line on standard input for each run, and writes
//! the nanoseconds from the common start to its own end on standard output.
//!
//! It maps and touches its memory before it reports that it is ready, so a run times
//! only clearing and writing.

use super::options::Options;
use super::work::Work;
use crate::clearing::folios::Folios;
use crate::clearing::linux::{self, Fresh};
use crate::clearing::process::{hear, say};
use crate::error::LabError;
use crate::os;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The message that it can start; the first time followed by whether the host gives it
/// huge pages.
pub const READY: &str = "ready";

/// Serves until its input ends, which it does when the command ends.
pub fn run(options: &Options, cpu: usize) -> Result<(), LabError> {
    os::pin(cpu)?;
    let folios = Folios::new(options.nr_folios())?;
    say(&format!("{READY} {}", options.with_linux() && linux::gives_huge_pages()?))?;
    while let Some(name) = hear()? {
        let work =
            Work::named(&name).ok_or_else(|| LabError::subsystem("what to run", format!("`{name}` is no order")))?;
        let took = match work {
            Work::Ours(how) => run_at_start(|| {
                for i in 0..options.nr_folios() {
                    folios.clear(i, 0, how);
                    folios.span(i).write_all();
                }
            })?,
            Work::Linux => {
                // Memory that the hypervisor has taken back meanwhile costs much
                // more than a fault, which is not Linux's doing.
                let warm = Fresh::new(options.nr_folios())?;
                (0..warm.nr()).for_each(|i| warm.span(i).touch(0));
                drop(warm);
                let fresh = Fresh::new(options.nr_folios())?;
                // It clears when the first word of each page is written.
                run_at_start(|| (0..fresh.nr()).for_each(|i| fresh.span(i).write_all()))?
            }
        };
        say(&took.as_nanos().to_string())?;
    }
    Ok(())
}

/// Says that it is ready, hears when all start, and gives the time from then: a
/// process that had to wait for a CPU is late by that.
fn run_at_start(work: impl FnOnce()) -> Result<Duration, LabError> {
    say(READY)?;
    let heard = hear()?.unwrap_or_default();
    let start_ns = heard.parse().map_err(|_| LabError::subsystem("when to start", format!("`{heard}` is no time")))?;
    let start = Duration::from_nanos(start_ns);
    while now()? < start {
        std::thread::yield_now();
    }
    work();
    Ok(now()?.saturating_sub(start))
}

/// By the clock that all processes share.
pub fn now() -> Result<Duration, LabError> {
    SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| LabError::host("the clock", e))
}
