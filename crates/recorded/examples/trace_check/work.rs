//! The run that is traced: four CPUs in turn, every kind of operation, one
//! recorder.
//!
//! It prints, each on a line of its own, in hexadecimal: where memory, the
//! `Vm` and the marks lie; then each write that the recorder was told of.

use softfault_recorded::addr::{Access, PAGE_SIZE, Pfn};
use softfault_recorded::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault_recorded::sync::{Touch, Word, record};
use softfault_recorded::table::format::X86_64;
use softfault_recorded::{AddressSpace, FrameRange, Tunables, Vm};
use softfault_recorded::{Advice, MapFlags, MremapFlags, Prot};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Tells the child from its parent.
pub const ARGUMENT: &str = "--traced";
/// CPUs that there are.
pub const NR_CPUS: usize = 4;
/// The mark that is stored to when recording begins, and when it ends.
pub const BEGIN: usize = NR_CPUS;
pub const END: usize = NR_CPUS + 1;

const NR_FRAMES: u64 = 4096;
const PAGES: u64 = 128;

/// A store to one of them says in the trace what no address of the core does:
/// which CPU it is from now on.
static MARKS: [AtomicU8; NR_CPUS + 2] = [const { AtomicU8::new(0) }; NR_CPUS + 2];

std::thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
}

fn become_cpu(cpu: usize) {
    CPU.set(cpu as u16);
    MARKS[cpu].store(1, Relaxed);
}

struct Turns {
    memory: *mut u8,
}

// SAFETY: I1: the pointer is only handed out; the memory is never given back.
unsafe impl Sync for Turns {}

// SAFETY: I1: one zeroed allocation, aligned, the machine's alone. I2 to I4: one
// thread is all CPUs in turn, and nothing caches translations.
unsafe impl Machine for Turns {
    type Format = X86_64;

    fn frames(&self) -> &[FrameRange] {
        &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES }]
    }
    fn begin(&mut self) -> bool {
        true
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.memory.wrapping_add(pfn.0 as usize * PAGE_SIZE as usize)
    }
    fn nr_cpus(&self) -> usize {
        NR_CPUS
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn heavy_barrier(&self, _others: &CpuSet) {}
    fn shootdown(&self, _space: SpaceTag, _cpus: &CpuSet, _what: Flush) {}
    fn shootdown_is_grace(&self) -> bool {
        false
    }
    fn relax(&self) {}
    fn park(&self, _word: &Word, _expected: u64) {}
    fn unpark(&self, _word: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

/// Does it and prints it.
pub fn run(plants: bool) {
    let layout = Layout::from_size_align((NR_FRAMES * PAGE_SIZE) as usize, PAGE_SIZE as usize).expect("a size");
    // SAFETY: I1: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null(), "16 MiB of memory");
    become_cpu(0);
    let vm = Box::new(Vm::new(Turns { memory }, Tunables::default()).expect("room for the metadata"));
    let writes = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
    let book = Rc::clone(&writes);
    record(Some(Box::new(move |addr, touch| {
        if touch == Touch::Write {
            book.borrow_mut().push((CPU.get(), addr));
        }
    })));
    MARKS[BEGIN].store(1, Relaxed);
    operations(&vm);
    if plants {
        // SAFETY: I1: a word of the first descriptor that nobody uses, and one
        // thread; behind the recorder's back, which is what it is for.
        unsafe { memory.add(24).cast::<u64>().write_volatile(0) };
    }
    MARKS[END].store(1, Relaxed);
    record(None);
    let vm_addr = core::ptr::from_ref::<Vm<Turns>>(&vm).addr();
    let mut told = String::new();
    let _ = writeln!(told, "{:x} {:x}", memory.addr(), layout.size());
    let _ = writeln!(told, "{vm_addr:x} {:x}", size_of::<Vm<Turns>>());
    let _ = writeln!(told, "{:x} {:x}", MARKS.as_ptr().addr(), MARKS.len());
    for (cpu, addr) in writes.borrow().iter() {
        let _ = writeln!(told, "{cpu:x} {addr:x}");
    }
    print!("{told}");
}

fn operations(vm: &Vm<Turns>) {
    const RW: Prot = Prot::READ.union(Prot::WRITE);
    const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);
    const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::ANONYMOUS);
    let space = vm.new_space().expect("frames");
    let run_it = |cpu| {
        become_cpu(cpu);
        space.activate()
    };
    let active: Vec<_> = (0..NR_CPUS).map(run_it).collect();
    let private = space.mmap(0, PAGES * PAGE_SIZE, RW, PRIVATE).expect("room");
    let shared = space.mmap(0, PAGES * PAGE_SIZE, RW, SHARED).expect("room");
    // Pages dealt out one by one, so that lines of entries travel.
    for page in 0..PAGES / 2 {
        become_cpu(page as usize % NR_CPUS);
        fault(&space, private + page * PAGE_SIZE, Access::Write);
        fault(&space, private + (PAGES / 2 + page) * PAGE_SIZE, Access::Read);
        fault(&space, shared + page * PAGE_SIZE, Access::Write);
    }
    let child = space.fork().expect("frames");
    for page in 0..PAGES {
        become_cpu(page as usize % NR_CPUS);
        fault(if page % 3 == 0 { &child } else { &space }, private + page * PAGE_SIZE, Access::Write);
    }
    become_cpu(1);
    space.mprotect(private, 16 * PAGE_SIZE, Prot::READ).expect("mapped");
    space.madvise(private + 16 * PAGE_SIZE, 16 * PAGE_SIZE, Advice::DontNeed).expect("mapped");
    become_cpu(2);
    space.mremap(private + 32 * PAGE_SIZE, 16 * PAGE_SIZE, 16 * PAGE_SIZE, MremapFlags::MAYMOVE, 0).expect("mapped");
    space.munmap(shared, 32 * PAGE_SIZE).expect("aligned");
    become_cpu(3);
    drop(child);
    for (cpu, active) in active.into_iter().enumerate() {
        become_cpu(cpu);
        drop(active);
    }
}

fn fault(space: &AddressSpace<'_, Turns>, addr: u64, access: Access) {
    space.handle_fault(addr, access).expect("mapped, allowed, and there are frames");
}
