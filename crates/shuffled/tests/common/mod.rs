//! A machine of a few CPUs with store buffers and TLBs, under shuttle's scheduler.
#![allow(missing_docs, reason = "for tests alone")]

pub mod calls;
mod memory;
mod order;

use memory::{GIB_FRAMES, Gibs, fresh_memory, memory};
use shuttle::rand::RngCore;
use softfault_shuffled::addr::{Access, Pfn, SwapSlot, Vpn};
use softfault_shuffled::clear::ClearOrder;
use softfault_shuffled::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag, Tick};
use softfault_shuffled::sync::{self, Cell64, CopyStep, Ordering, Word};
use softfault_shuffled::table::format::{self, Entry, Format};
use softfault_shuffled::{AddressSpace, FaultError, FrameRange, Order, Rights, SwapError, Tunables, Vm};
use softfault_shuffled::{MapFlags, Prot};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;

pub const READ: Prot = Prot::READ;
pub const RW: Prot = Prot::READ.union(Prot::WRITE);
pub const FIXED_PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);
/// The largest number of frames of a machine here.
const MOST_FRAMES: u64 = 1536;
/// The same with memory that is added, or is laid out late. The host provides it at the first touch.
const MOST_FRAMES_LATER: u64 = 21 << 15;
/// Slots of the swap area.
pub const NR_SLOTS: usize = 8;

shuttle::thread_local! {
    static CPU: Cell<u16> = Cell::new(0);
}

/// A translation in a TLB: the page's frame, and the accesses that need no walk.
#[derive(Clone, Copy)]
pub struct Walked {
    pub pfn: Pfn,
    rights: Rights,
    dirty: bool,
}

type Tlb = HashMap<(u64, u64), Walked>;

pub type Space<F> = AddressSpace<'static, Shuffled<F>>;

pub struct Shuffled<F> {
    memory: *mut u8,
    frames: [FrameRange; 1],
    nr_frames_at_most: u64,
    gibs: Cell<Gibs>,
    /// The answer of `begin`.
    is_zero: bool,
    /// Threads are coroutines of one system thread and no access to a TLB has a
    /// scheduling point in it.
    tlbs: Vec<RefCell<Tlb>>,
    locks: order::Order,
    /// Pages that were swapped out.
    swapped: RefCell<[Option<Box<[u8; 4096]>>; NR_SLOTS]>,
    /// How often a CPU was about to sleep.
    nr_parks: Cell<u64>,
    format: PhantomData<fn() -> F>,
}

// SAFETY: I1: shuttle's threads are coroutines of one system thread.
unsafe impl<F> Sync for Shuffled<F> {}
// SAFETY: I1: as above.
unsafe impl<F> Send for Shuffled<F> {}

// SAFETY: I1: one allocation, leaked; the machine of the schedule before is not used
// any more. I2: each thread sets its own number. I3: the buffers are drained. I4: the
// entries are gone and the stores made through them performed when it returns, and an
// access in this file has no scheduling point.
unsafe impl<F: Format> Machine for Shuffled<F> {
    type Format = F;
    fn frames(&self) -> &[FrameRange] {
        &self.frames
    }
    fn begin(&mut self) -> bool {
        self.is_zero
    }
    fn nr_frames_at_most(&self) -> u64 {
        self.nr_frames_at_most
    }
    /// Its content is that of the last schedule.
    unsafe fn add_frames(&self, range: &FrameRange) -> Option<bool> {
        (u64::from(range.first.0) + range.nr_frames <= self.nr_frames_at_most).then_some(false)
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        assert!(u64::from(pfn.0) < self.frames[0].nr_frames.max(self.nr_frames_at_most));
        self.memory.wrapping_add(self.gibs.get().place_of(pfn.0 as usize) * 4096)
    }
    fn nr_cpus(&self) -> usize {
        self.tlbs.len()
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }
    fn heavy_barrier(&self, cpus: &CpuSet) {
        for cpu in cpus.iter() {
            sync::spin();
            sync::drain_of(usize::from(cpu.0));
        }
    }
    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        for cpu in cpus.iter() {
            sync::spin();
            self.tlbs[usize::from(cpu.0)].borrow_mut().retain(|(id, page), _| {
                *id != space.id || matches!(what, Flush::Pages(range) if !range.contains(Vpn(*page)))
            });
            sync::drain_of(usize::from(cpu.0));
        }
    }
    fn top_leaf(&self) -> u8 {
        if self.gibs.get() == Gibs::Folded { F::TOP_LEAF } else { 1 }
    }
    fn shootdown_is_grace(&self) -> bool {
        false
    }
    fn relax(&self) {
        sync::spin();
    }
    fn park(&self, _: &Word, _: u64) {
        self.nr_parks.set(self.nr_parks.get() + 1);
        sync::spin();
    }
    fn unpark(&self, _: &Word) {}
    fn tick(&self, tick: Tick) {
        match tick {
            Tick::Taking(kind) => self.locks.taking(self.this_cpu().0.into(), kind),
            Tick::Released(kind) => self.locks.released(self.this_cpu().0.into(), kind),
            _ => {}
        }
    }
    fn nr_swap_slots(&self) -> u32 {
        NR_SLOTS as u32
    }
    /// Other CPUs run before and after.
    unsafe fn swap_out(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        sync::spin();
        // SAFETY: I1, I6: nobody writes the frame of a slot.
        let page = unsafe { *self.frame_ptr(pfn).cast::<[u8; 4096]>() };
        self.swapped.borrow_mut()[slot.0 as usize] = Some(Box::new(page));
        sync::spin();
        Ok(())
    }
    unsafe fn swap_in(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        sync::spin();
        let page = self.swapped.borrow()[slot.0 as usize].clone().expect("the slot was written");
        // SAFETY: I1, I6: the frame is the caller's alone.
        unsafe { *self.frame_ptr(pfn).cast::<[u8; 4096]>() = *page };
        sync::spin();
        Ok(())
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

impl<F> Shuffled<F> {
    /// How often a CPU was about to sleep for a lock.
    pub fn nr_parks(&self) -> u64 {
        self.nr_parks.get()
    }
}

/// The pool of 2 MiB: its pages, those that are free, and those that are promised.
pub fn free<F: Format>(vm: &Vm<Shuffled<F>>) -> (u64, u64, u64) {
    let counts = vm.hugetlb_counts(Order::PMD).unwrap();
    (counts.nr, counts.free, counts.reserved)
}

/// A `Vm` for one schedule. It is never freed: threads ask for `'static`.
pub fn vm<F: Format>(nr_cpus: usize, nr_frames: u64, tunables: Tunables) -> &'static Vm<Shuffled<F>> {
    vm_that_grows(nr_cpus, nr_frames, 0, tunables)
}

/// The same for a machine to which memory may be added, up to that frame.
pub fn vm_that_grows<F: Format>(
    nr_cpus: usize,
    nr_frames: u64,
    nr_frames_at_most: u64,
    tunables: Tunables,
) -> &'static Vm<Shuffled<F>> {
    assert!(nr_frames <= MOST_FRAMES && nr_frames_at_most <= MOST_FRAMES_LATER);
    // SAFETY: I6: nobody has the frames between two schedules.
    unsafe { core::ptr::write_bytes(memory(), 0, nr_frames as usize * 4096) };
    vm_of(nr_cpus, nr_frames, nr_frames_at_most, true, tunables)
}

/// The same for a machine whose memory is not zero: it has the content of the last schedule.
pub fn vm_that_is_not_zero<F: Format>(
    nr_cpus: usize,
    nr_frames: u64,
    nr_frames_at_most: u64,
    tunables: Tunables,
) -> &'static Vm<Shuffled<F>> {
    assert!(nr_frames.max(nr_frames_at_most) <= MOST_FRAMES_LATER);
    vm_of(nr_cpus, nr_frames, nr_frames_at_most, false, tunables)
}

/// The same of memory that is zero and that no schedule has used, as large as one likes: the schedule before gives its back.
pub fn vm_of_fresh_memory<F: Format>(nr_cpus: usize, nr_frames: u64, tunables: Tunables) -> &'static Vm<Shuffled<F>> {
    vm_over(fresh_memory(nr_frames as usize), nr_cpus, nr_frames, 0, true, tunables)
}

/// A machine with a pool of so many pages of 1 GiB. These have all but their bytes, of which most are the same (see [`Gibs`]).
pub fn vm_of_pages_of_1_gib<F: Format>(nr_cpus: usize, nr: u64) -> &'static Vm<Shuffled<F>> {
    let nr_frames = (nr as usize + 1) * GIB_FRAMES;
    let memory = fresh_memory(Gibs::Folded.place_of(nr_frames));
    // In pieces from the first frame on.
    let tunables = Tunables::default().with_clear_order(Some(ClearOrder::Forward));
    let vm: &Vm<Shuffled<F>> = vm_over(memory, nr_cpus, nr_frames as u64, 0, true, tunables);
    // The machine's frames have to lie side by side while it is looked at; its first GiB has what the core itself needs.
    vm.machine().gibs.set(Gibs::Folded);
    sync::copy_by(CopyStep::Frame);
    assert_eq!(vm.set_nr_hugepages(Order::PUD, nr), Ok(nr));
    vm
}

fn vm_of<F: Format>(
    nr_cpus: usize,
    nr_frames: u64,
    nr_frames_at_most: u64,
    is_zero: bool,
    tunables: Tunables,
) -> &'static Vm<Shuffled<F>> {
    vm_over(memory(), nr_cpus, nr_frames, nr_frames_at_most, is_zero, tunables)
}

fn vm_over<F: Format>(
    memory: *mut u8,
    nr_cpus: usize,
    nr_frames: u64,
    nr_frames_at_most: u64,
    is_zero: bool,
    tunables: Tunables,
) -> &'static Vm<Shuffled<F>> {
    sync::copy_by(CopyStep::Word);
    let tlbs = (0..nr_cpus).map(|_| RefCell::default()).collect();
    let frames = [FrameRange { first: Pfn(0), nr_frames }];
    let (swapped, nr_parks) = (RefCell::default(), Cell::new(0));
    let (gibs, format, locks) = (Cell::new(Gibs::Whole), PhantomData, order::Order::of(nr_cpus));
    let machine = Shuffled { memory, frames, nr_frames_at_most, gibs, is_zero, tlbs, locks, swapped, nr_parks, format };
    Box::leak(Box::new(Vm::new(machine, tunables).unwrap()))
}

/// Makes the calling thread that CPU.
pub fn be(cpu: u16) {
    CPU.with(|c| c.set(cpu));
    sync::run_as(usize::from(cpu));
}

/// Walks the tables as hardware does: it sees memory and no store buffer.
pub fn walk<F: Format>(space: &Space<F>, vm: &Vm<Shuffled<F>>, addr: u64) -> Option<Walked> {
    walk_for(space, vm, addr, Rights::empty(), false)
}

/// Walks for an access that needs these rights; sets the accessed bit, and the dirty
/// bit for a store.
fn walk_for<F: Format>(
    space: &Space<F>,
    vm: &Vm<Shuffled<F>>,
    addr: u64,
    need: Rights,
    stores: bool,
) -> Option<Walked> {
    let mut table = space.tag().root;
    for level in (0..F::LEVELS).rev() {
        let page = addr / 4096;
        let shift = F::INDEX_BITS * u32::from(level);
        let index = (page >> shift) & ((1 << F::INDEX_BITS) - 1);
        let at = vm.machine().frame_ptr(table).wrapping_add(index as usize * 8).cast::<Word>();
        // SAFETY: I1, I5: in the frame, aligned; a table is made of words.
        let word = unsafe { &*at };
        let entry = word.load(Ordering::Relaxed);
        match F::decode(entry, level) {
            Entry::Table(below) => table = below,
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => {
                if need.is_empty() || !leaf.rights.contains(need) {
                    return need.is_empty().then_some(Walked { pfn: leaf.pfn, rights: leaf.rights, dirty: false });
                }
                let used = format::used::<F>(entry, if stores { Access::Write } else { Access::Read });
                let found = word.compare_exchange(entry, used, Ordering::Relaxed, Ordering::Relaxed);
                assert!(found.is_ok(), "a step of the hardware is one step of the simulation");
                let pfn = Pfn(leaf.pfn.0 + (page & ((1 << shift) - 1)) as u32);
                return Some(Walked { pfn, rights: leaf.rights, dirty: stores || leaf.dirty });
            }
            _ => return None,
        }
    }
    None
}

/// Loads or stores for the program through the CPU's TLB, as hardware does.
///
/// # Errors
///
/// Those of the fault handler.
pub fn access<F: Format>(
    space: &Space<F>,
    vm: &Vm<Shuffled<F>>,
    addr: u64,
    store: Option<u64>,
) -> Result<u64, FaultError> {
    let (kind, need) = match store {
        Some(_) => (Access::Write, Rights::WRITE),
        None => (Access::Read, Rights::READ),
    };
    let key = (space.tag().id, addr / 4096);
    let tlb = &vm.machine().tlbs[usize::from(vm.machine().this_cpu().0)];
    loop {
        sync::maybe_switch();
        let done = sync::at_once(|| {
            let hit = tlb.borrow().get(&key).copied();
            let hit = hit.filter(|t| t.rights.contains(need) && (t.dirty || store.is_none()))?;
            let at = vm.machine().frame_ptr(hit.pfn).wrapping_add((addr % 4096) as usize);
            // SAFETY: I1: in the frame, aligned.
            let cell = unsafe { &*at.cast::<Cell64>() };
            if let Some(value) = store {
                cell.store(value, Ordering::Relaxed);
            }
            Some(cell.load(Ordering::Relaxed))
        });
        if let Some(value) = done {
            return Ok(value);
        }
        // The walk and the fill of the TLB are one step here.
        let walked = sync::quietly(|| walk_for(space, vm, addr, need, store.is_some()));
        match walked {
            Some(walked) => tlb.borrow_mut().insert(key, walked),
            None => {
                tlb.borrow_mut().remove(&key);
                space.handle_fault(addr, kind)?;
                None
            }
        };
    }
}

/// Runs the actor as a CPU that runs the space.
pub fn inside<F: Format>(space: &'static Space<F>, actor: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let active = space.activate();
        actor();
        drop(active);
    })
}

/// The word at `addr`.
pub fn word_at<F: Format>(space: &Space<F>, addr: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(addr, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// A test that has no more is never cut: what it wants to see it may see in one schedule of ten.
const LEAST_SCHEDULES: usize = 400;

/// Runs `schedule` under so many random schedules, or in the gate under as many percent of them as
/// `SOFTFAULT_PERCENT_OF_SCHEDULES` says: each run of it has others.
pub fn shuffled(schedules: usize, schedule: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    let schedules = (schedules * percent() / 100).max(schedules.min(LEAST_SCHEDULES));
    let runner = shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(schedules), config);
    runner.run(schedule);
}

fn percent() -> usize {
    let text = std::env::var("SOFTFAULT_PERCENT_OF_SCHEDULES").unwrap_or("100".into());
    text.parse().expect("SOFTFAULT_PERCENT_OF_SCHEDULES should be a number")
}

/// The largest number of turns that a CPU waits before it begins.
const START_TURNS: u64 = 400;

/// Runs the actors as CPUs 0, 1, ... with store buffers. Each begins at a random moment;
/// afterwards nothing is buffered.
pub fn run(nr_cpus: usize, actors: Vec<Box<dyn FnOnce() + Send>>) {
    sync::begin(nr_cpus);
    let threads: Vec<_> = actors
        .into_iter()
        .zip(0..)
        .map(|(actor, cpu)| {
            shuttle::thread::spawn(move || {
                be(cpu);
                (0..shuttle::rand::thread_rng().next_u64() % START_TURNS).for_each(|_| shuttle::thread::yield_now());
                actor();
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    sync::end();
}
