//! The timed code, and the steps directly before and after it.
//!
//! A sample makes the page dirty and cold, then times the clear and the loads that follow.

use super::linux_cow::Cow;
use super::place::{DISTANCES, Place};
use super::streamer::Streamer;
use super::work::{Job, Load, Sample, Work};
use crate::bench::RandomOrder;
use crate::clearing::HUGE_BYTES;
use crate::clearing::folios::Folios;
use crate::clearing::linux::Fresh;
use crate::clearing::span::{NR_LINES, Span};
use crate::error::LabError;
use softfault::clear::ClearOrder;
use std::time::Instant;

/// In which order the lines of a sub-page are loaded.
type Lines = Vec<usize>;

/// The pages of both systems, and the load beside them.
pub struct Systems {
    folios: Folios,
    next_folio: u64,
    /// Linux's pages, of which those before `next_fresh` were touched: enough for a repetition.
    fresh: Option<Fresh>,
    next_fresh: u64,
    cow: Option<Cow>,
    other_cpu: Option<usize>,
    streamer: Option<Streamer>,
    lines: Lines,
}

impl Systems {
    /// Pages of ours; copies of Linux's are made by `cow`.
    pub fn new(nr_folios: u64, cow: Option<Cow>, other_cpu: Option<usize>, seed: u64) -> Result<Systems, LabError> {
        Ok(Systems {
            folios: Folios::new(nr_folios)?,
            next_folio: 0,
            fresh: None,
            next_fresh: 0,
            cow,
            other_cpu,
            streamer: None,
            lines: RandomOrder::new(seed).shuffled(NR_LINES),
        })
    }

    /// Whether there is a CPU that can stream.
    pub fn can_stream(&self) -> bool {
        self.other_cpu.is_some()
    }

    /// Runs a job once.
    pub fn sample(&mut self, job: &Job) -> Result<Sample, LabError> {
        self.run_beside(job.load)?;
        match job.work {
            Work::Linux => self.linux(job.place),
            Work::LinuxCow => self.cow.as_mut().expect("it was started for this work").sample(job.place.target),
            work => {
                self.next_folio += 2;
                ours(&self.folios, self.next_folio, work, job.place, &self.lines)
            }
        }
    }

    fn run_beside(&mut self, load: Load) -> Result<(), LabError> {
        match load {
            Load::Idle => self.streamer = None,
            Load::Streaming if self.streamer.is_none() => {
                self.streamer = self.other_cpu.map(Streamer::on).transpose()?;
            }
            Load::Streaming => {}
        }
        Ok(())
    }

    fn linux(&mut self, place: Place) -> Result<Sample, LabError> {
        if self.fresh.as_ref().is_none_or(|fresh| self.next_fresh == fresh.nr()) {
            // Linux is likely to give the same frames again: they are cold then, as ours are.
            if let Some(used) = self.fresh.take() {
                (0..used.nr()).for_each(|i| used.span(i).evict());
            }
            self.fresh = Some(Fresh::new(DISTANCES.len() as u64)?);
            self.next_fresh = 0;
        }
        let fresh = self.fresh.as_ref().expect("made above");
        self.next_fresh += 1;
        Ok(linux(fresh, self.next_fresh - 1, place, &self.lines))
    }
}

/// A page of ours, the `i`th; a copy is made from the one after it.
fn ours(folios: &Folios, i: u64, work: Work, place: Place, lines: &Lines) -> Result<Sample, LabError> {
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
        Work::Linux | Work::LinuxCow => unreachable!("`Systems::sample` has arms for them"),
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
fn linux(fresh: &Fresh, i: u64, place: Place, lines: &Lines) -> Sample {
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
