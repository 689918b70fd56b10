//! For unit tests: memory, one CPU or some, a clock that steps when it is read.
#![allow(unsafe_code)]

use crate::addr::{BlockId, OptPfn, PAGE_SIZE, Pfn};
use crate::frame::FrameKind;
use crate::links::LookupSection;
use crate::linux::{MapFlags, Prot};
use crate::machine::FrameRange;
use crate::machine::{CpuId, CpuSet, Flush, Machine, MemoryNode, SpaceTag};
use crate::policy;
use crate::policy::fault::{FaultPlan, FaultQuestion};
use crate::space::Vm;
use crate::sync::Word;
use crate::table::format::X86_64;
use crate::tunables::Tunables;
use crate::vm::NewVmError;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::sync::mpsc;
use std::vec::Vec;

/// Readable and writable.
pub(crate) const RW: Prot = Prot::READ.union(Prot::WRITE);
/// Private memory at the given place.
pub(crate) const FIXED_PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);

std::thread_local! {
    static POLICY: Cell<fn(&FaultQuestion) -> FaultPlan> = const { Cell::new(policy::fault::linux) };
    static CPU: Cell<u16> = const { Cell::new(0) };
    static KEPT: Cell<bool> = const { Cell::new(false) };
    static ENTERED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    static RELAXED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    static NR_BEGUN: Cell<u64> = const { Cell::new(0) };
    static UNWRITTEN: Cell<bool> = const { Cell::new(false) };
}

/// The byte that [`Plain::soil`] fills memory with.
const SOIL: u8 = 0xaa;

/// Whether the last machine of this thread that was soiled was so when it ended.
pub(crate) fn was_unwritten() -> bool {
    UNWRITTEN.get()
}

/// How often a machine of this thread has heard that its frames are about to be written.
pub(crate) fn nr_begun() -> u64 {
    NR_BEGUN.get()
}

/// This thread is that CPU of its machines.
pub(crate) fn be(cpu: u16) {
    CPU.set(cpu);
}

/// Runs `f` while this thread's machines keep the vector registers to programs.
pub(crate) fn without_vector_registers<T>(f: impl FnOnce() -> T) -> T {
    KEPT.set(true);
    let done = f();
    KEPT.set(false);
    done
}

/// From now on this thread's machines call `hook` in each turn of a wait, in place of
/// parking too. The hook may change the CPU that the thread is (I2).
pub(crate) fn on_relax(hook: impl FnMut() + 'static) {
    RELAXED.set(Some(Box::new(hook)));
}

/// From now on this thread's machines call `hook` at the edge of each section.
pub(crate) fn on_enter(hook: impl FnMut() + 'static) {
    ENTERED.set(Some(Box::new(hook)));
}

/// From now on this thread's machines ask this policy.
pub(crate) fn ask(policy: fn(&FaultQuestion) -> FaultPlan) {
    POLICY.set(policy);
}

pub(crate) struct Plain {
    allocated: *mut u8,
    /// The same, aligned.
    memory: *mut u8,
    nr_frames: u64,
    frames: Vec<FrameRange>,
    /// Frames from the first number on lie so many frames further up in memory.
    gap: (u32, u64),
    /// The frame at which memory begins.
    origin: u32,
    /// All frames lie so many bytes further up.
    pub(crate) skew: usize,
    is_soiled: bool,
    /// The answer of `begin`.
    pub(crate) is_zero: bool,
    /// Memory that may be added, whether it is zero, and the limit.
    pub(crate) addable: FrameRange,
    pub(crate) is_added_zero: Word,
    pub(crate) nr_frames_at_most: u64,
    /// Nodes, and the node of each range and CPU; 0 where there is no number.
    pub(crate) nr_nodes: usize,
    pub(crate) node_of_ranges: Vec<u8>,
    pub(crate) node_of_cpus: Vec<u8>,
    pub(crate) nr_cpus: usize,
    /// The clock's time, and the time that each look adds.
    pub(crate) clock: Word,
    pub(crate) clock_step: Word,
    /// A frame or none, an [`OptPfn`]: nobody may have business in its block.
    pub(crate) closed: Word,
    /// Calls of [`Machine::frame_ptr`] so far: a walk has one for each level.
    pub(crate) nr_looks: Word,
    /// Turns of [`Machine::relax`] so far.
    pub(crate) nr_relaxed: Word,
}

// SAFETY: I1: the pointer is only handed out.
unsafe impl Sync for Plain {}

// SAFETY: I1: one allocation that lives as long as the machine. I2: each thread
// of a test says which CPU it is. I3: tests of several CPUs take turns. I4: no
// translations.
unsafe impl Machine for Plain {
    type Format = X86_64;
    fn frames(&self) -> &[FrameRange] {
        &self.frames
    }
    fn nr_frames_at_most(&self) -> u64 {
        self.nr_frames_at_most
    }
    unsafe fn add_frames(&self, range: &FrameRange) -> Option<bool> {
        let is_mine = self.addable.holds(range.first.0.into()) && range.end() <= self.addable.end();
        is_mine.then(|| self.is_added_zero.get() != 0)
    }
    fn vector_registers(&self) -> bool {
        !KEPT.get()
    }
    fn begin(&mut self) -> bool {
        NR_BEGUN.set(NR_BEGUN.get() + 1);
        self.is_zero
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.nr_looks.add_owned(1);
        let is_closed =
            OptPfn::from_word(self.closed.get()).get().is_some_and(|closed| BlockId::of(pfn) == BlockId::of(closed));
        assert!(!is_closed, "a frame that is nobody's is looked at");
        let (from, nr_more) = self.gap;
        let at = u64::from(pfn.0 - self.origin) + if pfn.0 < from { 0 } else { nr_more };
        assert!(at < self.nr_frames);
        self.memory.wrapping_add((at * PAGE_SIZE) as usize + self.skew)
    }
    fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }
    fn nr_nodes(&self) -> usize {
        self.nr_nodes
    }
    fn node_of_range(&self, range: usize) -> MemoryNode {
        MemoryNode(self.node_of_ranges.get(range).copied().unwrap_or(0))
    }
    fn node_of_cpu(&self, cpu: CpuId) -> MemoryNode {
        MemoryNode(self.node_of_cpus.get(usize::from(cpu.0)).copied().unwrap_or(0))
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn heavy_barrier(&self, _: &CpuSet) {}
    fn shootdown(&self, _: SpaceTag, _: &CpuSet, _: Flush) {}
    fn shootdown_is_grace(&self) -> bool {
        true
    }
    fn fault_policy(&self, question: &FaultQuestion) -> FaultPlan {
        POLICY.get()(question)
    }
    fn relax(&self) {
        self.nr_relaxed.add_owned(1);
        // A wait of the hook itself has no turns.
        RELAXED.with(|hook| hook.try_borrow_mut().iter_mut().for_each(|hook| hook.iter_mut().for_each(|hook| hook())));
    }
    fn entered(&self, _: &Word) {
        // Sections of the hook itself have no hook.
        ENTERED.with(|hook| hook.try_borrow_mut().iter_mut().for_each(|hook| hook.iter_mut().for_each(|hook| hook())));
    }
    fn park(&self, _: &Word, _: u64) {
        self.relax();
    }
    fn unpark(&self, _: &Word) {}
    fn now_ns(&self) -> u64 {
        self.clock.add_owned(self.clock_step.get());
        self.clock.get()
    }
    fn random(&self) -> u64 {
        4
    }
}

/// With room to align it: the host clears what is asked for with such an alignment, and leaves
/// large pieces without one to the first touch.
fn layout(nr_frames: u64) -> Layout {
    Layout::from_size_align(((nr_frames + 1) * PAGE_SIZE) as usize, 16).unwrap()
}

impl Drop for Plain {
    fn drop(&mut self) {
        if self.memory.is_null() {
            return;
        }
        if self.is_soiled {
            // SAFETY: I1: all of the allocation, which nobody else uses any more.
            let bytes = unsafe { core::slice::from_raw_parts(self.memory, (self.nr_frames * PAGE_SIZE) as usize) };
            UNWRITTEN.set(bytes.iter().all(|byte| *byte == SOIL));
        }
        // SAFETY: I1: allocated with this layout in `try_vm`.
        unsafe { dealloc(self.allocated, layout(self.nr_frames)) }
    }
}

/// A machine that names frames without any memory for them: a caller that asks where one
/// is fails the test.
pub(crate) fn without_memory(frames: &[(u32, u64)]) -> Plain {
    plain(core::ptr::null_mut(), 0, named(frames), 1)
}

fn named(ranges: &[(u32, u64)]) -> Vec<FrameRange> {
    ranges.iter().map(|&(first, nr_frames)| FrameRange { first: Pfn(first), nr_frames }).collect()
}

fn plain(allocated: *mut u8, nr_frames: u64, frames: Vec<FrameRange>, nr_cpus: usize) -> Plain {
    let [nr_looks, nr_relaxed, closed, clock, clock_step] = [0; 5].map(Word::new);
    let (gap, skew, is_soiled, nr_nodes) = ((0, 0), 0, false, 1);
    let [node_of_ranges, node_of_cpus] = [const { Vec::new() }; 2];
    Plain {
        allocated,
        // Null, if there is none, is aligned.
        memory: allocated.wrapping_add(allocated.align_offset(PAGE_SIZE as usize)),
        nr_frames,
        frames,
        gap,
        origin: 0,
        skew,
        is_soiled,
        is_zero: true,
        addable: FrameRange { first: Pfn(0), nr_frames: 0 },
        is_added_zero: Word::new(0),
        nr_frames_at_most: 0,
        nr_nodes,
        node_of_ranges,
        node_of_cpus,
        nr_cpus,
        clock,
        clock_step,
        closed,
        nr_looks,
        nr_relaxed,
    }
}

impl Plain {
    /// Fills all memory with the same byte; see [`was_unwritten`].
    pub(crate) fn soil(mut self) -> Plain {
        // SAFETY: I1: all of the allocation, which nobody uses yet.
        unsafe { self.memory.write_bytes(SOIL, (self.nr_frames * PAGE_SIZE) as usize) };
        self.is_soiled = true;
        self
    }
}

/// A `Vm` over `nr_frames` zeroed frames.
pub(crate) fn vm(nr_frames: u64, tunables: Tunables) -> Vm<Plain> {
    try_vm(nr_frames, tunables).unwrap()
}

/// The same, where the tunables may be refused.
pub(crate) fn try_vm(nr_frames: u64, tunables: Tunables) -> Result<Vm<Plain>, NewVmError> {
    vm_of(1, nr_frames, tunables)
}

/// The same with several CPUs.
pub(crate) fn vm_of(nr_cpus: usize, nr_frames: u64, tunables: Tunables) -> Result<Vm<Plain>, NewVmError> {
    Vm::new(plain(zeroed(nr_frames), nr_frames, named(&[(0, nr_frames)]), nr_cpus), tunables)
}

/// A machine of `nr_frames` zeroed frames that names these ranges of them. Frames from
/// `from` on lie `nr_more` frames further up than their numbers say.
pub(crate) fn in_ranges(nr_frames: u64, ranges: &[(u32, u64)], from: u32, nr_more: u64) -> Plain {
    let mut machine = plain(zeroed(nr_frames), nr_frames, named(ranges), 1);
    machine.gap = (from, nr_more);
    machine
}

/// The same of memory of `nr_frames` that begins at frame `origin`.
pub(crate) fn from_frame(origin: u32, nr_frames: u64, ranges: &[(u32, u64)]) -> Plain {
    let mut machine = plain(zeroed(nr_frames), nr_frames, named(ranges), 1);
    machine.origin = origin;
    machine
}

fn zeroed(nr_frames: u64) -> *mut u8 {
    // SAFETY: I1: the layout has a size.
    unsafe { alloc_zeroed(layout(nr_frames)) }
}

pub(crate) fn kind(vm: &Vm<Plain>, frame: Pfn) -> FrameKind {
    vm.frames.desc(frame).state().kind()
}

/// CPU 1 has seen in a section that `frame` is a header, and has not raised its references yet.
/// CPU 0 ends what has the last one. The frame stays one of metadata until the section ends.
pub(crate) fn look_up_until_freed<T>(
    vm: &Vm<Plain>,
    frame: Pfn,
    is_there: impl Fn(&LookupSection<'_>) -> bool + Send,
    is_raised: impl Fn(&LookupSection<'_>) -> bool + Send,
    last: T,
) {
    let (entered, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            be(1);
            let section = vm.lookup_section();
            assert!(is_there(&section));
            entered.send(()).unwrap();
            // Until the other CPU waits, or has gone on.
            while vm.machine.nr_relaxed.get() < 10 && kind(vm, frame) == FrameKind::Meta {
                std::thread::yield_now();
            }
            assert_eq!(kind(vm, frame), FrameKind::Meta, "freed under a lookup");
            assert!(!is_there(&section), "whoever comes now is not waited for");
            assert!(!is_raised(&section), "raised from zero");
            drop(section);
        });
        wait.recv().unwrap();
        let before = vm.machine.nr_relaxed.get();
        vm.machine.nr_relaxed.set(0);
        drop(last);
        vm.machine.nr_relaxed.add_owned(before + 10);
    });
}
