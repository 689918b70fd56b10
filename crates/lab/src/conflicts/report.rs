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
    /// Faults after CPUs have taken their pages out and mapped them again, with a pool.
    #[serde(flatten)]
    pub steady: Option<Steady>,
}

/// Faults on pages of a pool on which the same CPUs have faulted before.
#[derive(Serialize)]
pub struct Steady {
    /// As in [`Report`].
    #[serde(rename = "steady_transfers_per_1000_faults")]
    pub transfers_per_1000_faults: f64,
    /// As in [`Report`].
    #[serde(rename = "steady_read_misses_per_1000_faults")]
    pub read_misses_per_1000_faults: f64,
    #[serde(rename = "steady_worst")]
    worst: Vec<Worst>,
}

impl Steady {
    fn new(counted: &Counted) -> Steady {
        Steady {
            transfers_per_1000_faults: counted.rate(counted.transfers),
            read_misses_per_1000_faults: counted.rate(counted.read_misses),
            worst: counted.worst(),
        }
    }
}

impl Counted {
    fn rate(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.nr_faults as f64
    }

    fn worst(&self) -> Vec<Worst> {
        let worst = |place: &Place| Worst {
            structure: place.structure.clone(),
            field: place.field.clone(),
            transfers_per_1000_faults: self.rate(place.transfers),
            read_misses_per_1000_faults: self.rate(place.read_misses),
        };
        self.places.iter().take(NR_WORST).map(worst).collect()
    }
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
            transfers_per_1000_faults: counted.rate(counted.transfers),
            transfers_per_1000_pages: counted.transfers as f64 * 1000.0 / options.nr_touched() as f64,
            read_misses_per_1000_faults: counted.rate(counted.read_misses),
            worst: counted.worst(),
            steady: counted.steady.as_deref().map(Steady::new),
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
            "{} simulated CPUs, {:.1} GiB, {} first touches of {} pages each, {} faults, layout {}, fault-locking mode {}, {} frames\n\n",
            self.cpus,
            self.memory_gib,
            self.touches,
            self.pages,
            self.faults,
            self.layout,
            self.fault_locking,
            self.frames,
        );
        if let Some(discipline) = self.hugetlb_locking {
            let _ =
                writeln!(text, "pages of a pool, discipline {discipline}\n\ncold: CPU 0 has mapped and reserved them");
        }
        rates(&mut text, [self.transfers_per_1000_faults, self.read_misses_per_1000_faults]);
        if self.fault_around.is_some() {
            let _ = writeln!(
                text,
                "transfers per 1,000 pages     {:8.3}   mapped by these faults\n",
                self.transfers_per_1000_pages
            );
        }
        places(&mut text, &self.worst);
        if let Some(steady) = &self.steady {
            let _ = writeln!(text, "\nsteady: each CPU has taken its pages out, and mapped and reserved them again");
            rates(&mut text, [steady.transfers_per_1000_faults, steady.read_misses_per_1000_faults]);
            places(&mut text, &steady.worst);
        }
        text
    }
}

fn rates(text: &mut String, [transfers, read_misses]: [f64; 2]) {
    let _ = writeln!(
        text,
        "transfers per 1,000 faults    {transfers:8.2}   writes to a cache line last written by another CPU\n\
         read misses per 1,000 faults  {read_misses:8.2}   reads of a line that another CPU has written since\n",
    );
}

fn places(text: &mut String, worst: &[Worst]) {
    if worst.is_empty() {
        text.push_str("no line travelled\n");
        return;
    }
    let _ = writeln!(text, "{:>10} {:>12}   the worst, by structure and field", "transfers", "read misses");
    for worst in worst {
        let _ = writeln!(
            text,
            "{:>10.2} {:>12.2}   {}.{}",
            worst.transfers_per_1000_faults, worst.read_misses_per_1000_faults, worst.structure, worst.field
        );
    }
}
