//! I6: what was streamed past the caches is fenced before a release tells others of
//! it. The recording facade fails a release that comes too early.

use softfault_recorded::addr::{Access, PAGE_SIZE, Pfn};
use softfault_recorded::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault_recorded::policy::clear::ClearOrder;
use softfault_recorded::policy::huge::Enabled;
use softfault_recorded::policy::zero::Zeroing;
use softfault_recorded::sync::{self, Word};
use softfault_recorded::table::format::X86_64;
use softfault_recorded::{FaultDone, FrameRange, HugeKnobs, Tunables, Vm};
use softfault_recorded::{MapFlags, Prot};
use std::alloc::{Layout, alloc_zeroed};

const NR_FRAMES: u64 = 4096;
const AT: u64 = 0x10_0000_0000;

struct One(*mut u8);

// SAFETY: I1: the pointer is only handed out; the memory is never given back.
unsafe impl Sync for One {}

// SAFETY: I1: one allocation, aligned, the machine's alone. I2 to I4: one CPU, and
// nothing caches translations.
unsafe impl Machine for One {
    type Format = X86_64;

    fn frames(&self) -> &[FrameRange] {
        &[FrameRange { first: Pfn(0), nr_frames: NR_FRAMES }]
    }
    fn begin(&mut self) -> bool {
        false
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.0.wrapping_add(pfn.0 as usize * PAGE_SIZE as usize)
    }
    fn nr_cpus(&self) -> usize {
        1
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn heavy_barrier(&self, _: &CpuSet) {}
    fn shootdown(&self, _: SpaceTag, _: &CpuSet, _: Flush) {}
    fn shootdown_is_grace(&self) -> bool {
        true
    }
    fn relax(&self) {}
    fn park(&self, _: &Word, _: u64) {}
    fn unpark(&self, _: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}

fn vm() -> Vm<One> {
    vm_with(Tunables::default())
}

fn vm_with(tunables: Tunables) -> Vm<One> {
    let layout = Layout::from_size_align((NR_FRAMES * PAGE_SIZE) as usize, 2 << 20).unwrap();
    // SAFETY: I1: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    Vm::new(One(memory), tunables.with_thp(thp).with_clear_order(Some(ClearOrder::Hybrid))).unwrap()
}

#[test]
fn a_huge_page_that_was_streamed_is_fenced_before_it_is_mapped() {
    let vm = vm();
    let space = vm.new_space().unwrap();
    space
        .mmap(AT, 4 << 20, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED)
        .unwrap();
    assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Huge));
    assert!(vm.zero_ahead(1) > 0, "a block is there to be zeroed");
}

#[test]
fn small_frames_that_passed_the_caches_are_fenced_before_they_are_mapped() {
    for way in Zeroing::ALL {
        let vm = vm_with(Tunables::default().with_zeroing(Some(way)));
        vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Never)).unwrap();
        let space = vm.new_space().unwrap();
        space
            .mmap(AT, 4 << 20, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED)
            .unwrap();
        for page in 0..200 {
            assert_eq!(space.handle_fault(AT + page * PAGE_SIZE, Access::Write), Ok(FaultDone::Installed), "{way:?}");
        }
    }
}

#[test]
#[should_panic(expected = "I6")]
fn a_release_without_the_fence_is_noticed() {
    let vm = vm();
    let space = vm.new_space().unwrap();
    sync::streamed();
    let _ = space.mmap(AT, 4096, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED);
}
