//! Sequences from a fuzzer's bytes: a machine, and the calls to make on it.
//!
//! `coding.rs` has the format. Every string of bytes is a valid sequence: steps that the
//! model cannot predict, or that leave the allowed addresses, are skipped. The model judges
//! each step; at the end the core's checker runs, and all frames must be free again.

mod coding;
pub mod memory;

use crate::formats::Tested;
use crate::generate::Sequence;
use crate::hosted::{Programs, nr_free_pages};
use crate::judge::{check_after_exit, check_some};
use crate::lockstep;
use crate::model::{Expected, Model};
use crate::numbers::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MREMAP_FIXED};
use crate::op::{Call, HEAP, HEAP_BYTES, Op, PAGE, WINDOW, WINDOW_PAGES};
use crate::shortest::shortest;
use softfault::table::format::X86_64;
use softfault::{CpuId, FaultLocking, Tunables, Vm};
use softfault_host::{Hosted, Mode};
use std::cell::RefCell;

/// Runs bytes; an error, or a panic, is a finding.
pub type Target = fn(&[u8]) -> Result<(), String>;

/// The fuzz targets, which are the programs and the folders of corpora in `fuzz`.
pub const TARGETS: [(&str, Target); 3] = [("calls", run), ("memory", memory::run), ("parsers", softfault_parsers::run)];

/// Steps of a sequence; what follows is not read.
pub const MAX_STEPS: usize = 256;
/// Pages that one call may map.
const MAX_PAGES: u64 = 4096;
/// Pages that a sequence may ask for in all, copies by fork included; what would
/// exceed them is left out, so that frames never run out.
const BUDGET_PAGES: u64 = 8192;
/// Room for all of them, their tables, and the core's own data. Small, because
/// the checker looks at each frame.
const ARENA_BYTES: u64 = 40 << 20;
/// Kinds of machines.
const NR_KINDS: usize = 4;

thread_local! {
    /// The machines that earlier runs have left, by kind; a new one takes longer than a run. Frames begin with what the run
    /// before has left in them.
    static KEPT: RefCell<[Option<Hosted>; NR_KINDS]> = const { RefCell::new([const { None }; NR_KINDS]) };
}

const MAP_FIXED_ANY: u64 = MAP_FIXED | MAP_FIXED_NOREPLACE;

/// The machine that a sequence runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// How faults synchronise.
    pub fault_locking: FaultLocking,
    /// How invalidations reach other CPUs.
    pub mode: Mode,
    /// Three CPUs do the steps in turn, instead of one.
    pub several: bool,
    /// With several, decides whose turn it is.
    pub seed: u8,
}

/// A machine and what to do on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The machine.
    pub setup: Setup,
    /// The steps, with what has to come of each.
    pub steps: Sequence,
}

/// Runs the sequence that the bytes are.
///
/// # Errors
///
/// A difference, and the shortest sequence found that shows one.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let (setup, ops) = coding::decode(bytes);
    let case = Case::new(setup, ops);
    let kept = KEPT.with_borrow_mut(|all| all[setup.kind()].take());
    let machine = kept.map_or_else(|| setup.machine::<X86_64>(), Ok)?;
    let machine = case.judge_on(machine).map_err(|found| case.shortest::<X86_64>(found))?;
    KEPT.with_borrow_mut(|all| all[setup.kind()] = Some(machine));
    Ok(())
}

/// The same on a new machine with other page tables.
///
/// # Errors
///
/// As [`run`].
pub fn run_on<F: Tested>(bytes: &[u8]) -> Result<(), String> {
    let (setup, ops) = coding::decode(bytes);
    let case = Case::of::<F>(setup, ops);
    case.judge_on_new::<F>().map_err(|found| case.shortest::<F>(found))
}

impl Case {
    /// Decodes the bytes.
    pub fn decode(bytes: &[u8]) -> Case {
        let (setup, ops) = coding::decode(bytes);
        Case::new(setup, ops)
    }

    /// Of these steps those that can be judged.
    pub fn new(setup: Setup, ops: impl IntoIterator<Item = Op>) -> Case {
        Case::of::<X86_64>(setup, ops)
    }

    fn of<F: Tested>(setup: Setup, ops: impl IntoIterator<Item = Op>) -> Case {
        let (mut model, mut budget) = (Model::default().with_task_size(F::TASK_SIZE), BUDGET_PAGES);
        let judged = |op: Op| {
            let op = within_bounds(&model, op)?;
            budget = budget.checked_sub(cost(&model, &op))?;
            let expected = model.apply(&op).ok()?;
            Some((op, expected))
        };
        Case { setup, steps: ops.into_iter().filter_map(judged).take(MAX_STEPS).collect() }
    }

    /// Bytes that mean this. Values that are stored keep only their lowest byte.
    pub fn encode(&self) -> Vec<u8> {
        coding::encode(self.setup, self.steps.iter().map(|(op, _)| op))
    }

    /// Runs it on a machine of its own.
    ///
    /// # Errors
    ///
    /// The first difference, and the steps up to it.
    pub fn judge(&self) -> Result<(), String> {
        self.judge_on_new::<X86_64>()
    }

    fn judge_on_new<F: Tested>(&self) -> Result<(), String> {
        self.judge_on(self.setup.machine::<F>()?).map(drop)
    }

    /// Gives the machine back. One that a run has broken is not used again.
    fn judge_on<F: Tested>(&self, machine: Hosted<F>) -> Result<Hosted<F>, String> {
        let tunables = Tunables::default().with_fault_locking(self.setup.fault_locking);
        let vm = Vm::new(machine, tunables).map_err(|error| error.to_string())?;
        let found = if self.setup.several {
            let last = self.steps.len().max(1);
            lockstep::run(&vm, &self.steps, self.setup.seed.into(), last).map(|found| (found.step, found.to_string()))
        } else {
            alone(&vm, &self.steps)
        };
        match found {
            None => Ok(vm.into_machine()),
            Some((step, what)) => {
                let shown = self.steps.iter().take(step.saturating_add(1));
                let text: Vec<String> = shown.map(|(op, _)| format!("  {op}")).collect();
                Err(format!("{:?}: {what}\n{}", self.setup, text.join("\n")))
            }
        }
    }
}

impl Case {
    /// Drops steps as long as something differs: the last difference found.
    fn shortest<F: Tested>(&self, found: String) -> String {
        let ops = self.steps.iter().map(|(op, _)| *op).collect();
        let judge = |fewer: &[Op]| Case::of::<F>(self.setup, fewer.iter().copied()).judge_on_new::<F>().err();
        shortest(ops, found, |fewer| judge(fewer).map(|difference| (difference, fewer.len()))).1
    }
}

impl Setup {
    /// The number of CPUs and the mode, which cannot change.
    fn kind(self) -> usize {
        2 * usize::from(self.several) + usize::from(self.mode == Mode::Broadcast)
    }

    /// A machine that no run has used.
    fn machine<F: Tested>(self) -> Result<Hosted<F>, String> {
        let config = F::config()
            .with_nr_cpus(if self.several { 4 } else { 1 })
            .with_mode(self.mode)
            .with_arena_bytes(ARENA_BYTES)
            .with_huge(true)
            .with_tlb_entries(64)
            .with_zeroed(false)
            .with_strict_bbm(true);
        Hosted::with_format(config).map_err(|error| error.to_string())
    }
}

/// On one CPU: the first step that differs, and how.
fn alone<F: Tested>(vm: &Vm<Hosted<F>>, steps: &[(Op, Expected)]) -> Option<(usize, String)> {
    let at_end = |what: String| Some((steps.len(), what));
    let Ok(cpu) = vm.machine().bind(CpuId(0)) else { return at_end("CPU 0 is not free".into()) };
    let before = nr_free_pages(vm);
    let Some(mut programs) = Programs::new(vm) else { return at_end("no room for a program".into()) };
    let ops: Vec<Op> = steps.iter().map(|(op, _)| *op).collect();
    let seen = programs.run(&cpu, &ops, |_, _| {});
    let wrong = steps.iter().zip(&seen).position(|((_, expected), seen)| !expected.allows(*seen));
    if let Some(step) = wrong {
        return Some((step, format!("step {step}: model {}, softfault {}", steps[step].1.outcome, seen[step])));
    }
    let broken = check_some(vm, programs.spaces(), false);
    drop(programs);
    let broken = broken.or_else(|| check_after_exit(vm));
    let after = nr_free_pages(vm);
    if let (nr @ 1.., first) = vm.machine().violations() {
        return at_end(format!("{nr} violations of break before make: {}", first.unwrap_or_default()));
    }
    if after != before {
        return at_end(format!("{before} frames were free before and {after} after"));
    }
    broken.and_then(at_end)
}

/// The window with what a mapping at its end may grow into.
fn is_windows(addr: u64) -> bool {
    (WINDOW..WINDOW + (WINDOW_PAGES + MAX_PAGES) * PAGE).contains(&addr)
}

fn is_heaps(addr: u64) -> bool {
    (HEAP..HEAP + HEAP_BYTES / 2).contains(&addr)
}

fn is_canonical(addr: u64) -> bool {
    !(1 << 47..!0 << 47).contains(&addr)
}

/// Lengths that succeed and that a map of pages cannot hold.
fn is_too_long(model: &Model, len: u64) -> bool {
    (MAX_PAGES * PAGE + 1..=model.task_size).contains(&len)
}

/// Whether a mapping may be put there, or the call fails for the address alone.
fn may_be_put(model: &Model, addr: u64, len: u64) -> bool {
    let is_reachable = model.task_size.checked_sub(len).is_some_and(|last| addr <= last);
    is_windows(addr) || is_heaps(addr) || !addr.is_multiple_of(PAGE) || !is_reachable
}

/// The step, made to keep to the window, the heap and what must fail; `None` if
/// it cannot be.
fn within_bounds(model: &Model, mut op: Op) -> Option<Op> {
    let [a, b, c, d, e, f] = op.args;
    if !model.programs().any(|alive| alive == op.who) {
        return None;
    }
    let good = match op.call {
        Call::Mmap => {
            op.args[4] = landing(model, op.who, e, b);
            if a < 16 * PAGE {
                op.args[3] = d & !MAP_GROWSDOWN;
            }
            // A hint in the heap, or close to the window, is nobody's to predict.
            let hint = (WINDOW..WINDOW + WINDOW_PAGES * PAGE).contains(&a) || !is_near(a);
            !is_too_long(model, b) && if d & MAP_FIXED_ANY != 0 { may_be_put(model, a, b) } else { hint }
        }
        Call::Mremap => {
            op.args[5] = landing(model, op.who, f, c);
            let fixed = d & MREMAP_FIXED != 0;
            let ours = is_windows(a) || is_heaps(a) || model.rights(op.who, a).is_none();
            !is_too_long(model, c) && ours && (!fixed || may_be_put(model, e, c))
        }
        Call::Load | Call::Store if b == 8 => {
            op.args[0] = a & !7;
            is_canonical(a)
        }
        Call::Load | Call::Store | Call::Exec => is_canonical(a),
        _ => true,
    };
    good.then_some(op)
}

/// Pages that the step may come to need.
fn cost(model: &Model, op: &Op) -> u64 {
    let pages = |len: u64| if len > model.task_size { 0 } else { len.div_ceil(PAGE) };
    match op.call {
        Call::Mmap => pages(op.args[1]),
        Call::Mremap => pages(op.args[2]),
        Call::Brk => pages(op.args[0].saturating_sub(model.break_of(op.who))),
        Call::Fork => model.pages(op.who).count() as u64,
        _ => 0,
    }
}

/// Where the machine looks whether a mapping is the sequence's.
fn is_near(addr: u64) -> bool {
    let margin = 64 << 20;
    (WINDOW - margin - MAX_PAGES * PAGE..WINDOW + WINDOW_PAGES * PAGE + margin).contains(&addr)
        || (HEAP - MAX_PAGES * PAGE..HEAP + HEAP_BYTES).contains(&addr)
}

/// A landing has to be a hole of the window.
fn landing(model: &Model, who: u64, addr: u64, len: u64) -> u64 {
    let addr = addr & !(PAGE - 1);
    let (first, nr) = (addr / PAGE, len.div_ceil(PAGE));
    let inside = is_windows(addr) && nr <= MAX_PAGES && first + nr <= WINDOW / PAGE + WINDOW_PAGES;
    if inside && model.is_hole(who, first, first + nr) { addr } else { 0 }
}
