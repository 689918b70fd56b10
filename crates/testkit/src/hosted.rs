//! Sequences on the hosted machine: each step on one of its CPUs, in turn.
//!
//! A CPU stays in its address space between steps and leaves it only for another program's
//! step, so translations go stale unless the core shoots them down.

mod files;
mod pool;

use crate::numbers::MAP_HUGETLB;
use crate::op::{Call, HEAP, HUGE, KnobBits, Op, Outcome, PAGE, is_ours};
use core::fmt;
pub use files::Files;
pub(crate) use pool::{differs, end_pool};
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::table::format::{Format, X86_64};
use softfault::{
    AddressSpace, Advice, Errno, Event, FaultError, HugeKnobs, MapFlags, MremapFlags, Order, Prot, SharedObject, Vm,
};
use softfault_host::{CpuGuard, Hosted, Running, Trap};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The programs of one sequence.
pub struct Programs<'vm, F: Format = X86_64> {
    vm: &'vm Vm<Hosted<F>>,
    spaces: BTreeMap<u64, AddressSpace<'vm, Hosted<F>>>,
    objects: Objects<'vm, F>,
}

/// Objects that steps make once, and all programs have then.
pub struct Objects<'vm, F: Format> {
    files: OnceLock<Files<'vm, F>>,
    pool_file: OnceLock<SharedObject<'vm, Hosted<F>>>,
}

impl<F: Format> Default for Objects<'_, F> {
    fn default() -> Self {
        Objects { files: OnceLock::new(), pool_file: OnceLock::new() }
    }
}

impl<'vm, F: Format> Programs<'vm, F> {
    /// The first program, in an empty address space; `None` if the machine has
    /// no room for it.
    pub fn new(vm: &'vm Vm<Hosted<F>>) -> Option<Programs<'vm, F>> {
        let space = vm.new_space().ok()?;
        space.set_brk(HEAP);
        Some(Programs { vm, spaces: BTreeMap::from([(0, space)]), objects: Objects::default() })
    }

    /// The address space of a program.
    pub fn space(&self, who: u64) -> Option<&AddressSpace<'vm, Hosted<F>>> {
        self.spaces.get(&who)
    }

    /// All address spaces.
    pub fn spaces(&self) -> impl Iterator<Item = &AddressSpace<'vm, Hosted<F>>> {
        self.spaces.values()
    }

    /// Runs a sequence on one CPU. `after` is called behind every step.
    pub fn run(
        &mut self,
        cpu: &CpuGuard<'_, F>,
        ops: &[Op],
        after: impl FnMut(&Programs<'vm, F>, usize),
    ) -> Vec<Outcome> {
        self.run_wanted(cpu, ops, |_| true, after)
    }

    /// The same without the steps that `wants` denies: their outcome is none.
    pub(crate) fn run_wanted(
        &mut self,
        cpu: &CpuGuard<'_, F>,
        ops: &[Op],
        mut wants: impl FnMut(usize) -> bool,
        mut after: impl FnMut(&Programs<'vm, F>, usize),
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut place = None;
        for (i, op) in ops.iter().enumerate() {
            if !wants(i) {
                outcomes.push(Outcome::Broken(26));
                continue;
            }
            if place != Some(op.who) {
                if let Some(space) = place.and_then(|who| self.space(who)) {
                    cpu.depart(space);
                }
                place = self.space(op.who).map(|space| cpu.arrive(space)).and_then(Result::ok).map(|()| op.who);
            }
            let outcome = match op.call {
                Call::Exit => {
                    self.space(op.who).inspect(|space| cpu.depart(space));
                    place = None;
                    self.exit(op.who)
                }
                Call::Fork => self.fork(op),
                _ => self.step(cpu, op),
            };
            outcomes.push(outcome);
            after(self, i);
        }
        if let Some(space) = place.and_then(|who| self.space(who)) {
            cpu.depart(space);
        }
        outcomes
    }

    /// Exit of a program whose space no CPU is in.
    pub fn exit(&mut self, who: u64) -> Outcome {
        self.spaces.remove(&who).map_or(Outcome::Broken(20), |_| Outcome::Value(0))
    }

    /// Fork, as program `op.who`.
    pub fn fork(&mut self, op: &Op) -> Outcome {
        let Some(parent) = self.space(op.who) else { return Outcome::Broken(21) };
        match parent.fork() {
            Ok(child) => {
                self.spaces.insert(op.args[0], child);
                Outcome::Value(0)
            }
            Err(error) => errno(error.errno()),
        }
    }

    /// Any other step, on a CPU that is in the program's space or in none.
    pub fn step(&self, cpu: &CpuGuard<'_, F>, op: &Op) -> Outcome {
        let Some(space) = self.space(op.who) else { return Outcome::Broken(22) };
        match cpu.enter(space) {
            Ok(running) => step(self.vm, &running, &self.objects, op),
            Err(_) => Outcome::Broken(23),
        }
    }
}

/// Returns the frames that are free, or were and are no memory any more; the huge zero page stays once it is there.
pub fn nr_free_pages<F: Format>(vm: &Vm<Hosted<F>>) -> u64 {
    vm.vmstat().nr_free_pages + 512 * vm.event(Event::ThpZeroPageAlloc) + vm.event(Event::FramesPoisoned)
}

/// Counts of events of huge pages, and of free frames that are not zero, by word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugeCounts {
    /// Faults that got one of 2 MiB.
    pub nr_faults: u64,
    /// Faults that got one of 16 KiB to 1 MiB.
    pub nr_mid: u64,
    /// Mappings split.
    pub nr_splits: u64,
    /// Pages made of small ones.
    pub nr_collapsed: u64,
    /// Frames moved by compaction.
    pub nr_migrated: u64,
    /// Frames whose memory has failed.
    pub nr_failed: u64,
    /// Free frames that are not zero, by word of their block's bitmaps.
    pub nr_dirty: [u64; 8],
}

impl HugeCounts {
    /// Adds those of a machine.
    pub fn add<F: Format>(&mut self, vm: &Vm<Hosted<F>>) {
        let mid = |order: u8| vm.huge_stat(Order(order)).map_or(0, |stat| stat.anon_fault_alloc);
        self.nr_faults += vm.event(Event::ThpFaultAlloc);
        self.nr_mid += (2..9).map(mid).sum::<u64>();
        self.nr_splits += vm.event(Event::ThpSplitPmd);
        self.nr_collapsed += vm.event(Event::Collapsed);
        self.nr_migrated += vm.event(Event::PgmigrateSuccess);
        self.nr_failed += vm.event(Event::FramesPoisoned);
        self.nr_dirty.iter_mut().zip(vm.nr_dirty_by_word()).for_each(|(nr, more)| *nr += more);
    }
}

impl core::ops::AddAssign for HugeCounts {
    fn add_assign(&mut self, more: HugeCounts) {
        self.nr_faults += more.nr_faults;
        self.nr_mid += more.nr_mid;
        self.nr_splits += more.nr_splits;
        self.nr_collapsed += more.nr_collapsed;
        self.nr_migrated += more.nr_migrated;
        self.nr_failed += more.nr_failed;
        self.nr_dirty.iter_mut().zip(more.nr_dirty).for_each(|(nr, more)| *nr += more);
    }
}

impl fmt::Display for HugeCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HugeCounts { nr_faults, nr_mid, nr_splits, nr_collapsed, nr_migrated, nr_failed, nr_dirty: _ } = self;
        write!(
            f,
            "huge pages: {nr_faults} faults, {nr_mid} of 16 KiB to 1 MiB, {nr_splits} splits, {nr_collapsed} collapses, \
             {nr_migrated} frames moved, {nr_failed} failed"
        )
    }
}

/// The knobs that a step sets.
pub fn knobs(bits: KnobBits) -> HugeKnobs {
    let enabled = [Enabled::Always, Enabled::Madvise, Enabled::Never][bits.enabled() as usize];
    let cow = if bits.copies_whole() { CowHuge::Copy } else { CowHuge::Split };
    let mut knobs = HugeKnobs::DEFAULT.with_enabled(enabled).with_cow(cow).with_use_zero_page(bits.zero_page());
    // A huge page that is mostly zeroes is underused: with the default none is.
    knobs.khugepaged.max_ptes_none = 256;
    if bits.all_sizes() {
        knobs.sizes.fill(SizeEnabled::Always);
    }
    knobs
}

/// One step of the program that is running.
pub fn step<'vm, F: Format>(
    vm: &'vm Vm<Hosted<F>>,
    running: &Running<'_, F>,
    objects: &Objects<'vm, F>,
    op: &Op,
) -> Outcome {
    let Some(of_file) = objects.files.get() else { return step_alone(vm, running, objects, op) };
    of_file.until_read(op, || step_alone(vm, running, objects, op))
}

fn step_alone<'vm, F: Format>(
    vm: &'vm Vm<Hosted<F>>,
    running: &Running<'_, F>,
    objects: &Objects<'vm, F>,
    op: &Op,
) -> Outcome {
    let (space, files) = (running.space(), &objects.files);
    let [a, b, c, d, e, f] = op.args;
    match op.call {
        Call::Mmap => {
            let at = space.mmap(a, b, Prot::from_linux(c), MapFlags::from_linux(d));
            settle(space, at.map_err(|e| e.errno()), in_pages_of(b, d), e)
        }
        Call::Mremap => {
            let at = space.mremap(a, b, c, MremapFlags::from_linux(d), e);
            settle(space, at.map_err(|e| e.errno()), c, f)
        }
        Call::Munmap => plain(space.munmap(a, b).map_err(|e| e.errno())),
        Call::Mprotect => plain(space.mprotect(a, b, Prot::from_linux(c)).map_err(|e| e.errno())),
        Call::Madvise => match Advice::from_linux(c) {
            Ok(advice) => plain(space.madvise(a, b, advice).map_err(|e| e.errno())),
            Err(unknown) => errno(unknown.errno()),
        },
        Call::Brk => Outcome::Value(space.brk(a)),
        Call::Mincore => mincore(space, a, b),
        Call::Load if b == 1 => {
            let mut byte = [0];
            access(running.load(a, &mut byte), |()| u64::from(byte[0]))
        }
        Call::Load => access(running.read_u64(a), |word| word),
        Call::Store if b == 1 => access(running.store(a, &[c as u8]), |()| 0),
        Call::Store => access(running.write_u64(a, c), |()| 0),
        Call::Exec => access(running.fetch(a), |_| 0),
        Call::Knobs => vm.set_huge_knobs(&knobs(KnobBits(a))).map_or_else(|e| errno(e.errno()), |()| Outcome::Value(0)),
        Call::ThpDisable => {
            space.set_thp_disable(a != 0);
            Outcome::Value(0)
        }
        Call::MakeFiles => match Files::new(vm) {
            Some(made) => files.set(made).map_or(Outcome::Broken(27), |()| Outcome::Value(0)),
            None => Outcome::Broken(28),
        },
        Call::MmapFile => match files.get() {
            Some(files) => settle(space, files.map(space, op), b, e),
            None => Outcome::Broken(29),
        },
        Call::FileSize | Call::FilePunch | Call::FileRead | Call::FileWrite => match files.get() {
            Some(files) => files.step(op),
            None => Outcome::Broken(30),
        },
        Call::PoolFile => match pool::new_file(vm, a) {
            Ok(made) => objects.pool_file.set(made).map_or(Outcome::Broken(32), |()| Outcome::Value(0)),
            Err(refused) => refused,
        },
        call if call.is_of_pool() => pool::step(vm, space, objects.pool_file.get(), op),
        _ => Outcome::Broken(24),
    }
}

fn errno(errno: Errno) -> Outcome {
    Outcome::Errno(errno.0 as u64)
}

fn plain(result: Result<(), Errno>) -> Outcome {
    result.map_or_else(errno, |()| Outcome::Value(0))
}

fn access<T>(result: Result<T, Trap>, value: impl FnOnce(T) -> u64) -> Outcome {
    match result {
        Ok(done) => Outcome::Value(value(done)),
        Err(trap) => signal_of(trap.cause),
    }
}

/// A kernel's reaction to a fault that the core refuses.
fn signal_of(cause: FaultError) -> Outcome {
    match cause {
        FaultError::NotMapped => Outcome::MAPERR,
        FaultError::Guard => Outcome::MAPERR,
        FaultError::NoRights => Outcome::ACCERR,
        FaultError::BeyondObject | FaultError::NotRead | FaultError::NoRoom => Outcome::ADRERR,
        FaultError::NoHugePage | FaultError::Taken => Outcome::ADRERR,
        FaultError::Poisoned => Outcome::MCEERR,
        _ => Outcome::Broken(25),
    }
}

/// As the child on Linux: a place of the callee's choice is moved to `landing`.
fn settle<F: Format>(space: &AddressSpace<'_, Hosted<F>>, at: Result<u64, Errno>, len: u64, landing: u64) -> Outcome {
    let at = match at {
        Ok(at) => at,
        Err(error) => return errno(error),
    };
    if is_ours(at) {
        return Outcome::Value(at);
    }
    let len = len.next_multiple_of(PAGE);
    let moved = match landing {
        0 => space.munmap(at, len).is_ok(),
        _ => space.mremap(at, len, len, MremapFlags::MAYMOVE | MremapFlags::FIXED, landing) == Ok(landing),
    };
    if moved { Outcome::Elsewhere } else { Outcome::Broken(3) }
}

/// The length, as a mapping with these flags has it.
fn in_pages_of(len: u64, flags: u64) -> u64 {
    if flags & MAP_HUGETLB != 0 { len.next_multiple_of(HUGE) } else { len }
}

fn mincore<F: Format>(space: &AddressSpace<'_, Hosted<F>>, addr: u64, len: u64) -> Outcome {
    let (mut bits, mut nr) = (0u64, 0u32);
    let result = space.mincore(addr, len, &mut |nr_pages, here| {
        (nr..64).take(nr_pages as usize).for_each(|bit| bits |= u64::from(here) << bit);
        nr = nr.saturating_add(u32::try_from(nr_pages).unwrap_or(u32::MAX));
    });
    match result {
        Ok(()) if nr <= 64 => Outcome::Value(bits),
        Ok(()) => Outcome::Value(0),
        Err(error) => errno(error.errno()),
    }
}
