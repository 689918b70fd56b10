//! Clears pages as the host's Linux is assumed to clear those of its pool: in which order, and by which instruction.
//! Linux does not say so itself; the flags of the CPU and the kernel's release decide.
//!
//! One of the lab's files with `unsafe`:
//! - **L14** the frames that are cleared belong to the [`Scratch`] of one thread, and are adjacent in the host's memory.

use crate::bench::PAGE_BYTES;
use crate::os;
use softfault::clear::{ClearOrder, Run, Scratch};
use softfault::machine::Machine;
use softfault::{Order, Pfn};
use softfault_host::Hosted;
use std::fmt;

/// The first major release that clears a run of sub-pages by one instruction; older ones clear each for itself.
const FIRST_WITH_RUNS: u32 = 7;

/// How Linux clears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinuxWay {
    order: ClearOrder,
    piece: Piece,
    instruction: Instruction,
}

/// Bytes that one instruction clears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    SubPage,
    Run,
}

/// The fastest of those that the CPU has, as Linux rates them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instruction {
    /// `clear_page_erms`.
    Bytes,
    /// `clear_page_rep`.
    Words,
    /// Other processors, and x86 without either: plain stores in a loop.
    Loop,
}

impl LinuxWay {
    /// That of this host for pages of `page_bytes`.
    pub fn assumed(page_bytes: u64) -> LinuxWay {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        LinuxWay::of(&os::kernel_release(), &cpus, page_bytes)
    }

    fn of(release: &str, cpus: &str, page_bytes: u64) -> LinuxWay {
        let flags = cpus.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
        let has = |flag| cfg!(target_arch = "x86_64") && flags.split_whitespace().any(|word| word == flag);
        let instruction = match (has("erms"), has("rep_good")) {
            (true, _) => Instruction::Bytes,
            (false, true) => Instruction::Words,
            (false, false) => Instruction::Loop,
        };
        let major = release.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        let (order, piece) = match (major >= FIRST_WITH_RUNS, page_bytes > Order::PMD.nr_pages() * PAGE_BYTES) {
            (true, _) => (ClearOrder::Runs, Piece::Run),
            (false, true) => (ClearOrder::Forward, Piece::SubPage),
            (false, false) => (ClearOrder::Converge, Piece::SubPage),
        };
        LinuxWay { order, piece, instruction }
    }

    /// Clears the 2 MiB from frame number `at` of the thread's part; their first byte is the one that is written.
    pub fn clear(self, part: &mut Scratch<'_, Hosted>, at: u64) {
        let (range, nr) = (part.range(), Order::PMD.nr_pages());
        assert!(at + nr <= range.nr_frames, "2 MiB at frame {at}: should be in the {} frames", range.nr_frames);
        let base = part.machine().frame_ptr(Pfn(range.first.0 + at as u32));
        let clear = |first: u64, count: u64| {
            let to = base.wrapping_add((first * PAGE_BYTES) as usize);
            // SAFETY: L14: these frames are in the part, by the assertion and the plan.
            unsafe { fill(self.instruction, to, (count * PAGE_BYTES) as usize) };
        };
        for run in self.order.plan(nr, Some(0)) {
            match (self.piece, run) {
                (Piece::SubPage, run) => run.indices().for_each(|i| clear(i, 1)),
                (Piece::Run, Run { start, count, .. }) => clear(start, count),
            }
        }
    }
}

impl fmt::Display for LinuxWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = match self.instruction {
            Instruction::Bytes => "rep stosb",
            Instruction::Words => "rep stosq",
            Instruction::Loop => "stores",
        };
        let piece = if self.piece == Piece::SubPage { "4 KiB" } else { "each run" };
        write!(f, "{}, {instruction} for {piece}", self.order.name())
    }
}

/// Zeroes `len` bytes, a multiple of 8.
///
/// # Safety
///
/// L14: the bytes from `to` belong to the caller alone.
unsafe fn fill(instruction: Instruction, to: *mut u8, len: usize) {
    match instruction {
        #[cfg(target_arch = "x86_64")]
        Instruction::Bytes => {
            // SAFETY: L14: the caller's promise. The direction flag is clear, as everywhere in Rust.
            unsafe {
                core::arch::asm!("rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") 0u8,
                    options(nostack, preserves_flags));
            }
        }
        #[cfg(target_arch = "x86_64")]
        Instruction::Words => {
            // SAFETY: L14: as for bytes.
            unsafe {
                core::arch::asm!("rep stosq", inout("rdi") to => _, inout("rcx") len / 8 => _, in("rax") 0u64,
                    options(nostack, preserves_flags));
            }
        }
        // SAFETY: L14: the caller's promise.
        _ => unsafe { to.write_bytes(0, len) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault::machine::FrameRange;
    use softfault_host::HostedConfig;

    #[test]
    fn release_flags_and_size_decide() {
        let of = |release, flags: &str, page_bytes| {
            LinuxWay::of(release, &format!("vendor_id\t: A\nflags\t\t: fpu {flags} sse2\n"), page_bytes).to_string()
        };
        let (mib, gib) = (2 << 20, 1 << 30);
        assert_eq!(of("7.1.0", "", mib), "runs, stores for each run");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(of("6.18.44-fc", "rep_good erms", mib), "converge, rep stosb for 4 KiB");
            assert_eq!(of("6.18.44-fc", "erms", gib), "forward, rep stosb for 4 KiB");
            assert_eq!(of("10.0", "rep_good fsrm", gib), "runs, rep stosq for each run");
        }
        assert_eq!(LinuxWay::of("", "", mib).to_string(), "converge, stores for 4 KiB");
    }

    /// In each way all of the 2 MiB, and nothing else.
    #[test]
    fn two_mib_are_cleared_and_no_more() {
        let mut hosted = Hosted::new(HostedConfig::default().with_arena_bytes(16 << 20)).unwrap();
        let all = hosted.frames()[0];
        let range = FrameRange { first: all.first, nr_frames: 4 * Order::PMD.nr_pages() };
        let part = PAGE_BYTES as usize * Order::PMD.nr_pages() as usize;
        let ways = [Instruction::Bytes, Instruction::Words, Instruction::Loop].into_iter().flat_map(|instruction| {
            let pieces = [(ClearOrder::Converge, Piece::SubPage), (ClearOrder::Runs, Piece::Run)];
            pieces.map(|(order, piece)| LinuxWay { order, piece, instruction })
        });
        for way in ways {
            hosted.soil(!0);
            let mut scratch = Scratch::new(&mut hosted, range).unwrap();
            let base = scratch.machine().frame_ptr(range.first);
            // SAFETY: L14: the frames of the scratch, which nobody else has.
            let bytes = || unsafe { std::slice::from_raw_parts(base, 4 * part) };
            // SAFETY: L14: the same; nobody reads them meanwhile.
            unsafe { base.write_bytes(0xa5, 4 * part) };
            way.clear(&mut scratch, Order::PMD.nr_pages());
            let is = |from: usize, value: u8| bytes()[from..][..part].iter().all(|byte| *byte == value);
            assert!(is(0, 0xa5) && is(part, 0) && is(2 * part, 0xa5) && is(3 * part, 0xa5), "{way}");
        }
    }
}
