//! Counts the steps of a thread in the core since it last answered other CPUs.
//!
//! With debug assertions, as in tests, more than [`MOST_STEPS`] steps end the process.
//! Without them nothing is counted. The module also keeps the address of the core's word
//! that says whether the thread's CPU is in a section.

use core::cell::Cell;
use softfault::addr::Pfn;
use softfault::machine::Tick;
use std::io::Write;

/// Most steps without an answer: some microseconds, or the entries of two page tables.
pub const MOST_STEPS: u32 = 1024;

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
    static ALL_STEPS: Cell<u64> = const { Cell::new(0) };
    /// The word that says whether the thread's CPU is in a section.
    static SECTION: Cell<Option<(Pfn, usize)>> = const { Cell::new(None) };
}

/// All steps of the calling thread; 0 without debug assertions.
pub fn nr_steps() -> u64 {
    ALL_STEPS.get()
}

/// Counts a tick of the calling thread: only with debug assertions, which the caller looks at. Ends the process after too
/// many steps: a panic would leave locks and entries that other threads wait for.
#[inline(always)]
pub(crate) fn tick(tick: Tick) {
    match tick {
        Tick::Step if count() => too_many(),
        Tick::Step => {}
        _ => answered(),
    }
}

/// The calling thread's CPU has its word of sections there.
pub(crate) fn entered(place: Option<(Pfn, usize)>) {
    SECTION.set(place);
}

/// Where the calling thread's CPU has its word of sections, once it was in one.
pub(crate) fn section() -> Option<(Pfn, usize)> {
    SECTION.get()
}

/// Counts one step; whether it is one too many.
fn count() -> bool {
    let nr = STEPS.get() + 1;
    STEPS.set(nr);
    ALL_STEPS.set(ALL_STEPS.get() + 1);
    nr > MOST_STEPS
}

/// The calling thread answers other CPUs now, or is outside the core.
#[inline(always)]
pub(crate) fn answered() {
    if cfg!(debug_assertions) {
        STEPS.set(0);
    }
}

#[cold]
#[inline(never)]
fn too_many() -> ! {
    end_process(&format!("more than {MOST_STEPS} steps without `Machine::relax`: other CPUs wait for an answer"))
}

/// Ends the process, and says why and from where: past the test harness, which keeps what is printed until the test ends.
pub(crate) fn end_process(why: &str) -> ! {
    let trace = std::backtrace::Backtrace::force_capture();
    let _ = std::io::stderr().write_all(format!("{trace}\n{why}\n").as_bytes());
    std::process::abort()
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::{Hosted, HostedConfig};
    use core::sync::atomic::Ordering::Relaxed;
    use softfault::machine::{CpuId, CpuSet, Machine};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_answer_or_a_new_call_begins_the_count_anew() {
        let machine = Hosted::new(HostedConfig::default()).unwrap();
        let _cpu = machine.bind(CpuId(0)).unwrap();
        let nobody = CpuSet::EMPTY;
        let answers: [&dyn Fn(); 3] =
            [&|| machine.relax(), &|| machine.heavy_barrier(&nobody), &|| machine.tick(Tick::Call)];
        for answer in answers {
            answered();
            (0..MOST_STEPS).for_each(|_| machine.tick(Tick::Step));
            assert!(count(), "one step too many");
            answer();
            assert!(!count());
        }
        assert_eq!(nr_steps(), 3 * u64::from(MOST_STEPS) + 6);
    }

    #[test]
    fn a_wait_in_a_section_is_refused() {
        let machine = Hosted::new(HostedConfig::default()).unwrap();
        let _cpu = machine.bind(CpuId(0)).unwrap();
        let slot = machine.arena.word(Pfn(3), 64);
        let waits: [&dyn Fn(); 2] = [&|| machine.relax(), &|| machine.heavy_barrier(&CpuSet::EMPTY)];
        for wait in waits {
            slot.store(7, Relaxed);
            // The CPU has been in no section yet.
            entered(None);
            wait();
            entered(Some((Pfn(3), 64)));
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
            slot.store(8, Relaxed);
            wait();
        }
    }
}
