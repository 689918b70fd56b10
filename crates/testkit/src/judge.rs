//! Runs one sequence on two or three sides and finds where they differ.

use crate::features::Features;
use crate::hosted::{HugeCounts, Programs, differs, end_pool, nr_free_pages};
use crate::linux::{Linux, LinuxError};
use crate::model::{Expected, Model};
use crate::op::{Op, Outcome};
use crate::shortest::shortest;
use crate::trouble::{Trouble, Turn};
use core::cell::RefCell;
use core::fmt;
use softfault::table::format::Format;
use softfault::{AddressSpace, Event, Machine, NewVmError, Tunables, Vm};
use softfault_host::{CpuGuard, Hosted, HostedConfig, HostedError};

/// A step that did not do what it should.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Its number.
    pub step: usize,
    /// Outcome in the model.
    pub expected: Outcome,
    /// Outcome on the host's Linux, if it was asked.
    pub linux: Option<Outcome>,
    /// Outcome in the core, if it was asked.
    pub hosted: Option<Outcome>,
    /// Further defects.
    pub note: String,
}

impl Difference {
    /// The side that is alone: the core, or the model (a side that is not asked counts as its), or
    /// nobody by outcomes, if something else is wrong.
    fn blames(&self) -> (bool, bool) {
        let alone = |seen: Option<Outcome>| seen.is_some_and(|seen| seen != self.expected);
        (alone(self.linux), alone(self.hosted))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |outcome: Option<Outcome>| outcome.map_or("not asked".into(), |o| o.to_string());
        let (linux, hosted) = (side(self.linux), side(self.hosted));
        write!(f, "step {}: model {}, Linux {linux}, softfault {hosted}", self.step, self.expected)?;
        if self.note.is_empty() { Ok(()) } else { write!(f, "; {}", self.note) }
    }
}

/// The sides that are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sides {
    /// The host's Linux.
    pub linux: bool,
    /// Its pool of 2 MiB pages, too, for sequences with a pool. It must be empty, and takes root.
    pub linux_pool: bool,
    /// The core on the hosted machine.
    pub hosted: bool,
    /// The core's own checker, after each so many steps; 0 is never.
    pub check_every: usize,
}

/// Steps after which a sequence that goes on has all free frames read (I20).
pub const READ_EVERY: usize = 1000;

/// Runs sequences on the sides and compares.
pub struct Judge {
    sides: Sides,
    linux: Option<Linux>,
    vm: Vm<Hosted>,
    config: HostedConfig,
    tunables: Tunables,
    /// The seed of what the machine does to pages between steps.
    trouble: Option<u64>,
    /// The machine of sequences with a pool, whose memory does not fail: a page of the pool needs 2 MiB of it.
    with_pool: Vm<Hosted>,
    /// Of machines before this one.
    huge: HugeCounts,
}

/// Frames that have failed, after which the core gets another machine.
const MOST_FAILED: u64 = 1000;

/// Why there is no judge, or no judgement.
#[derive(Debug)]
pub enum JudgeError {
    /// The child on Linux.
    Linux(LinuxError),
    /// The hosted machine.
    Hosted(HostedError),
    /// The core.
    Vm(NewVmError),
}

impl fmt::Display for JudgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JudgeError::Linux(error) => error.fmt(f),
            JudgeError::Hosted(error) => error.fmt(f),
            JudgeError::Vm(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for JudgeError {}

/// The expected and the actual outcome of a step.
type OfCore = Option<(Expected, Outcome)>;

/// A defect that no outcome shows, and its step.
type Note = Option<(usize, String)>;

fn machine(config: HostedConfig, tunables: Tunables) -> Result<Vm<Hosted>, JudgeError> {
    let hosted = Hosted::new(config).map_err(JudgeError::Hosted)?;
    Vm::new(hosted, tunables).map_err(JudgeError::Vm)
}

fn start(sides: Sides) -> Result<Linux, LinuxError> {
    if sides.linux_pool { Linux::start_with_pool() } else { Linux::start() }
}

impl Judge {
    /// A judge over a machine of its own.
    pub fn new(sides: Sides, config: HostedConfig, tunables: Tunables) -> Result<Judge, JudgeError> {
        let linux = if sides.linux { Some(start(sides).map_err(JudgeError::Linux)?) } else { None };
        let (vm, with_pool) = (machine(config, tunables)?, machine(config, tunables)?);
        Ok(Judge { sides, linux, vm, with_pool, config, tunables, trouble: None, huge: HugeCounts::default() })
    }

    /// From now on memory of the core's machine fails between steps, its daemons run, and pages are
    /// swapped out, or nothing happens.
    ///
    /// # Errors
    ///
    /// There is no other machine for the core in place of one of which too much has failed.
    pub fn set_trouble(&mut self, seed: Option<u64>) -> Result<(), JudgeError> {
        self.trouble = seed;
        if self.vm.event(Event::FramesPoisoned) > MOST_FAILED {
            self.huge.add(&self.vm);
            self.vm = machine(self.config, self.tunables)?;
        }
        Ok(())
    }

    /// Returns the counts of events of huge pages.
    pub fn huge_counts(&self) -> HugeCounts {
        let mut counts = self.huge;
        counts.add(&self.vm);
        counts.add(&self.with_pool);
        counts
    }

    /// The machine's subsystem.
    pub fn vm(&self) -> &Vm<Hosted> {
        &self.vm
    }

    fn model(&self) -> Model {
        let features = if self.sides.hosted { Features::default() } else { Features::all() };
        let model = Model::new(features);
        match self.sides {
            Sides { linux_pool: true, .. } => model.beside_linux_pool(),
            Sides { linux: true, .. } => model.beside_linux(),
            _ => model,
        }
    }

    /// Runs the steps and finds the first difference, if there is one. A sequence
    /// that leaves what the model knows is judged up to there.
    pub fn judge(&mut self, ops: &[Op]) -> Result<Option<Difference>, JudgeError> {
        let mut model = self.model();
        let expected: Vec<Expected> = ops.iter().map_while(|op| model.apply(op).ok()).collect();
        let ops = &ops[..expected.len()];
        let (outcomes, note_of_linux) = self.run_linux(ops, &expected)?;
        let mut notes = Vec::new();
        let hosted = self.sides.hosted.then(|| self.run_hosted(ops, &expected, &mut notes));
        notes.extend(note_of_linux);
        for (i, expected) in expected.iter().enumerate() {
            let linux = outcomes.as_ref().map(|outcomes| outcomes[i]);
            // In trouble more than this may be expected of the core.
            let of_core = hosted.as_ref().and_then(|hosted| hosted[i]);
            let wrong = match (linux.filter(|seen| !expected.allows(*seen)), of_core) {
                (Some(_), of_core) => Some((*expected, of_core.map(|(_, seen)| seen))),
                (None, Some((expected, seen))) if !expected.allows(seen) => Some((expected, Some(seen))),
                _ => None,
            };
            let note = notes.iter().find(|(step, _)| *step == i).map(|(_, note)| note.clone());
            if wrong.is_some() || note.is_some() {
                let (expected, hosted) = wrong.unwrap_or((*expected, of_core.map(|(_, seen)| seen)));
                let note = note.unwrap_or_default();
                return Ok(Some(Difference { step: i, expected: expected.outcome, linux, hosted, note }));
            }
        }
        let end = |(step, note): &(usize, String)| Difference {
            step: *step,
            expected: Outcome::Value(0),
            linux: None,
            hosted: None,
            note: note.clone(),
        };
        Ok(notes.first().map(end))
    }

    /// The outcome of each step on Linux, if it is asked, and the first step after which its pool is not as expected.
    fn run_linux(&mut self, ops: &[Op], expected: &[Expected]) -> Result<(Option<Vec<Outcome>>, Note), JudgeError> {
        let Some(linux) = self.linux.as_mut().filter(|linux| !has_pool(ops) || linux.has_pool()) else {
            return Ok((None, None));
        };
        let outcomes = linux.run_expecting(ops, expected).map_err(JudgeError::Linux)?;
        let of_pool = |(i, expected)| Some((i, linux.pool_differs(i, expected)?));
        Ok((Some(outcomes), expected.iter().enumerate().find_map(of_pool)))
    }

    fn vm_for(&self, ops: &[Op]) -> &Vm<Hosted> {
        if has_pool(ops) { &self.with_pool } else { &self.vm }
    }

    /// The expected and the actual outcome of each step; none of a step that was left out.
    fn run_hosted(&self, ops: &[Op], expected: &[Expected], notes: &mut Vec<(usize, String)>) -> Vec<OfCore> {
        let broken = |why| expected.iter().map(|expected| Some((*expected, Outcome::Broken(why)))).collect();
        let vm = self.vm_for(ops);
        let Ok(cpu) = vm.machine().bind(softfault::CpuId(0)) else { return broken(30) };
        let before = nr_free_pages(vm);
        let Some(mut programs) = Programs::new(vm) else { return broken(31) };
        let trouble = RefCell::new(self.trouble.map(|seed| Trouble::new(self.model(), seed)));
        let expect = |i: usize| match &mut *trouble.borrow_mut() {
            None => Some(expected[i]),
            Some(trouble) => trouble.expect(&ops[i]),
        };
        let of_core = RefCell::new(Vec::with_capacity(ops.len()));
        let wants = |i: usize| {
            let expected = expect(i);
            of_core.borrow_mut().push(expected);
            expected.is_some()
        };
        let outcomes = programs.run_wanted(&cpu, ops, wants, |programs, i| {
            if let Some(trouble) = &mut *trouble.borrow_mut() {
                notes.extend(make_trouble(vm, trouble, &ops[i], programs).map(|note| (i, note)));
            }
            let counts = of_core.borrow().last().copied().flatten().and_then(|expected: Expected| expected.pool);
            notes.extend(differs(vm, counts).map(|note| (i, note)));
            if notes.is_empty() && is_check_due(i, self.sides.check_every) {
                let reads_free = is_check_due(i, 0);
                notes.extend(check_some(vm, programs.spaces(), reads_free).map(|note| (i, note)));
            } else if notes.is_empty() && i + 1 == ops.len() {
                notes.extend(check_some(vm, programs.spaces(), false).map(|note| (i, note)));
            }
        });
        drop(programs);
        notes.extend(end_pool(vm, ops.iter()).map(|note| (ops.len(), note)));
        after_exit(vm, &cpu, before, ops.len(), notes);
        let of_core = of_core.into_inner().into_iter().zip(outcomes);
        of_core.map(|(expected, seen)| expected.map(|expected| (expected, seen))).collect()
    }

    /// Drops steps as long as a difference remains: the shortest sequence found,
    /// and its difference.
    pub fn minimise(&mut self, ops: &[Op], found: Difference) -> (Vec<Op>, Difference) {
        let ops = ops[..ops.len().min(found.step + 1)].to_vec();
        let blames = found.blames();
        shortest(ops, found, |fewer| {
            if self.linux.is_none() && self.sides.linux {
                return None;
            }
            match self.judge(fewer) {
                // Another difference may hide behind the one that is sought.
                Ok(other) => {
                    other.filter(|other| other.blames() == blames).map(|other| (other.clone(), other.step + 1))
                }
                Err(_) => {
                    // A child that was lost is replaced; that sequence is no use.
                    self.linux = None;
                    self.linux = start(self.sides).ok();
                    None
                }
            }
        })
    }
}

fn has_pool(ops: &[Op]) -> bool {
    ops.iter().any(|op| op.call.is_of_pool())
}

/// Lets the machine interfere after the step. Returns the defect, if there is one.
fn make_trouble(vm: &Vm<Hosted>, trouble: &mut Trouble, op: &Op, programs: &Programs<'_>) -> Option<String> {
    match trouble.turn_after(op) {
        Turn::Nothing => None,
        Turn::Daemon(daemon) => {
            daemon.run(vm);
            None
        }
        Turn::Failure(random) => trouble.fail_one(vm, programs, random).err(),
    }
}

fn after_exit(vm: &Vm<Hosted>, _cpu: &CpuGuard<'_>, before: u64, step: usize, notes: &mut Vec<(usize, String)>) {
    let after = nr_free_pages(vm);
    if after != before {
        notes.push((step, format!("{before} frames were free before the sequence and {after} after it")));
    }
    notes.extend(check_after_exit(vm).map(|note| (step, note)));
    if let (nr @ 1.., first) = vm.machine().violations() {
        notes.push((step, format!("{nr} violations of break before make: {}", first.unwrap_or_default())));
    }
}

/// Whether the checker is due after this step: every `every` steps, if that is not 0,
/// and every [`READ_EVERY`].
pub(crate) fn is_check_due(step: usize, every: usize) -> bool {
    [every, READ_EVERY].iter().any(|every| *every > 0 && step % every == every - 1)
}

/// I20 once all programs have ended: reads all free frames, which are nearly all that
/// there are.
pub(crate) fn check_after_exit<F: Format>(vm: &Vm<Hosted<F>>) -> Option<String> {
    crate::at_rest::check_free_is_zero(vm).err().map(|broken| format!("after the last exit: {broken}"))
}

/// The core's invariants at rest. `spaces` are all there are. Reads all free frames.
pub fn check<'s, 'vm: 's, F: Format>(
    vm: &'vm Vm<Hosted<F>>,
    spaces: impl Iterator<Item = &'s AddressSpace<'vm, Hosted<F>>>,
) -> Option<String> {
    check_some(vm, spaces, true)
}

/// The same; free frames are read only if asked for, since that takes most of the
/// time.
pub(crate) fn check_some<'s, 'vm: 's, F: Format>(
    vm: &'vm Vm<Hosted<F>>,
    spaces: impl Iterator<Item = &'s AddressSpace<'vm, Hosted<F>>>,
    reads_free: bool,
) -> Option<String> {
    let spaces: Vec<_> = spaces.collect();
    let mut counts = vec![0; vm.nr_frames() as usize + vm.machine().nr_swap_slots() as usize];
    let is_zero = || if reads_free { crate::at_rest::check_free_is_zero(vm) } else { Ok(()) };
    let broken = crate::at_rest::check(vm, &spaces, &mut counts).and_then(|()| is_zero()).err()?;
    let counted: Vec<String> = spaces
        .iter()
        .map(|space| {
            format!("{:?} of {} mapped pages in {} VMAs", space.rss_pages(), space.nr_mapped_pages(), space.nr_vmas())
        })
        .collect();
    Some(format!("the core's checker: {broken}; counted: {}", counted.join("; ")))
}
