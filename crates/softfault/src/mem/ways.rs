//! The ways of zeroing that this CPU has, and the instructions of each.
//!
//! [`Ways`] is made by asking the CPU, so the owner of one that names a way may use
//! it. Vector registers beyond those that the compiler uses anyway need the
//! machine's leave ([`Machine::vector_registers`]); `clzero` needs no register.
//! The facades of `sync` have all ways, and do the work of each by plain stores:
//! their machines know no others. Stores that would have passed the caches are still noted.
#![allow(unsafe_code)]

use super::stream;
use crate::addr::{PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::policy::zero::Zeroing;
use crate::sync;

/// A set of ways; plain stores are always among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    bits: u8,
}

impl Ways {
    /// None but plain stores.
    pub const STORES: Ways = Ways { bits: bit(Zeroing::Stores) };

    /// The ways that the calling CPU has and the machine allows. Asks the CPU, which
    /// may take microseconds under a hypervisor.
    pub fn of<M: Machine>(machine: &M) -> Ways {
        let has = |way: &Zeroing| match way {
            Zeroing::Stores => true,
            Zeroing::Vector => machine.vector_registers() && bytes::has_vector(),
            Zeroing::Streaming => bytes::HAS_STREAMING,
            Zeroing::Clzero => bytes::has_clzero(),
        };
        Ways { bits: Zeroing::ALL.into_iter().filter(has).fold(0, |bits, way| bits | bit(way)) }
    }

    /// Whether it is one of them.
    pub const fn has(self, way: Zeroing) -> bool {
        self.bits & bit(way) != 0
    }

    /// Returns the way, or plain stores if the CPU does not have it.
    pub fn or_stores(self, way: Zeroing) -> Zeroing {
        if self.has(way) { way } else { Zeroing::Stores }
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = Zeroing> {
        Zeroing::ALL.into_iter().filter(move |way| self.has(*way))
    }
}

const fn bit(way: Zeroing) -> u8 {
    1 << way as u8
}

/// Fills `nr_frames` adjacent frames, owned by the caller alone (I6), with zeroes: that way, or by
/// plain stores where there is no such. A caller that passes the caches calls [`stream::done`] before
/// anybody else may learn of the frames.
pub fn zero_frames<M: Machine>(machine: &M, ways: Ways, way: Zeroing, first: Pfn, nr_frames: u64) {
    let len = (nr_frames * PAGE_SIZE) as usize;
    match ways.or_stores(way) {
        Zeroing::Stores => super::zero_frames(machine, first, nr_frames),
        Zeroing::Streaming => stream::zero_frames(machine, first, nr_frames),
        Zeroing::Vector => {
            let to = machine.frame_ptr(first);
            sync::about_to_touch(to, len);
            // SAFETY: I1 and I6: that many bytes, aligned to a page, and nobody else
            // reads or writes them now. I42: the CPU has the instructions and the
            // machine allows the registers, or `ways` would not say so.
            unsafe { bytes::zero_by_vectors(to, len) };
            sync::zeroed(to, len);
        }
        Zeroing::Clzero => {
            let to = machine.frame_ptr(first);
            sync::about_to_touch(to, len);
            // SAFETY: I1 and I6, as above. I42: the CPU has the instruction.
            unsafe { bytes::zero_by_lines(to, len) };
            sync::streamed();
            sync::zeroed(to, len);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(softfault_sync), not(miri)))]
mod bytes {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid_count, CpuidResult};

    pub const HAS_STREAMING: bool = cfg!(target_feature = "sse2");

    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const AVX2: u32 = 1 << 5;
    const CLZERO: u32 = 1;
    /// XCR0: the system saves the lower and the upper halves of the registers.
    const SAVES_YMM: u32 = 0b110;

    /// Whether there are registers of 32 bytes, and instructions for them.
    pub fn has_vector() -> bool {
        cfg!(target_feature = "sse2")
            && cpuid(0).eax >= 7
            && cpuid(1).ecx & OSXSAVE_AND_AVX == OSXSAVE_AND_AVX
            && xcr0() & SAVES_YMM == SAVES_YMM
            && cpuid(7).ebx & AVX2 != 0
    }

    /// Whether there is `clzero`. Its lines are of 64 bytes on every CPU that has it.
    pub fn has_clzero() -> bool {
        cpuid(0x8000_0000).eax >= 0x8000_0008 && cpuid(0x8000_0008).ebx & CLZERO != 0
    }

    fn cpuid(leaf: u32) -> CpuidResult {
        #[allow(unused_unsafe)] // newer compilers know that it is safe
        // SAFETY: I5: the instruction touches no memory, and each x86-64 CPU has it.
        unsafe {
            __cpuid_count(leaf, 0)
        }
    }

    /// Asked only where OSXSAVE says that there is one.
    fn xcr0() -> u32 {
        let low: u32;
        // SAFETY: I5: the instruction reads a register and touches no memory.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
        }
        low
    }

    /// # Safety
    ///
    /// I1, I6: `len` bytes, a multiple of 64, at `to`, aligned to 64, are the
    /// caller's. I42: [`has_vector`], and the machine allows it.
    #[cfg(target_feature = "sse2")]
    #[target_feature(enable = "avx2")]
    pub unsafe fn zero_by_vectors(to: *mut u8, len: usize) {
        use core::arch::x86_64::{__m256i, _mm256_setzero_si256, _mm256_store_si256};
        for line in (0..len).step_by(64) {
            let at = to.wrapping_add(line).cast::<__m256i>();
            // SAFETY: I1: the line is inside, and its halves are aligned to 32. The empty
            // statement may touch memory for all that the compiler knows, which would
            // otherwise make one call of `memset` of the loop.
            unsafe {
                _mm256_store_si256(at, _mm256_setzero_si256());
                _mm256_store_si256(at.wrapping_add(1), _mm256_setzero_si256());
                asm!("", options(nostack, preserves_flags));
            }
        }
    }

    /// # Safety
    ///
    /// I1, I6: as below; never called, since [`has_vector`] is false.
    #[cfg(not(target_feature = "sse2"))]
    pub unsafe fn zero_by_vectors(to: *mut u8, len: usize) {
        // SAFETY: I1, I6: the caller's promise.
        unsafe { core::ptr::write_bytes(to, 0, len) }
    }

    /// # Safety
    ///
    /// I1, I6: `len` bytes, a multiple of 64, at `to`, aligned to 64, are the
    /// caller's. I42: [`has_clzero`].
    pub unsafe fn zero_by_lines(to: *mut u8, len: usize) {
        for line in (0..len).step_by(64) {
            // SAFETY: I1: the line is inside; the instruction zeroes it and no more.
            unsafe { asm!("clzero", in("rax") to.wrapping_add(line), options(nostack, preserves_flags)) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(softfault_sync), not(miri))))]
mod bytes {
    pub const HAS_STREAMING: bool = cfg!(softfault_sync);

    pub fn has_vector() -> bool {
        cfg!(softfault_sync)
    }

    pub fn has_clzero() -> bool {
        cfg!(softfault_sync)
    }

    /// # Safety
    ///
    /// I1, I6: `len` bytes at `to` are the caller's.
    pub unsafe fn zero_by_vectors(to: *mut u8, len: usize) {
        // SAFETY: I1, I6: the caller's promise.
        unsafe { core::ptr::write_bytes(to, 0, len) }
    }

    /// # Safety
    ///
    /// I1, I6: as for [`zero_by_vectors`].
    pub unsafe fn zero_by_lines(to: *mut u8, len: usize) {
        // SAFETY: I1, I6: the caller's promise.
        unsafe { core::ptr::write_bytes(to, 0, len) }
    }
}
