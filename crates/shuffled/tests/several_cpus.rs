//! Long random schedules of whole programs on several CPUs, with TLBs that go
//! stale: what loom's small models cannot reach.
//!
//! Each CPU has a part of one address space to itself and knows what it wrote
//! there, while tables, counts, frames and the tree are everybody's. After each
//! schedule every invariant is checked.

use shuttle::rand::Rng;
use softfault_shuffled::addr::{Access, Pfn, Vpn};
use softfault_shuffled::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault_shuffled::sync::{Word, shuffle};
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Discipline, FrameRange, Rights, Tunables, Vm};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

const NR_FRAMES: u64 = 1024;
const NR_CPUS: usize = 3;
const PAGES: u64 = 6;
const FIXED_PRIVATE: u64 = 0x32;

shuttle::thread_local! {
    static CPU: Cell<u16> = Cell::new(0);
}

type Tlb = HashMap<(u64, u64), (Pfn, Rights)>;

struct Shuffled {
    memory: *mut u8,
    /// Threads are coroutines of one system thread and no access to a TLB has a
    /// scheduling point in it.
    tlbs: Vec<RefCell<Tlb>>,
}

// SAFETY: I1: shuttle's threads are coroutines of one system thread.
unsafe impl Sync for Shuffled {}
// SAFETY: I1: as above.
unsafe impl Send for Shuffled {}

// SAFETY: I1: one allocation, leaked. I2: each thread sets its own number. I3:
// sequentially consistent anyway. I4: the entries are gone when it returns, and
// an access in this file has no scheduling point.
unsafe impl Machine for Shuffled {
    type Format = X86_64;
    fn frames(&self) -> &[FrameRange] {
        &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES }]
    }
    fn begin(&mut self) -> bool {
        true
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        assert!(u64::from(pfn.0) < NR_FRAMES);
        self.memory.wrapping_add(pfn.0 as usize * 4096)
    }
    fn nr_cpus(&self) -> usize {
        NR_CPUS
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }
    fn heavy_barrier(&self, _: &CpuSet) {
        shuttle::thread::yield_now();
    }
    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        for cpu in cpus.iter() {
            shuttle::thread::yield_now();
            self.tlbs[usize::from(cpu.0)].borrow_mut().retain(|(id, page), _| {
                *id != space.id || matches!(what, Flush::Pages(range) if !range.contains(Vpn(*page)))
            });
        }
    }
    fn shootdown_is_grace(&self) -> bool {
        false
    }
    fn relax(&self) {
        shuttle::thread::yield_now();
    }
    fn park(&self, _: &Word, _: u64) {
        shuttle::thread::yield_now();
    }
    fn unpark(&self, _: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

fn vm(discipline: Discipline) -> Vm<Shuffled> {
    std::thread_local! {
        static MEMORY: *mut u8 = {
            let layout = std::alloc::Layout::from_size_align(NR_FRAMES as usize * 4096, 4096).unwrap();
            // SAFETY: I1: the layout has a size; the memory is never given back.
            unsafe { std::alloc::alloc_zeroed(layout) }
        };
    }
    let memory = MEMORY.with(|m| *m);
    // SAFETY: I6: nobody has the frames between two schedules.
    unsafe { core::ptr::write_bytes(memory, 0, NR_FRAMES as usize * 4096) };
    let tlbs = (0..NR_CPUS).map(|_| RefCell::default()).collect();
    let tunables = Tunables { discipline, zero_batch: 4, ..Tunables::default() };
    Vm::new(Shuffled { memory, tlbs }, tunables).unwrap()
}

type Space = AddressSpace<'static, Shuffled>;

/// A load or store through the CPU's TLB, as hardware does it; `None` is a fault
/// that no handler takes.
fn access(vm: &Vm<Shuffled>, space: &Space, addr: u64, store: Option<u64>) -> Option<u64> {
    let (kind, need) = match store {
        Some(_) => (Access::Write, Rights::WRITE),
        None => (Access::Read, Rights::READ),
    };
    loop {
        let key = (space.tag().id, addr / 4096);
        let tlb = &vm.machine().tlbs[usize::from(vm.machine().this_cpu().0)];
        let hit = tlb.borrow().get(&key).copied();
        if let Some((pfn, rights)) = hit
            && rights.contains(need)
        {
            let at = vm.machine().frame_ptr(pfn).wrapping_add((addr % 4096) as usize).cast::<u64>();
            // SAFETY: I1: in the frame, aligned; no other system thread runs.
            return Some(unsafe {
                if let Some(value) = store {
                    at.write(value);
                }
                at.read()
            });
        }
        // The walk and the fill are one step, as if the hardware were quick.
        let on = shuffle(false);
        match space.translate_at_rest(addr) {
            Some(t) if t.rights.contains(need) => {
                tlb.borrow_mut().insert(key, (t.pfn, t.rights));
                shuffle(on);
            }
            _ => {
                tlb.borrow_mut().remove(&key);
                shuffle(on);
                space.handle_fault(addr, kind).ok()?;
            }
        }
    }
}

/// What one CPU does in its part of the space: each value that it reads has to be
/// the one it wrote last.
fn play(vm: &Vm<Shuffled>, space: &Space, cpu: u16, nr_ops: usize) {
    CPU.with(|c| c.set(cpu));
    space.activate();
    let mut rng = shuttle::rand::thread_rng();
    let base = 0x4000_0000 + u64::from(cpu) * PAGES * 4096;
    let mut wrote = [0u64; PAGES as usize];
    let mut child: Option<(Space, [u64; PAGES as usize])> = None;
    space.mmap(base, PAGES * 4096, 3, FIXED_PRIVATE).unwrap();
    for step in 0..nr_ops as u64 {
        let page = rng.gen_range(0..PAGES);
        let at = base + page * 4096;
        match rng.gen_range(0..12) {
            0..=3 => {
                let value = step * 100 + page + 1;
                assert_eq!(access(vm, space, at, Some(value)), Some(value));
                wrote[page as usize] = value;
            }
            4..=6 => assert_eq!(access(vm, space, at, None), Some(wrote[page as usize]), "cpu {cpu} page {page}"),
            7 => {
                space.madvise(at, 4096, 4).unwrap();
                wrote[page as usize] = 0;
            }
            8 => {
                space.munmap(at, 4096).unwrap();
                assert_eq!(access(vm, space, at, None), None, "mapped after munmap");
                space.mmap(at, 4096, 3, FIXED_PRIVATE).unwrap();
                wrote[page as usize] = 0;
            }
            9 => {
                space.mprotect(at, 4096, 1).unwrap();
                assert_eq!(access(vm, space, at, Some(7)), None, "written after mprotect");
                assert_eq!(access(vm, space, at, None), Some(wrote[page as usize]));
                space.mprotect(at, 4096, 3).unwrap();
            }
            10 => child = Some((space.fork().unwrap(), wrote)),
            _ => {
                if let Some((child, then)) = &child {
                    let mut bytes = [0; 8];
                    child.read(at, &mut bytes).unwrap();
                    assert_eq!(u64::from_ne_bytes(bytes), then[page as usize], "F5: the child saw a later write");
                }
            }
        }
    }
    drop(child);
    space.deactivate();
}

fn schedule(discipline: Discipline) {
    let on = shuffle(false);
    assert!(!on);
    let vm: &'static Vm<Shuffled> = Box::leak(Box::new(vm(discipline)));
    let before = vm.vmstat().nr_free_pages;
    let space = Arc::new(vm.new_space().unwrap());
    shuffle(true);
    let threads: Vec<_> = (0..NR_CPUS as u16)
        .map(|cpu| {
            let space = space.clone();
            shuttle::thread::spawn(move || play(vm, &space, cpu, 12))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    shuffle(false);
    vm.check(&[&space], &mut vec![0; NR_FRAMES as usize]).unwrap();
    drop(space);
    vm.check(&[], &mut vec![0; NR_FRAMES as usize]).unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

fn shuffled(discipline: Discipline, schedules: usize) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    let runner = shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(schedules), config);
    runner.run(move || {
        shuffle(false);
        schedule(discipline);
    });
}

#[test]
fn lockfree() {
    shuffled(Discipline::Lockfree, 2000);
}

#[test]
fn fastpath2004() {
    shuffled(Discipline::Fastpath2004, 400);
}

#[test]
fn split() {
    shuffled(Discipline::Split, 400);
}

#[test]
fn global() {
    shuffled(Discipline::Global, 400);
}
