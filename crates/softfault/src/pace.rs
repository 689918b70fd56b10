//! Long passes: how they answer other CPUs, and how a test machine counts them.
//!
//! A pass over entries, VMAs, pages of an object or CPUs reports each step as a [`Tick::Step`]. A
//! production machine ignores ticks, so they cost nothing. A test machine counts the steps since
//! this CPU last answered, and fails the test if there are too many.
//!
//! Locks on entry: no section, since [`Pace`] calls `relax`.

use crate::machine::{Machine, Tick};
use crate::sync;

/// Steps between two answers. A walk makes one such pass on each level of the tables, five at most.
/// Together they stay below the 1,024 steps that tests allow, with a margin for one whole table.
const STEPS_PER_TURN: u32 = 96;
/// Steps for a page that is copied or faulted in: 32 pages take 10 to 20 us. A VMA counts as much,
/// because its entries are read.
const STEPS_PER_PAGE: u32 = 3;

/// Steps for a search that enters up to 64 nodes of a tree in a section, where it cannot answer.
/// With one tick per node these stay below 1,024.
const STEPS_PER_SEARCH: u32 = 8;

/// Steps after which the end of a pass answers: many short passes add up to a long one.
const STEPS_WORTH_A_TURN: u32 = 9;

/// Counts the steps of one pass and answers other CPUs now and then.
pub(crate) struct Pace<'a, M: Machine> {
    machine: &'a M,
    nr_steps: u32,
}

impl<'a, M: Machine> Pace<'a, M> {
    pub(crate) fn new(machine: &'a M) -> Pace<'a, M> {
        Pace { machine, nr_steps: 0 }
    }

    /// One step of a few nanoseconds.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.steps(1);
    }

    /// One step that copies a page, faults it in, or works on a VMA.
    #[inline]
    pub(crate) fn page(&mut self) {
        self.steps(STEPS_PER_PAGE);
    }

    /// One search in a section that enters several nodes of a tree.
    #[inline]
    pub(crate) fn search(&mut self) {
        self.steps(STEPS_PER_SEARCH);
    }

    #[inline]
    fn steps(&mut self, nr: u32) {
        self.machine.tick(Tick::Step);
        self.nr_steps += nr;
        if self.nr_steps >= STEPS_PER_TURN {
            self.nr_steps = 0;
            answer(self.machine);
        }
    }
}

impl<M: Machine> Drop for Pace<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.nr_steps >= STEPS_WORTH_A_TURN {
            answer(self.machine);
        }
    }
}

/// Answers other CPUs in the middle of a pass. Waits for nobody.
#[inline]
pub(crate) fn answer<M: Machine>(machine: &M) {
    if sync::PASSES_ANSWER {
        machine.relax();
    }
}

/// The steps that a search may still make: its budget, in work and not in time, so that the result is the same on a loaded machine.
/// The caller says what a step is.
pub(crate) struct Steps {
    left: u64,
    /// Of others, for which it may wait: counted apart, so that it finds as much beside others as alone. `None` once it would have had
    /// to wait for more.
    left_of_others: Option<u64>,
}

/// The steps of a budget are spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfSteps;

impl Steps {
    /// So many, and waits for as many of others; `u64::MAX` is more than any search makes.
    pub(crate) fn new(nr: u64) -> Steps {
        Steps { left: nr, left_of_others: Some(nr) }
    }

    /// For a search that goes to its end.
    pub(crate) fn unbounded() -> Steps {
        Steps::new(u64::MAX)
    }

    /// Spends some steps, also if fewer are left.
    ///
    /// # Errors
    ///
    /// [`OutOfSteps`] if fewer were left; none are then.
    #[inline]
    pub(crate) fn spend(&mut self, nr: u64) -> Result<(), OutOfSteps> {
        let enough = self.left >= nr;
        self.left = self.left.saturating_sub(nr);
        if enough { Ok(()) } else { Err(OutOfSteps) }
    }

    /// Notes steps that others have made while this search waited.
    ///
    /// # Errors
    ///
    /// [`OutOfSteps`] if they are more than were left; it waits for no others then.
    pub(crate) fn wait_for(&mut self, nr: u64) -> Result<(), OutOfSteps> {
        self.left_of_others = self.left_of_others.and_then(|left| left.checked_sub(nr));
        self.left_of_others.map(|_| ()).ok_or(OutOfSteps)
    }

    /// Whether none are left, or a wait was refused: each step may have to wait again.
    pub(crate) fn are_spent(&self) -> bool {
        self.left == 0 || self.left_of_others.is_none()
    }
}
