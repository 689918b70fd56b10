//! The smallest port that works: one CPU, memory from the heap, no hardware.
//!
//! `cargo run -p softfault --example port_in_100_lines`
//!
//! A comment at each method says how a kernel differs. With one CPU there
//! is nobody to interrupt, to wait for or to wake.

use softfault::addr::{Access, PAGE_SIZE, Pfn};
use softfault::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault::sync::Word;
use softfault::table::format::X86_64;
use softfault::{FrameRange, MapFlags, Prot, Tunables, Vm};
use std::alloc::{Layout, alloc_zeroed};

const NR_FRAMES: u64 = 1024;

/// "Physical memory" is one allocation; frame 0 is its first 4 KiB.
struct Tiny {
    memory: *mut u8,
}

// SAFETY: I1: the pointer is only handed out; the memory is never given back.
unsafe impl Sync for Tiny {}

// SAFETY: I1: one zeroed allocation, aligned, ours alone. I2: one CPU. I3, I4:
// no other CPU, and nothing caches translations.
unsafe impl Machine for Tiny {
    type Format = X86_64;

    /// A kernel: what the loader reported and nobody else was given.
    fn frames(&self) -> &[FrameRange] {
        &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES }]
    }
    /// A kernel: `false`, unless the loader has zeroed its memory.
    fn begin(&mut self) -> bool {
        true
    }
    /// A kernel: the base of its direct map plus the physical address.
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.memory.wrapping_add(pfn.0 as usize * PAGE_SIZE as usize)
    }
    fn nr_cpus(&self) -> usize {
        1
    }
    /// A kernel: from its per-CPU data, by way of GS or TPIDR.
    fn this_cpu(&self) -> CpuId {
        CpuId(0)
    }
    /// A kernel: an interrupt to each of them, answered before this returns.
    fn heavy_barrier(&self, _others: &CpuSet) {}
    /// A kernel: the same interrupt, and `invlpg` or a reload of CR3 in it.
    fn shootdown(&self, _space: SpaceTag, _cpus: &CpuSet, _what: Flush) {}
    /// A kernel that takes the interrupt only outside sections: `true`.
    fn shootdown_is_grace(&self) -> bool {
        true
    }
    /// A kernel: answers interrupts of others that are waiting for this CPU.
    fn relax(&self) {
        core::hint::spin_loop();
    }
    /// A kernel: a wait queue, looked up by the word's address.
    fn park(&self, _word: &Word, _expected: u64) {}
    fn unpark(&self, _word: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

fn main() {
    let layout = Layout::from_size_align((NR_FRAMES * PAGE_SIZE) as usize, PAGE_SIZE as usize).unwrap();
    // SAFETY: I1: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null(), "4 MiB of memory");

    let vm = Vm::new(Tiny { memory }, Tunables::default()).expect("room for the metadata");
    let before = vm.vmstat().nr_free_pages;

    let space = vm.new_space().expect("a frame for the space");
    let active = space.activate(); // a kernel loads space.tag().root into CR3 now
    let addr = space
        .mmap(0, 1 << 20, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS)
        .expect("a megabyte, readable, writable, private, anonymous");

    // The page-fault handler does this:
    let done = space.handle_fault(addr, Access::Write).expect("memory that may be written");
    println!("fault at {addr:#x}: {done:?}; the page is {:?}", space.page_state(addr).unwrap());

    // System calls do this:
    space.write(addr + 5000, b"hello, page two").unwrap();
    let child = space.fork().unwrap();
    child.write(addr + 5000, b"HELLO").unwrap();
    let mut text = [0; 15];
    space.read(addr + 5000, &mut text).unwrap();
    println!("the parent still reads {:?}", core::str::from_utf8(&text).unwrap());
    println!("the parent has {:?}", space.rss_pages());

    drop(active);
    drop((space, child));
    assert_eq!(vm.vmstat().nr_free_pages, before, "every frame is back");
    println!("all {before} frames are free again");
}
