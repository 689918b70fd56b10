//! Memory that fails and pages that leave memory, between the steps of a sequence.
//!
//! Which spaces share a frame is known only at run time, so the model runs along with the machine. Before a
//! frame fails, the test finds all pages that translate to it and tells the model. The model then predicts the
//! next steps; steps that it can no longer predict are skipped.
//!
//! The trouble after a step depends on the step and a seed alone. So a sequence from which steps are dropped has the
//! same trouble after those that stay.

use crate::daemons::Daemon;
use crate::hosted::Programs;
use crate::model::{Expected, Model};
use crate::op::{Op, PAGE};
use crate::random::Random;
use softfault::table::format::Format;
use softfault::{AddressSpace, MigrateRefusal, Pfn, PoisonRefusal, Vm};
use softfault_host::Hosted;

/// In so many of 1,000 cases a daemon runs after a step, or a page fails.
const DAEMON_PERMILLE: u64 = 40;
const FAILURE_PERMILLE: u64 = 20;

/// Changes to programs that no step of theirs explains.
pub(crate) struct Trouble {
    model: Model,
    seed: u64,
}

/// How the machine interferes now.
pub(crate) enum Turn {
    Nothing,
    Daemon(Daemon),
    /// A page fails that these numbers choose.
    Failure(Random),
}

/// The space of each program.
type Spaces<'a, 's, 'vm, F> = &'a dyn Fn(u64) -> Option<&'s AddressSpace<'vm, Hosted<F>>>;

/// A page that is to fail: its frame, the order of its entry, and all pages of that frame.
struct Chosen {
    who: u64,
    number: u64,
    frame: (Pfn, u8),
    entries: Vec<(u64, u64)>,
}

impl Trouble {
    /// For the programs of that model, which have done nothing yet.
    pub(crate) fn new(model: Model, seed: u64) -> Trouble {
        Trouble { model: model.with_pager(), seed }
    }

    /// The expected outcome of the step; `None` if it cannot be known, and the step is not to be made.
    pub(crate) fn expect(&mut self, op: &Op) -> Option<Expected> {
        self.model.apply(op).ok()
    }

    /// Returns how the machine interferes after the step.
    pub(crate) fn turn_after(&self, op: &Op) -> Turn {
        let seed = op.encode().iter().fold(self.seed, |seed, word| Random::new(seed ^ word).number());
        let mut random = Random::new(seed);
        match random.below(1000) {
            0..DAEMON_PERMILLE => Turn::Daemon(Daemon::any(&mut random)),
            // A page of the pool needs 2 MiB of good memory.
            n if n < DAEMON_PERMILLE + FAILURE_PERMILLE && !self.model.has_pool() => Turn::Failure(random),
            _ => Turn::Nothing,
        }
    }

    /// The memory of some program's page fails, if it can be taken out of use. No step is under way.
    ///
    /// # Errors
    ///
    /// The defect.
    pub(crate) fn fail_one<F: Format>(
        &mut self,
        vm: &Vm<Hosted<F>>,
        programs: &Programs<'_, F>,
        random: Random,
    ) -> Result<(), String> {
        let Some(Chosen { who, number, frame: (pfn, order), entries }) =
            self.choose(&|who| programs.space(who), random)
        else {
            return Ok(());
        };
        let is_of_object = self.model.is_of_object(who, number);
        // The file has its bytes: it is read again.
        let is_read_again = vm.is_clean_page_of_file(pfn);
        match vm.poison_frame(pfn) {
            Ok(nr) if nr != if is_of_object { 0 } else { entries.len() as u64 } => {
                Err(format!("frame {pfn:?} has failed for {nr} entries, and was that of {entries:x?}"))
            }
            Ok(_) if is_read_again => Ok(()),
            Ok(_) => {
                entries.into_iter().for_each(|(who, number)| self.model.fail(who, number));
                Ok(())
            }
            // Split in one space, and whole in another.
            Err(PoisonRefusal::Stays(MigrateRefusal::HugePage)) if order > 0 || entries.len() > 1 => Ok(()),
            // The zero frame, small or huge.
            Err(PoisonRefusal::Stays(MigrateRefusal::Reserved)) if self.model.may_be_zero(who, number) => Ok(()),
            Err(refusal) => {
                Err(format!("page {number:#x} of program {who}, of order {order}, cannot fail: {refusal:?}"))
            }
        }
    }

    /// The same while other CPUs are at work on other pages, whose programs may share the frame, too. No
    /// frame may move meanwhile but by what these programs do.
    pub(crate) fn fail_one_beside_others<'s, 'vm: 's, F: Format>(
        &mut self,
        vm: &'vm Vm<Hosted<F>>,
        spaces: Spaces<'_, 's, 'vm, F>,
        random: Random,
    ) {
        let Some(chosen) = self.choose(spaces, random) else { return };
        let is_read_again = vm.is_clean_page_of_file(chosen.frame.0);
        if vm.poison_frame(chosen.frame.0).is_ok() && !is_read_again {
            chosen.entries.into_iter().for_each(|(who, number)| self.model.fail(who, number));
        }
    }

    fn choose<'s, 'vm: 's, F: Format>(&self, spaces: Spaces<'_, 's, 'vm, F>, mut random: Random) -> Option<Chosen> {
        let alive: Vec<u64> = self.model.programs().collect();
        let who = random.pick(&alive);
        let pages: Vec<u64> = self.model.pages_with_memory(who).collect();
        if pages.is_empty() {
            return None;
        }
        let number = random.pick(&pages);
        let frame = frame_of(spaces, who, number)?;
        Some(Chosen { who, number, frame, entries: self.entries(spaces, frame.0) })
    }

    /// All pages of programs that have that frame, whatever the model thinks that they have.
    fn entries<'s, 'vm: 's, F: Format>(&self, spaces: Spaces<'_, 's, 'vm, F>, pfn: Pfn) -> Vec<(u64, u64)> {
        let pages = |who| self.model.pages(who).map(move |number| (who, number));
        let all = self.model.programs().flat_map(pages);
        all.filter(|(who, number)| frame_of(spaces, *who, *number).is_some_and(|(other, _)| other == pfn)).collect()
    }
}

fn frame_of<'s, 'vm: 's, F: Format>(spaces: Spaces<'_, 's, 'vm, F>, who: u64, number: u64) -> Option<(Pfn, u8)> {
    let (pfn, order) = spaces(who)?.frame_at_rest(number * PAGE)?;
    Some((pfn, order.0))
}
