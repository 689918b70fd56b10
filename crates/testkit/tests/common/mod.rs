//! Shared by the tests of this folder: machines in every shootdown and fault-locking mode,
//! several CPUs in one address space, and the checks at the end.
#![allow(dead_code)] // each test file uses its part

pub mod files;
pub mod format;
pub mod huge;
pub mod moving;
pub mod objects;
pub mod pins;
pub mod plain;
pub mod stops;
pub mod storage;
pub mod swapped;
pub mod turns;

pub use format::*;
use softfault::policy::huge::Enabled;
use softfault::{
    AddressSpace, Advice, CpuId, FaultLocking, FrameRange, HugeKnobs, HugetlbLocking, Machine, MapFlags, MremapFlags,
    Pfn, Prot, RssPages, Tunables, Vm,
};
use softfault_host::Mode;
use softfault_testkit::fatal::as_one_of_several;
use softfault_testkit::formats::Tested;
#[allow(unused_imports)] // each test file uses its part
pub use softfault_testkit::watchdog::{PATIENCE, Patience, let_others_run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

pub const PAGE: u64 = 4096;
pub const NONE: Prot = Prot::NONE;
pub const READ: Prot = Prot::READ;
pub const RW: Prot = Prot::READ.union(Prot::WRITE);
pub const RWX: Prot = Prot::READ.union(Prot::WRITE).union(Prot::EXEC);

pub const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::ANONYMOUS);
pub const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);
pub const FIXED: MapFlags = MapFlags::FIXED;
pub const GROWSDOWN: MapFlags = MapFlags::GROWSDOWN;

pub const MAYMOVE: MremapFlags = MremapFlags::MAYMOVE;
pub const MREMAP_FIXED: MremapFlags = MremapFlags::FIXED;
pub const DONTUNMAP: MremapFlags = MremapFlags::DONTUNMAP;

pub const DONTNEED: Advice = Advice::DontNeed;
pub const FREE: Advice = Advice::Free;
pub const DONTFORK: Advice = Advice::DontFork;
pub const DOFORK: Advice = Advice::DoFork;
pub const WIPEONFORK: Advice = Advice::WipeOnFork;
pub const POPULATE_READ: Advice = Advice::PopulateRead;
pub const POPULATE_WRITE: Advice = Advice::PopulateWrite;
pub const GUARD_INSTALL: Advice = Advice::GuardInstall;
pub const GUARD_REMOVE: Advice = Advice::GuardRemove;

/// Frames of what is added and removed.
pub const SECTION: u64 = 1 << 15;

/// Where the tests map with `FIXED`: in the middle of a leaf table.
pub const BASE: u64 = 0x10_0008_0000;

/// One way to run a test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub fault_locking: FaultLocking,
    pub mode: Mode,
    pub strict_bbm: bool,
}

impl Setup {
    /// The plain one.
    pub const PLAIN: Setup = Setup { fault_locking: FaultLocking::Lockfree, mode: Mode::Interrupt, strict_bbm: false };

    /// Each fault-locking mode in each mode with the check for break-before-make, which
    /// slows TLB fills down; the default fault-locking mode also at full speed.
    pub fn all() -> Vec<Setup> {
        let modes = [Mode::Interrupt, Mode::Broadcast];
        if !IS_FULL {
            return modes.map(|mode| Setup { mode, strict_bbm: mode == Mode::Broadcast, ..Setup::PLAIN }).to_vec();
        }
        let strict = FaultLocking::ALL
            .into_iter()
            .flat_map(|fault_locking| modes.map(|mode| Setup { fault_locking, mode, strict_bbm: true }));
        strict.chain(modes.map(|mode| Setup { mode, ..Setup::PLAIN })).collect()
    }

    pub fn vm(self, nr_cpus: usize, arena_bytes: u64) -> Vm<Hosted> {
        let (mode, strict_bbm) = (self.mode, self.strict_bbm);
        let config = Format::config()
            .with_nr_cpus(nr_cpus)
            .with_arena_bytes(arena_bytes)
            .with_mode(mode)
            .with_strict_bbm(strict_bbm)
            .with_tlb_entries(64);
        let hosted = Hosted::with_format(config).unwrap();
        // The patch of 2004 has two ways to count; one for each mode.
        let rss_percpu = self.mode == Mode::Broadcast;
        // Most tests count small pages; those of huge ones turn the knob themselves.
        let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
        let tunables =
            Tunables::default().with_fault_locking(self.fault_locking).with_rss_percpu(rss_percpu).with_thp(thp);
        // Likewise the disciplines of faults on pages of pools; `one` beside the other lock of a whole space.
        let hugetlb = match (self.fault_locking, self.mode) {
            (FaultLocking::Global, _) => HugetlbLocking::One,
            (_, Mode::Broadcast) => HugetlbLocking::Table,
            _ => HugetlbLocking::Lockfree,
        };
        let tunables = tunables.with_hugetlb_locking(hugetlb);
        // Most tests of files say which page is read when.
        Vm::new(hosted, tunables.with_readahead_bytes(0)).unwrap()
    }
}

pub type Space<'vm> = AddressSpace<'vm, Hosted>;

/// A machine whose CPU 0 is the test's thread, with one address space.
pub struct World<'a> {
    pub vm: &'a Vm<Hosted>,
    pub cpu: &'a CpuGuard<'a>,
    pub space: &'a Space<'a>,
}

/// The work of one of the other CPUs, until it is told to stop.
pub type Actor<'a> = &'a (dyn Fn(&Running<'_>, &AtomicBool) + Sync);

/// Runs a test in every setup; afterwards everything has to be whole and back.
pub fn in_each_setup(nr_cpus: usize, arena_bytes: u64, test: impl Fn(&World<'_>)) {
    for setup in Setup::all() {
        eprintln!("{setup:?}");
        in_setup(setup, nr_cpus, arena_bytes, &test);
    }
}

/// The same in one setup.
pub fn in_setup(setup: Setup, nr_cpus: usize, arena_bytes: u64, test: impl Fn(&World<'_>)) {
    let vm = setup.vm(nr_cpus, arena_bytes);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let free_before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        test(&World { vm: &vm, cpu: &cpu, space: &space });
        check(&vm, &[&space]);
    }
    check(&vm, &[]);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(&vm), Ok(()));
    assert_eq!(vm.vmstat().nr_free_pages, free_before, "frames were lost or freed twice");
    assert_eq!(vm.machine().violations(), (0, None));
}

/// Lets other CPUs run until they have done something.
///
/// # Panics
///
/// After [`PATIENCE`], so that a test whose other thread has failed ends.
pub fn wait_until(done: impl Fn() -> bool) {
    let patience = Patience::new("the other CPUs get nowhere");
    while !done() {
        patience.check();
        thread::yield_now();
    }
}

/// Returns the message with which `call` panics.
pub fn panics(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("should panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_string())
}

/// The frame that the page at `at` is mapped to.
pub fn frame_of(space: &Space<'_>, at: u64) -> Pfn {
    space.translate_at_rest(at).unwrap().pfn
}

/// Frames that are free or in the caches of CPUs.
pub fn nr_free(w: &World<'_>) -> u64 {
    w.vm.vmstat().nr_free_pages
}

/// Every invariant that can be checked at rest.
pub fn check(vm: &Vm<Hosted>, spaces: &[&Space<'_>]) {
    let mut counts = vec![0; vm.nr_frames() as usize + vm.machine().nr_swap_slots() as usize];
    if let Err(broken) = softfault_testkit::at_rest::check(vm, spaces, &mut counts) {
        panic!("{broken}");
    }
}

/// Ends the loops of the other CPUs, also when the test fails: a scope waits for its threads then.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl World<'_> {
    /// CPUs 1, 2, ... run the actors in the world's space while CPU 0 runs `own`;
    /// when that is over, they are told to stop.
    pub fn race<T>(&self, actors: &[Actor<'_>], own: impl FnOnce(&Running<'_>) -> T) -> T {
        let stop = AtomicBool::new(false);
        let start = Barrier::new(actors.len() + 1);
        let play = |i: usize| {
            let cpu = self.vm.machine().bind(CpuId(i as u16 + 1)).unwrap();
            let running = cpu.enter(self.space).unwrap();
            start.wait();
            actors[i](&running, &stop);
        };
        thread::scope(|scope| {
            let play = &play;
            (0..actors.len()).for_each(|i| drop(scope.spawn(move || as_one_of_several(|| play(i)))));
            let _stop = StopAtEnd(&stop);
            start.wait();
            as_one_of_several(|| own(&self.cpu.enter(self.space).unwrap()))
        })
    }

    /// Maps private memory at a fixed place.
    pub fn map(&self, at: u64, nr_pages: u64, prot: Prot) {
        assert_eq!(self.space.mmap(at, nr_pages * PAGE, prot, PRIVATE | FIXED), Ok(at));
    }

    pub fn rss(&self) -> RssPages {
        self.space.rss_pages()
    }
}

/// Frames by what they are used for; free ones last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    pub nr_tables: u64,
    /// Nodes of VMA trees: a pool that a space keeps once it has grown.
    pub nr_tree: u64,
    /// Nodes of shared objects.
    pub nr_objects: u64,
    pub nr_free: u64,
}

impl Frames {
    pub fn count(vm: &Vm<Hosted>) -> Frames {
        let mut frames = Frames { nr_free: vm.vmstat().nr_free_pages, ..Frames::default() };
        for pfn in 1..vm.nr_frames() as u32 {
            let addr = vm.machine().frame_ptr(Pfn(pfn)).addr();
            match vm.describe(addr).map(|place| place.structure) {
                Some("table") => frames.nr_tables += 1,
                Some("tree") => frames.nr_tree += 1,
                Some("object") => frames.nr_objects += 1,
                _ => {}
            }
        }
        frames
    }
}

pub fn section(nr: u64) -> FrameRange {
    FrameRange { first: Pfn((nr * SECTION) as u32), nr_frames: SECTION }
}

pub fn dirty_pages(space: &Space<'_>) -> u64 {
    let mut nr = 0;
    space.smaps(&mut |entry| nr += entry.dirty_pages);
    nr
}

/// Steps that `f` takes in the core.
pub fn steps_of(f: impl FnOnce()) -> u64 {
    let before = softfault_host::nr_steps();
    f();
    softfault_host::nr_steps() - before
}

/// The error in words.
pub fn text<T>(result: Result<T, impl std::fmt::Display>) -> Result<(), String> {
    result.map(drop).map_err(|e| e.to_string())
}

/// The same of a space, which is kept.
pub fn keep<'a>(others: &mut Vec<Space<'a>>, made: Result<Space<'a>, impl std::fmt::Display>) -> Result<(), String> {
    made.map(|space| others.push(space)).map_err(|e| e.to_string())
}
