//! The result of a run, and its text.

use super::options::Options;
use super::simulate::{Counted, Place};
use serde::Serialize;
use std::fmt::Write;

/// How many places are named.
const NR_WORST: usize = 5;

/// The result of a run; its fields are the keys of the JSON object.
#[derive(Serialize)]
pub struct Report {
    /// Simulated CPUs.
    pub cpus: u16,
    layout: &'static str,
    #[serde(rename = "discipline")]
    fault_locking: &'static str,
    hugetlb_locking: Option<&'static str>,
    frames: &'static str,
    pages: &'static str,
    touches: u32,
    memory_gib: f64,
    /// Faults that were counted, all CPUs together.
    pub faults: u64,
    fault_around: Option<String>,
    /// Writes to lines last written by another CPU.
    pub transfers_per_1000_faults: f64,
    /// The same, over the pages that faults have mapped.
    pub transfers_per_1000_pages: f64,
    /// Reads of lines written by another CPU since.
    pub read_misses_per_1000_faults: f64,
    pub(super) worst: Vec<Worst>,
}

/// A field of a structure, whose lines moved.
#[derive(Serialize)]
pub(super) struct Worst {
    pub(super) structure: String,
    pub(super) field: String,
    pub(super) transfers_per_1000_faults: f64,
    read_misses_per_1000_faults: f64,
}

impl Report {
    /// Reckons rates.
    pub fn new(options: &Options, counted: Counted) -> Report {
        let rate = |count: u64| count as f64 * 1000.0 / counted.nr_faults as f64;
        let worst = |place: &Place| Worst {
            structure: place.structure.clone(),
            field: place.field.clone(),
            transfers_per_1000_faults: rate(place.transfers),
            read_misses_per_1000_faults: rate(place.read_misses),
        };
        Report {
            cpus: options.cpus,
            layout: options.layout.name(),
            fault_locking: options.fault_locking.name(),
            hugetlb_locking: super::pool::name(options),
            frames: options.frames.name(),
            pages: options.pages.name(),
            touches: options.touches,
            memory_gib: options.nr_frames() as f64 / (1 << 18) as f64,
            faults: counted.nr_faults,
            fault_around: options.fault_around.map(crate::bench::Window::name),
            transfers_per_1000_faults: rate(counted.transfers),
            transfers_per_1000_pages: counted.transfers as f64 * 1000.0 / options.nr_touched() as f64,
            read_misses_per_1000_faults: rate(counted.read_misses),
            worst: counted.places.iter().take(NR_WORST).map(worst).collect(),
        }
    }

    /// The title of the plot.
    pub(super) fn title(&self) -> String {
        format!(
            "{} CPUs, layout {}, {}: {:.2} transfers per 1,000 faults",
            self.cpus, self.layout, self.fault_locking, self.transfers_per_1000_faults
        )
    }

    /// The rates, and the fields whose lines moved most.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{} simulated CPUs, {:.1} GiB, {} first touches of {} pages each, {} faults, layout {}, fault-locking mode {}, {} frames\n\n\
             transfers per 1,000 faults    {:8.2}   writes to a cache line last written by another CPU\n\
             read misses per 1,000 faults  {:8.2}   reads of a line that another CPU has written since\n\n",
            self.cpus,
            self.memory_gib,
            self.touches,
            self.pages,
            self.faults,
            self.layout,
            self.fault_locking,
            self.frames,
            self.transfers_per_1000_faults,
            self.read_misses_per_1000_faults
        );
        if let Some(discipline) = self.hugetlb_locking {
            let _ = writeln!(text, "pages of a pool, discipline {discipline}\n");
        }
        if self.fault_around.is_some() {
            let _ = writeln!(
                text,
                "transfers per 1,000 pages     {:8.3}   mapped by these faults\n",
                self.transfers_per_1000_pages
            );
        }
        if self.worst.is_empty() {
            text.push_str("no line travelled\n");
            return text;
        }
        let _ = writeln!(text, "{:>10} {:>12}   the worst, by structure and field", "transfers", "read misses");
        for worst in &self.worst {
            let _ = writeln!(
                text,
                "{:>10.2} {:>12.2}   {}.{}",
                worst.transfers_per_1000_faults, worst.read_misses_per_1000_faults, worst.structure, worst.field
            );
        }
        text
    }
}
