//! The program, timed in fragmented memory.
//!
//! One of the lab's files with `unsafe` (L8 is in `stage.rs`).

use super::holders::with_holders;
use super::options::Options;
use crate::bench::{Arena, Frames, prepare_frames};
use crate::error::LabError;
use crate::os;
use crate::stage::{PagesOf, Piece, Stage, fill, on_stage};
use softfault::policy::huge::Enabled;
use softfault::{Event, Fragmentation, HugeKnobs, Order, Tunables, Vm};
use softfault_host::Hosted;
use std::fmt;
use std::time::Duration;

/// The program with one setting of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job(pub Enabled);

impl Job {
    /// Both, in the order of the output.
    pub const BOTH: [Job; 2] = [Job(Enabled::Always), Job(Enabled::Never)];
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enabled={}", self.0.name())
    }
}

/// Orders that are told of.
pub const NR_ORDERS: usize = Order::MAX.0 as usize + 1;

/// Free memory as each order sees it.
pub type Index = [Fragmentation; NR_ORDERS];

/// One run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Before frames were kept, and after.
    pub index: [Index; 2],
    /// Faults and stores.
    pub memset: Duration,
    /// Those, stores once more, and loads.
    pub whole: Duration,
    /// Of what the program read.
    pub sum: u64,
    /// Which part of its memory was mapped by huge pages.
    pub huge_share: f64,
    /// Of the machine's counters, during the program.
    pub thp_fault_alloc: u64,
    /// Likewise.
    pub thp_fault_fallback: u64,
    /// Blocks that faults made by moving pages.
    pub compact_success: u64,
}

/// Fragments fresh memory and runs the program in it.
pub fn run(options: &Options, arena: &mut Arena, Job(enabled): Job) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), Frames::Fresh);
    let thp = HugeKnobs::DEFAULT.with_enabled(enabled).with_defrag(options.defrag);
    let tunables = Tunables::default().with_thp(thp);
    let vm = Vm::new(arena.take(), tunables).map_err(|e| LabError::subsystem("Vm::new", e))?;
    let before = index(&vm);
    let sample = with_holders(options, &vm, || {
        let after = index(&vm);
        let nr_pages = Options::program_pages(after[0].nr_free);
        on_stage(&vm, nr_pages, PagesOf::Memory, |stage| timed(&vm, stage, [before, after]))
    })?;
    arena.put(vm.into_machine());
    Ok(sample)
}

fn index(vm: &Vm<Hosted>) -> Index {
    std::array::from_fn(|order| vm.fragmentation(Order(order as u8)))
}

fn timed(vm: &Vm<Hosted>, stage: &Stage<'_>, index: [Index; 2]) -> Result<Sample, LabError> {
    let count = |event| vm.vmstat().get(event);
    let events = [Event::ThpFaultAlloc, Event::ThpFaultFallback, Event::CompactSuccess];
    let before = events.map(count);
    let (memset, done) = os::cpu_time_of(|| stage.first_touch());
    done?;
    // Which pieces there are is our own question, not the program's.
    let mapped = stage.mapped()?;
    let (again, sum) = os::cpu_time_of(|| {
        mapped.pieces.iter().copied().for_each(fill);
        mapped.pieces.iter().map(|piece| sum(*piece)).fold(0, u64::wrapping_add)
    });
    let [thp_fault_alloc, thp_fault_fallback, compact_success] = [0, 1, 2].map(|i| count(events[i]) - before[i]);
    Ok(Sample {
        index,
        memset,
        whole: memset + again,
        sum,
        huge_share: mapped.huge_share,
        thp_fault_alloc,
        thp_fault_fallback,
        compact_success,
    })
}

fn sum(piece: Piece) -> u64 {
    // SAFETY: L8: the piece is aligned to a page and as long as it says.
    let words = unsafe { std::slice::from_raw_parts(piece.at.cast::<u64>(), piece.len as usize / 8) };
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}
