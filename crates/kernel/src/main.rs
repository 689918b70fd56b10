//! The reference kernel of Softfault: boots in QEMU, runs one unmodified static
//! Linux program on all CPUs, and leaves all memory management to the library.
//!
//! It has two halves. `port` is what a porter of Softfault reads: the machine, threads
//! on CPUs, traps, what the subsystem asks of a kernel. `linux` is the personality:
//! processes, signals, files, system calls. The port names nothing of the
//! personality, which `cargo xtask lint` checks. The kernel writes no table entry of a
//! program's and keeps no list of mappings.
//!
//! Its `unsafe` relies on:
//! - **K1** all physical memory below 512 GiB, devices included, is mapped at
//!   [`phys::DIRECT_MAP`](port::arch::phys::DIRECT_MAP), in every root table, from before the first Rust code
//!   for ever; a frame that the subsystem was given is touched by nobody else.
//! - **K2** compiled kernel code runs with interrupts off; they are on only in
//!   the one `sti; hlt; cli` of [`cpu::halt_once`], whose callers hold no lock
//!   and are in no section. No interrupt handler takes a lock that its victim
//!   could hold.
//! - **K3** inside the kernel `%gs` is the block of the executing CPU, from before
//!   its first use; `swapgs` is executed at the edges of ring 3, and twice in a row where
//!   `segments.rs` loads the program's `%gs`. Objects that a block's cells refer to outlive
//!   the CPU's use of it.
//! - **K4** a thread's stack, context and floating-point image are used only by
//!   the CPU that has it as current, or by the one that made it before it first
//!   ran; `on_cpu` is cleared, with release, only after its stack was left, and
//!   a thread is taken from the queue only after that was seen.
//! - **K5** a program's memory is reached through `AddressSpace` only; with SMAP
//!   and SMEP on, anything else traps.
//! - **K6** a privileged instruction or device register named in a block does
//!   what its manual says and changes no memory that Rust knows of, apart from
//!   the operand that is named.
//! - **K7** what the loader left (its tables, the archive, the page at 0x8000)
//!   lies outside the heap and the subsystem's frames, and is written by nobody
//!   after it was read.
//! - **K8** entry code passes a reference to the one frame that it has just built
//!   on the current kernel stack; nobody else refers to it until the handler
//!   returns.
//! - **K9** every root table that is loaded has the kernel's upper half, the same
//!   in all; it is written once, before the table is first loaded, and the tables
//!   under it never change after boot.
//! - **K10** a `Thread<dyn Program>` was a `Thread<P>` for its program's type `P`
//!   when it was made, and has been that thread ever since: only the pointer's type
//!   was changed.
//! - **K11** the word of a sleeping lock leaves FREE by one thread's
//!   compare-and-swap or swap, with acquire order, and comes back to it by that
//!   thread's release.
#![no_std]
#![no_main]

extern crate alloc;

mod linux;
mod port;

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use linux::main_thread;
use port::arch::{apic, cpu, descriptors};
use port::boot::{info, paging, smp};
use port::console::{Channel, Line};
use port::{heap, power, random, sched};

/// The boot CPU comes here from `start.s`, on the boot tables.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    // The CPU's block first: locks, and so all output, need it.
    let cpu = cpu::init(0);
    cpu.expect("a CPU with SMEP and SMAP: start QEMU with -cpu max");
    paging::init();
    let info = match info::read(start_info) {
        Ok(info) => info,
        Err(error) => panic!("cannot start: {error}"),
    };
    heap::init(info.heap);
    descriptors::init();
    apic::silence_old_controllers();
    apic::init();
    smp::start();
    random::init();
    main_thread::start(info);
    smp::release();
    sched::run_idle()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    static FIRST: AtomicBool = AtomicBool::new(true);
    if FIRST.swap(false, Ordering::AcqRel) {
        let mut line = Line::new(Channel::Log, true);
        let _ = writeln!(line, "kernel panic on CPU {}: {info}", cpu::index());
    }
    power::off(power::End::Panic)
}
