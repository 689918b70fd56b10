//! The port: all that the subsystem asks of this kernel. A template for others.

use crate::port::arch::phys::direct_map;
use crate::port::arch::{cpu, time};
use crate::port::boot::info::{FreeRegions, Info};
use crate::port::mailbox::{self, Work};
use crate::port::mm::{self, Kernel};
use crate::port::sched::{daemon, parking};
use softfault::clear::{Scratch, calibrate};
use softfault::sync::Word;
use softfault::table::format::X86_64;
use softfault::{CpuId, CpuSet, Flush, FrameRange, HoleRefused, Machine, ObjectHole, Pfn, SpaceTag, Tunables, Vm};
use spin::Once;

static FREE: Once<FreeRegions> = Once::new();

impl Kernel {
    /// Takes all memory that nobody else has.
    ///
    /// # Panics
    ///
    /// The second time: there is one machine, and one owner of its frames.
    fn take(info: &Info) -> Kernel {
        assert!(!FREE.is_completed(), "the machine is taken");
        let (regions, nr) = FREE.call_once(|| info.free_regions());
        Kernel { frames: &regions[..*nr] }
    }
}

/// The memory on which the order of clearing large pages is measured, a millisecond of the
/// boot: an emulated CPU has no caches that a larger measurement could tell apart.
const CALIBRATION_FRAMES: u64 = 16;

/// Gives the subsystem all memory that nobody else has.
pub fn init(info: &Info, tunables: Tunables) {
    let mut machine = Kernel::take(info);
    let scratch = machine.frames().iter().find(|r| r.nr_frames >= CALIBRATION_FRAMES).copied();
    let scratch = scratch.map(|range| FrameRange { nr_frames: CALIBRATION_FRAMES, ..range });
    let table = scratch.and_then(|range| Scratch::new(&mut machine, range)).map(|mut scratch| calibrate(&mut scratch));
    match Vm::new(machine, tunables) {
        Ok(vm) => {
            // Not the way of zeroing small frames: on an emulated CPU the fewest instructions
            // would win, and the instructions of a fault are counted against Linux's.
            table.iter().for_each(|table| vm.set_clear_orders(table));
            mm::set(vm);
        }
        Err(error) => panic!("too little memory: {} KiB usable: {error}", info.memory_bytes() / 1024),
    };
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
    fn top_leaf(&self) -> u8 {
        if cpu::has_entries_of_1_gib() { 2 } else { 1 }
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
        daemon::look_for_blocks();
        daemon::look_for_requests();
    }
    fn punch_hole(&self, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
        mm::punch(hole)
    }
    fn now_ns(&self) -> u64 {
        time::now_ns()
    }
    fn random(&self) -> u64 {
        crate::port::random::next()
    }
}
