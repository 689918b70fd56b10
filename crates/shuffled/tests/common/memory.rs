//! The memory of the machines.

use super::MOST_FRAMES_LATER;
use std::cell::Cell;

/// Frames of 1 GiB, and those that are cleared or copied in one piece.
pub(super) const GIB_FRAMES: usize = 1 << 18;
const PIECE_FRAMES: usize = softfault_shuffled::clear::CHUNK_FRAMES as usize;

/// How much memory each GiB has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gibs {
    Whole,
    /// Those behind the first one have memory for three pieces: the first, the last, and one for all others. A page of 1 GiB is
    /// copied in the real number of steps, by bytes that stay in caches. Nothing else may lie there.
    Folded,
}

impl Gibs {
    /// The page of the memory that has the bytes of a frame.
    pub(super) fn place_of(self, pfn: usize) -> usize {
        let (gib, at) = (pfn / GIB_FRAMES, pfn % GIB_FRAMES);
        if self == Gibs::Whole || gib == 0 {
            return pfn;
        }
        let piece = match at / PIECE_FRAMES {
            0 => 0,
            last if last == GIB_FRAMES / PIECE_FRAMES - 1 => 2,
            _ => 1,
        };
        GIB_FRAMES + ((gib - 1) * 3 + piece) * PIECE_FRAMES + at % PIECE_FRAMES
    }
}

/// Memory that is zero and that no schedule has used: the schedule before gives its back.
pub(super) fn fresh_memory(nr_frames: usize) -> *mut u8 {
    std::thread_local! {
        static BEFORE: Cell<Option<(*mut u8, std::alloc::Layout)>> = const { Cell::new(None) };
    }
    let layout = std::alloc::Layout::from_size_align((nr_frames + 1) * 4096, 1).unwrap();
    // SAFETY: I1: it came from there; nobody uses the machine of the schedule before.
    BEFORE.with(Cell::take).into_iter().for_each(|(memory, layout)| unsafe { std::alloc::dealloc(memory, layout) });
    // SAFETY: I1: the layout has a size, and a page more than is used.
    let (memory, aligned) = unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        (memory, memory.add(memory.align_offset(4096)))
    };
    BEFORE.with(|before| before.set(Some((memory, layout))));
    aligned
}

pub(super) fn memory() -> *mut u8 {
    std::thread_local! {
        static MEMORY: *mut u8 = {
            // Of the smallest alignment: the allocator writes the zeroes of an aligned block, all 2.6 GiB of them.
            let layout = std::alloc::Layout::from_size_align((MOST_FRAMES_LATER as usize + 1) * 4096, 1).unwrap();
            // SAFETY: I1: the layout has a size; the memory is never given back.
            let memory = unsafe { std::alloc::alloc_zeroed(layout) };
            // SAFETY: I1: the memory has a page more than is used.
            unsafe { memory.add(memory.align_offset(4096)) }
        };
    }
    MEMORY.with(|m| *m)
}
