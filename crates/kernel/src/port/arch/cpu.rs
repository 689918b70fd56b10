//! The block of each CPU, reached through `%gs`, and the control registers.
//!
//! Kernel code runs with interrupts off (K2), so what a CPU keeps here has one
//! user at any time, apart from the fields that are atomic on purpose.

use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
use x86_64::registers::model_specific::{Efer, EferFlags, GsBase};

/// Most CPUs that the kernel can run; a set of them is one word.
pub const MAX_CPUS: usize = 64;

/// Bytes of each kernel stack.
pub const STACK_BYTES: usize = 32 * 1024;

/// One CPU. `entry.s` knows the first three fields.
#[repr(C, align(64))]
pub struct Cpu {
    this: Cell<*const Cpu>,
    /// Top of the current thread's kernel stack.
    pub kernel_stack: Cell<u64>,
    program_stack: Cell<u64>,
    index: Cell<u32>,
    /// Its interrupt controller's number.
    pub apic_id: AtomicU32,
}

// SAFETY: K2 and K3: the cells are used by the CPU that the block belongs to,
// with interrupts off; the rest is atomic.
unsafe impl Sync for Cpu {}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];
static NR_CPUS: AtomicUsize = AtomicUsize::new(1);

impl Cpu {
    const fn new() -> Cpu {
        Cpu {
            this: Cell::new(core::ptr::null()),
            kernel_stack: Cell::new(0),
            program_stack: Cell::new(0),
            index: Cell::new(0),
            apic_id: AtomicU32::new(0),
        }
    }
}

/// Number of the CPU that executes this, counted from 0.
#[inline(always)]
pub fn index() -> usize {
    let index: u32;
    // SAFETY: K3: %gs is this CPU's block; its number lies at offset 24.
    unsafe { asm!("mov {:e}, gs:[24]", out(reg) index, options(nostack, preserves_flags, pure, readonly)) };
    index as usize
}

/// The block of the CPU that executes this.
#[inline(always)]
pub fn this() -> &'static Cpu {
    &CPUS[index()]
}

/// The block of CPU `index`.
pub fn by_index(index: usize) -> &'static Cpu {
    &CPUS[index]
}

/// How many CPUs run.
pub fn nr_cpus() -> usize {
    NR_CPUS.load(Ordering::Relaxed)
}

/// Says how many CPUs run; once, when the last one is up.
pub fn set_nr_cpus(nr: usize) {
    NR_CPUS.store(nr, Ordering::Relaxed);
}

/// Why the kernel cannot run on this CPU.
#[derive(Debug)]
pub struct MissingFeatures;

/// Makes the executing CPU number `index`, with supervisor protection on.
pub fn init(index: usize) -> Result<(), MissingFeatures> {
    let cpu = &CPUS[index];
    cpu.this.set(cpu);
    cpu.index.set(index as u32);
    GsBase::write(x86_64::VirtAddr::from_ptr(cpu));
    let features = extended_features();
    let (smep, smap) = (features & 1 << 7 != 0, features & 1 << 20 != 0);
    if !(smep && smap) {
        return Err(MissingFeatures);
    }
    // SAFETY: K6: these protect the kernel from itself; all of its own accesses
    // are to supervisor pages with the rights that paging.rs gives.
    unsafe {
        Cr0::update(|f| f.insert(Cr0Flags::WRITE_PROTECT));
        Cr4::update(|f| {
            f.insert(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION | Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION);
            f.set(Cr4Flags::FSGSBASE, has_fsgsbase());
        });
        Efer::update(|f| f.insert(EferFlags::NO_EXECUTE_ENABLE | EferFlags::SYSTEM_CALL_EXTENSIONS));
    }
    Ok(())
}

/// Whether programs may set bases of `%fs` and `%gs` by an instruction: as CPUID tells them.
pub fn has_fsgsbase() -> bool {
    extended_features() & 1 != 0
}

/// EBX of CPUID's leaf 7. None on a CPU without that leaf, which answers with another one.
fn extended_features() -> u32 {
    let most = core::arch::x86_64::__cpuid(0).eax;
    if most < 7 { 0 } else { core::arch::x86_64::__cpuid_count(7, 0).ebx }
}

/// Whether an entry of level 2 may map 1 GiB.
pub fn has_entries_of_1_gib() -> bool {
    const PAGE_1GB: u32 = 1 << 26;
    let most = core::arch::x86_64::__cpuid(0x8000_0000).eax;
    most >= 0x8000_0001 && core::arch::x86_64::__cpuid(0x8000_0001).edx & PAGE_1GB != 0
}

/// Waits for an interrupt: with [`init`] done the one place where the kernel
/// has interrupts on. The caller holds no lock and is in no section.
pub fn halt_once() {
    // SAFETY: K2 and K6: `sti` takes effect after `hlt` has begun, so no
    // interrupt is lost; the compiler keeps nothing below the stack pointer here,
    // since the block may use the stack.
    unsafe { asm!("sti", "hlt", "cli") };
}
