//! The port: all that the subsystem asks of this kernel. A template for others.

use crate::linux::khugepaged;
use crate::port::arch::{cpu, time};
use crate::port::boot::info::{FreeRegions, Info};
use crate::port::boot::paging::direct_map;
use crate::port::kcompactd;
use crate::port::mailbox::{self, Work};
use crate::port::sched::parking;
use crate::port::sync::Once;
use softfault::sync::Word;
use softfault::table::format::X86_64;
use softfault::{CpuId, CpuSet, Flush, FrameRange, Machine, Pfn, SpaceTag};

/// This machine; all else that it has to remember is per CPU or static.
pub struct Kernel {
    frames: &'static [FrameRange],
}

static FREE: Once<FreeRegions> = Once::new();

impl Kernel {
    /// Takes all memory that nobody else has.
    ///
    /// # Panics
    ///
    /// The second time: there is one machine, and one owner of its frames.
    pub fn take(info: &Info) -> Kernel {
        let (regions, nr) = FREE.set(info.free_regions());
        Kernel { frames: &regions[..*nr] }
    }
}

// SAFETY: I1: the frames are memory that the loader reported, nobody else was
// given, and the direct map shows (K1, K7); `take` gives them once. I2: a CPU's number
// is in its block (K3), and the kernel is not interrupted (K2). I3 and I4: each
// target answers a request after a full barrier and after dropping the
// translations (mailbox.rs).
unsafe impl Machine for Kernel {
    type Format = X86_64;

    fn frames(&self) -> &[FrameRange] {
        self.frames
    }
    #[inline(always)]
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        direct_map(u64::from(pfn.0) << 12)
    }
    fn nr_cpus(&self) -> usize {
        cpu::nr_cpus()
    }
    #[inline(always)]
    fn this_cpu(&self) -> CpuId {
        CpuId(cpu::index() as u16)
    }
    fn heavy_barrier(&self, cpus: &CpuSet) {
        mailbox::call(cpus, Work::Barrier);
    }
    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        let root = u64::from(space.root.0) << 12;
        let work = match what {
            Flush::Pages(range) => Work::Flush { root, start: range.start.addr(), nr_pages: range.nr_pages() },
            // The space, or what is not known here.
            _ => Work::FlushAll { root },
        };
        mailbox::call(cpus, work);
    }
    /// Requests are served with no section open (mailbox.rs).
    fn shootdown_is_grace(&self) -> bool {
        true
    }
    #[inline]
    fn relax(&self) {
        mailbox::poll();
    }
    fn park(&self, word: &Word, expected: u64) {
        parking::park(word, expected);
    }
    fn unpark(&self, word: &Word) {
        parking::unpark(word);
        khugepaged::look_for_blocks();
        kcompactd::look_for_requests();
    }
    fn now_ns(&self) -> u64 {
        time::now_ns()
    }
    fn random(&self) -> u64 {
        crate::port::random::next()
    }
}
