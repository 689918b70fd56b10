//! A machine of memory and nothing else.
#![allow(unsafe_code)]

extern crate std;

use crate::addr::Pfn;
use crate::machine::FrameRange;
use crate::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use crate::sync::{Ordering, Word};
use core::cell::UnsafeCell;
use std::boxed::Box;

#[repr(align(4096))]
struct Frame(#[allow(dead_code)] UnsafeCell<[u8; 4096]>);

pub(super) struct Arena {
    frames: Box<[Frame]>,
    /// Frames handed out; frame 0 never is.
    nr_given: Word,
}

// SAFETY: I1: the bytes are only ever touched through Words.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(nr_frames: u32) -> Arena {
        let frames = (0..=nr_frames).map(|_| Frame(UnsafeCell::new([0; 4096]))).collect();
        Arena { frames, nr_given: Word::new(0) }
    }
    pub(super) fn alloc(&self) -> Option<Pfn> {
        let pfn = self.nr_given.get() + 1;
        ((pfn as usize) < self.frames.len()).then(|| {
            self.nr_given.store(pfn, Ordering::Release);
            Pfn(pfn as u32)
        })
    }
    pub(super) fn source(&self) -> impl FnMut() -> Option<Pfn> {
        || self.alloc()
    }
    pub(super) fn nr_given(&self) -> u64 {
        self.nr_given.get()
    }
}

// SAFETY: I1: a boxed slice does not move, and a frame that was not handed out
// is refused. I2 to I4 are not asked of it: the tree calls `frame_ptr` alone.
unsafe impl Machine for Arena {
    type Format = crate::table::format::Toy;

    fn frames(&self) -> &[FrameRange] {
        &[]
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        let given = 1..=self.nr_given.load(Ordering::Acquire);
        assert!(given.contains(&u64::from(pfn.0)), "{pfn:?} was never given to the tree");
        self.frames[pfn.0 as usize].0.get().cast()
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
        false
    }
    fn relax(&self) {
        std::thread::yield_now();
    }
    fn park(&self, _: &Word, _: u64) {}
    fn unpark(&self, _: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}
