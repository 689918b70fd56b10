//! The machine of the models, and its switches, each for a test's thread.

use super::{World, be, files, pager};
use softfault_modelled::addr::{Pfn, SwapSlot};
use softfault_modelled::machine::{CpuId, CpuSet, Flush, FrameCopy, Machine, SpaceTag};
use softfault_modelled::policy::fault::{FaultPlan, FaultQuestion, always_new, linux};
use softfault_modelled::sync::{self, Word};
use softfault_modelled::table::format::Toy;
use softfault_modelled::{FileFill, FileId, FileWrite, Filling, FrameRange, HoleRefused, Notice, ObjectHole};
use softfault_modelled::{StoreRefused, SwapError, Vm, Writing};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const NR_FRAMES: u64 = 48;
/// Beside a pager: with those that the swap area takes.
const NR_FRAMES_AND_SLOTS: u64 = NR_FRAMES + 16;
/// Frames of a machine of several blocks, all but a few of which are not there.
const FAR_RANGES: [FrameRange; 2] =
    [FrameRange { first: Pfn(0), nr_frames: 64 }, FrameRange { first: Pfn(1024), nr_frames: 8 }];
/// Frames of one with a whole block.
const WHOLE_RANGES: [FrameRange; 2] =
    [FrameRange { first: Pfn(0), nr_frames: 64 }, FrameRange { first: Pfn(512), nr_frames: 512 }];
/// Frames of one that may get a section, which is one block here, and the section.
const GROWING_RANGES: [FrameRange; 1] = [FrameRange { first: Pfn(0), nr_frames: 64 }];
pub const SECTION: FrameRange = FrameRange { first: Pfn(512), nr_frames: 512 };
/// Frames of one with three.
const THREE_RANGES: [FrameRange; 2] =
    [FrameRange { first: Pfn(0), nr_frames: 64 }, FrameRange { first: Pfn(512), nr_frames: 1536 }];
const ARENA_FRAMES: u64 = 2048;
pub const NR_CPUS: usize = 3;

loom::thread_local! {
    pub(super) static CPU: Cell<u16> = Cell::new(0);
}

/// The number of frames of the arena.
const MOST_CPUS: usize = 40;

std::thread_local! {
    static CPUS: Cell<usize> = const { Cell::new(NR_CPUS) };
    static HAS_BLOCKS: Cell<bool> = const { Cell::new(false) };
    static NR_WHOLE_BLOCKS: Cell<usize> = const { Cell::new(0) };
    static GROWS: Cell<bool> = const { Cell::new(false) };
}

/// From now on worlds of this test have three blocks, fewer than CPUs want: all of them take
/// frames from the same one.
pub fn use_blocks() {
    HAS_BLOCKS.set(true);
}

/// From now on worlds of this test have a block that is wholly free.
pub fn use_whole_block() {
    NR_WHOLE_BLOCKS.set(1);
}

/// From now on worlds of this test may get [`SECTION`], and have nothing beside it but a few frames.
pub fn use_section() {
    GROWS.set(true);
}

/// The same with three of them: one for a folio, one for where it moves, one for small pages.
pub fn use_three_whole_blocks() {
    NR_WHOLE_BLOCKS.set(3);
}

/// From now on worlds of this test have so many CPUs.
pub fn use_cpus(nr_cpus: usize) {
    CPUS.set(nr_cpus);
}

std::thread_local! {
    static SLOW_CPU: Cell<Option<CpuId>> = const { Cell::new(None) };
    static SMALL_CPU: Cell<Option<CpuId>> = const { Cell::new(None) };
    static SLEEPS: Cell<Option<(CpuId, &'static AtomicBool)>> = const { Cell::new(None) };
}

std::thread_local! {
    static WAITS: Cell<bool> = const { Cell::new(false) };
    static SLOTS: Cell<[Option<&'static Word>; MOST_CPUS]> = const { Cell::new([None; MOST_CPUS]) };
}

/// From now on shootdowns of this test wait for the sections of the CPUs that they
/// name, as interrupts do that are taken outside sections. Each CPU enters a section
/// now, so that its slot is known.
pub fn let_shootdowns_wait(w: World) {
    WAITS.set(true);
    (0..NR_CPUS as u16).rev().for_each(|cpu| {
        be(cpu);
        w.space.read(0, &mut [0]).unwrap();
    });
}

/// Slots of the swap area, for tests that ask for one.
const NR_SLOTS: usize = 2;
type Page = [u8; 4096];

std::thread_local! {
    /// The read-ahead window of a file, in bytes.
    static AHEAD_BYTES: Cell<u64> = const { Cell::new(0) };
    static SWAPS: Cell<bool> = const { Cell::new(false) };
    static SLOTS_WRITTEN: RefCell<[Option<Box<Page>>; NR_SLOTS]> = const { RefCell::new([const { None }; NR_SLOTS]) };
    static WRITES_FAIL: Cell<bool> = const { Cell::new(false) };
    static READS_FAIL: Cell<bool> = const { Cell::new(false) };
    static PARKS_BLOCK: Cell<bool> = const { Cell::new(false) };
    static COPIES_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// For the next execution: what this one has changed, and all frames, which are zero then.
pub(super) fn reset() {
    WAITS.set(false);
    SLOTS_WRITTEN.with(|slots| *slots.borrow_mut() = [const { None }; NR_SLOTS]);
    READS_FAIL.set(false);
    COPIES_FAIL.set(false);
    for range in Modelled.frames() {
        // SAFETY: I1, I6: no thread runs yet.
        unsafe { core::ptr::write_bytes(Modelled.frame_ptr(range.first), 0, range.nr_frames as usize * 4096) };
        SLEEPS.set(None);
    }
}

/// Whether reads of the swap area fail from now on, in this execution.
pub fn let_reads_fail(they_do: bool) {
    READS_FAIL.set(they_do);
}

/// Whether the memory of each frame that is copied fails from now on, in this execution.
pub fn let_copies_fail(they_do: bool) {
    COPIES_FAIL.set(they_do);
}

/// From now on a sleeping CPU of this test sleeps until the word has changed. One that is not woken sleeps
/// for ever, which ends the model.
pub fn let_parks_block() {
    PARKS_BLOCK.set(true);
}

/// Whoever wakes this CPU, it goes on when that has happened. In this execution.
pub fn let_sleep(cpu: u16, until: &'static AtomicBool) {
    SLEEPS.set(Some((CpuId(cpu), until)));
}

/// From now on worlds of this test read so many bytes of a file ahead.
pub fn read_ahead(bytes: u64) {
    AHEAD_BYTES.set(bytes);
}

pub(super) fn ahead_bytes() -> u64 {
    AHEAD_BYTES.get()
}

/// From now on worlds of this test have a swap area, and writes to it fail or not.
pub fn use_swap(writes_fail: bool) {
    SWAPS.set(true);
    WRITES_FAIL.set(writes_fail);
}

fn written_page(slot: SwapSlot) -> Option<Box<Page>> {
    SLOTS_WRITTEN.with(|slots| slots.borrow()[slot.0 as usize].clone())
}

type Subscriber = Rc<dyn Fn(&Notice)>;

std::thread_local! {
    static SUBSCRIBER: RefCell<Option<Subscriber>> = const { RefCell::new(None) };
}

/// Passes notices on: the subscriber of this execution.
pub fn on_notice(subscriber: impl Fn(&Notice) + 'static) {
    SUBSCRIBER.with(|s| *s.borrow_mut() = Some(Rc::new(subscriber)));
}

/// Faults of this CPU map small pages only.
pub fn small_pages_on(cpu: u16) {
    SMALL_CPU.set(Some(CpuId(cpu)));
}

/// Shootdowns of this CPU take so long that others get on with what they do.
/// Races with them then take no preemption.
pub fn let_others_run_in_shootdowns_of(cpu: u16) {
    SLOW_CPU.set(Some(CpuId(cpu)));
}

/// Memory that is the same in every execution of a test, so that loom's cells,
/// which are known by address, are the same too. One per system thread: loom's
/// threads share it, other tests do not.
struct Place {
    arena: *mut u8,
    vm: *mut Vm<Modelled>,
}

std::thread_local! {
    static PLACE: Place = {
        let layout = std::alloc::Layout::from_size_align(ARENA_FRAMES as usize * 4096, 4096).unwrap();
        // SAFETY: I1: the layout has a size; the memory is never given back.
        let arena = unsafe { std::alloc::alloc_zeroed(layout) };
        let vm = Box::leak(Box::<Vm<Modelled>>::new_uninit()).as_mut_ptr();
        Place { arena, vm }
    };
}

/// Where each execution has its `Vm`.
pub(super) fn place() -> *mut Vm<Modelled> {
    PLACE.with(|p| p.vm)
}

fn arena() -> *mut u8 {
    PLACE.with(|p| p.arena)
}

/// The first of the frames for tests without a machine around them: all zero.
pub fn arena_frames() -> Pfn {
    // SAFETY: I1, I6: no thread runs yet.
    unsafe { core::ptr::write_bytes(arena(), 0, NR_FRAMES as usize * 4096) };
    Pfn(1)
}

pub struct Modelled;

/// Writes to memory that is nobody's.
fn fill_section(range: &FrameRange, byte: u8) {
    // SAFETY: I1, I6: it comes, or has gone.
    unsafe { core::ptr::write_bytes(Modelled.frame_ptr(range.first), byte, range.nr_frames as usize * 4096) };
}

// SAFETY: I1: the arena is one allocation, never freed. I2: each loom thread
// sets its own number. I3: the facade's `probe` is the barrier. I4: there are no
// translations to drop.
unsafe impl Machine for Modelled {
    type Format = Toy;
    fn frames(&self) -> &[FrameRange] {
        match (HAS_BLOCKS.get(), NR_WHOLE_BLOCKS.get()) {
            (true, _) => &FAR_RANGES,
            (false, 3) => &THREE_RANGES,
            (false, 1) => &WHOLE_RANGES,
            (false, _) if GROWS.get() => &GROWING_RANGES,
            (false, _) if pager::here() == Some(pager::Pager::SwapsOut) => {
                &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES_AND_SLOTS }]
            }
            (false, _) => &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES }],
        }
    }
    fn begin(&mut self) -> bool {
        true
    }
    fn nr_frames_at_most(&self) -> u64 {
        if GROWS.get() { u64::from(SECTION.first.0) + SECTION.nr_frames } else { 0 }
    }
    /// Zeroes.
    unsafe fn add_frames(&self, range: &FrameRange) -> Option<bool> {
        fill_section(range, 0);
        Some(true)
    }
    /// Somebody else has them.
    unsafe fn frames_removed(&self, range: &FrameRange) {
        fill_section(range, 0xee);
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        let distance = |range: &FrameRange| u64::from(pfn.0.wrapping_sub(range.first.0));
        let is_in = |range: &FrameRange| distance(range) < range.nr_frames;
        assert!(self.frames().iter().any(is_in) || (GROWS.get() && is_in(&SECTION)));
        arena().wrapping_add(pfn.0 as usize * 4096)
    }
    unsafe fn copy_frame(&self, _: Pfn, _: Pfn) -> FrameCopy {
        if COPIES_FAIL.get() { FrameCopy::SourceFailed } else { FrameCopy::ByCore }
    }
    fn nr_cpus(&self) -> usize {
        CPUS.get()
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }
    fn heavy_barrier(&self, _: &CpuSet) {}
    fn shootdown(&self, _: SpaceTag, cpus: &CpuSet, _: Flush) {
        if WAITS.get() {
            sync::fence();
            for cpu in cpus.iter().filter(|cpu| *cpu != self.this_cpu()) {
                while SLOTS.get()[usize::from(cpu.0)].is_some_and(|slot| !sync::probe(slot).is_multiple_of(2)) {
                    loom::thread::yield_now();
                }
            }
        }
        let is_pager = pager::here().is_some() && self.this_cpu() == CpuId(pager::CPU);
        if is_pager || SLOW_CPU.get() == Some(self.this_cpu()) {
            loom::thread::yield_now();
        }
    }
    fn shootdown_is_grace(&self) -> bool {
        WAITS.get()
    }
    fn entered(&self, slot: &Word) {
        let mut slots = SLOTS.get();
        // SAFETY: I1: a word of the arena, which is never given back.
        slots[usize::from(self.this_cpu().0)] = Some(unsafe { &*core::ptr::from_ref(slot) });
        SLOTS.set(slots);
    }
    fn relax(&self) {
        loom::thread::yield_now();
    }
    fn park(&self, word: &Word, expected: u64) {
        loom::thread::yield_now();
        while PARKS_BLOCK.get() && word.load(softfault_modelled::sync::Ordering::Acquire) == expected {
            loom::thread::yield_now();
        }
        while SLEEPS.get().is_some_and(|(cpu, until)| cpu == self.this_cpu() && !until.load(Ordering::Relaxed)) {
            loom::thread::yield_now();
        }
    }
    fn unpark(&self, _: &Word) {}
    fn fault_policy(&self, question: &FaultQuestion) -> FaultPlan {
        if SMALL_CPU.get() == Some(self.this_cpu()) { always_new(question) } else { linux(question) }
    }
    fn notify(&self, _: SpaceTag, notice: &Notice) -> bool {
        // Not borrowed while it runs: loom may let another thread go on there.
        let subscriber = SUBSCRIBER.with(|s| s.borrow().clone());
        if let Some(subscriber) = subscriber {
            subscriber(notice);
        }
        false
    }
    fn nr_swap_slots(&self) -> u32 {
        if SWAPS.get() { NR_SLOTS as u32 } else { 0 }
    }
    /// Others run before the page is there, and after.
    unsafe fn swap_out(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        loom::thread::yield_now();
        if WRITES_FAIL.get() {
            return Err(SwapError);
        }
        // SAFETY: I1, I6: nobody writes the frame of a slot.
        let page = unsafe { *self.frame_ptr(pfn).cast::<Page>() };
        SLOTS_WRITTEN.with(|slots| slots.borrow_mut()[slot.0 as usize] = Some(Box::new(page)));
        loom::thread::yield_now();
        Ok(())
    }
    unsafe fn swap_in(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        if READS_FAIL.get() {
            loom::thread::yield_now();
            return Err(SwapError);
        }
        let page = written_page(slot).expect("the slot was written");
        loom::thread::yield_now();
        assert!(written_page(slot) == Some(page.clone()), "I48: a slot was written that somebody reads");
        // SAFETY: I1, I6: the frame is the caller's alone.
        unsafe { *self.frame_ptr(pfn).cast::<Page>() = *page };
        Ok(())
    }
    unsafe fn fill(&self, fill: FileFill) -> Filling {
        files::answer(fill)
    }
    unsafe fn write_back(&self, write: FileWrite) -> Writing {
        files::answer_write(write)
    }
    fn punch_hole(&self, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
        files::answer_hole(hole);
        Ok(())
    }
    fn may_store(&self, _: FileId, _: std::ops::Range<u64>) -> Result<(), StoreRefused> {
        loom::thread::yield_now();
        Ok(())
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

/// A device's store to the first word of a frame, past all tables.
pub fn device_store(pfn: Pfn, value: u64) {
    let word = Modelled.frame_ptr(pfn).cast::<std::sync::atomic::AtomicU64>();
    // SAFETY: I1: the arena is never given back; the first word of a frame is aligned.
    unsafe { &*word }.store(value, std::sync::atomic::Ordering::Relaxed);
}
