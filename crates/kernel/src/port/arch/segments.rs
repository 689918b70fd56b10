//! Segment registers of threads: the selectors and bases that a program may load by
//! itself, kept while a thread is off its CPU.
//!
//! The kernel uses none of them but the base of `%gs`, which `entry.s` swaps. A program
//! loads selectors without a system call, and bases, too (CR4.FSGSBASE), so what the CPU
//! has counts, not what was asked for.

use core::arch::asm;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, KernelGsBase};
use x86_64::registers::segmentation::{DS, ES, FS, GS, Segment, SegmentSelector};

/// The registers of a thread that is off its CPU. All zero is what a program starts with.
#[derive(Default)]
pub struct Saved {
    ds: AtomicU16,
    es: AtomicU16,
    fs: AtomicU16,
    gs: AtomicU16,
    fs_base: AtomicU64,
    gs_base: AtomicU64,
}

/// A CPU that returns to ring 3 by `iret` makes each null selector 0. Emulated ones do
/// that to %ds and %es only.
fn selector(of: SegmentSelector) -> u16 {
    if of.0 & !3 == 0 { 0 } else { of.0 }
}

/// Loads %gs for the program; the kernel's base is kept.
fn load_gs(selector: u16) {
    // SAFETY: K2, K3 and K6: no entry comes between the two swaps, and a program had the
    // selector, whose descriptor is the same on all CPUs.
    unsafe { asm!("swapgs", "mov gs, {:x}", "swapgs", in(reg) selector, options(nostack, preserves_flags)) }
}

/// Base of the program's `%fs` on the executing CPU.
pub fn fs_base() -> u64 {
    // SAFETY: K6: reads a register. A program may have put any number into it.
    unsafe { FsBase::MSR.read() }
}

/// Base of the program's `%gs`; inside the kernel it waits in the other register.
pub fn gs_base() -> u64 {
    // SAFETY: K6: as above.
    unsafe { KernelGsBase::MSR.read() }
}

/// Gives the program's `%fs` this base, which lies in its half, and a null selector.
pub fn set_fs_base(base: u64) {
    // SAFETY: K6: a null selector is always legal, and the kernel does not use %fs.
    unsafe { FS::set_reg(SegmentSelector(0)) };
    FsBase::write(VirtAddr::new(base));
}

/// The same for `%gs`.
pub fn set_gs_base(base: u64) {
    load_gs(0);
    KernelGsBase::write(VirtAddr::new(base));
}

impl Saved {
    /// Stores the executing CPU's registers: those of the thread that runs, for itself or
    /// for one that it makes.
    pub fn save(&self) {
        let registers = [(&self.ds, DS::get_reg()), (&self.es, ES::get_reg()), (&self.fs, FS::get_reg())];
        registers.into_iter().chain([(&self.gs, GS::get_reg())]).for_each(|(to, register)| {
            to.store(selector(register), Ordering::Relaxed);
        });
        self.fs_base.store(fs_base(), Ordering::Relaxed);
        self.gs_base.store(gs_base(), Ordering::Relaxed);
    }
    /// Loads them; the thread is about to run on this CPU. Bases come last: a selector
    /// brings one along.
    pub fn restore(&self) {
        let get = |from: &AtomicU16| SegmentSelector(from.load(Ordering::Relaxed));
        // SAFETY: K6: as for `load_gs`; the kernel does not use these.
        unsafe {
            DS::set_reg(get(&self.ds));
            ES::set_reg(get(&self.es));
            FS::set_reg(get(&self.fs));
        }
        load_gs(get(&self.gs).0);
        FsBase::write(VirtAddr::new_truncate(self.fs_base.load(Ordering::Relaxed)));
        KernelGsBase::write(VirtAddr::new_truncate(self.gs_base.load(Ordering::Relaxed)));
    }
    /// Gives `%fs` another base before the thread has run.
    pub fn put_fs_base(&self, base: u64) {
        self.fs.store(0, Ordering::Relaxed);
        self.fs_base.store(base, Ordering::Relaxed);
    }
}
