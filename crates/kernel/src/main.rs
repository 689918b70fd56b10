//! The reference kernel of Softfault: boots in QEMU, runs one unmodified static
//! Linux program on all CPUs, and leaves all memory management to the library.
//!
//! Top to bottom: `boot` and `arch` (the machine), `sched` (threads on CPUs),
//! `machine` and `mm` (the port and the one `Vm`), `process`, `signal`, `futex`,
//! `syscall` and `trap` (what programs see). The kernel writes no table entry of
//! a program's and keeps no list of mappings.
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod boot;
mod console;
mod errno;
mod futex;
mod heap;
mod machine;
mod mailbox;
mod main_thread;
mod mm;
mod power;
mod process;
mod random;
mod sched;
mod selftest;
mod signal;
mod sync;
mod syscall;
mod trap;

use arch::{apic, cpu, descriptors};
use boot::{info, paging, smp};
use console::{Channel, Line};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

/// The boot CPU comes here from `start.s`, on the boot tables.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    // The CPU's block first: locks, and so all output, need it.
    let cpu = cpu::init(0);
    cpu.expect("a CPU with SMEP and SMAP: start QEMU with -cpu max");
    paging::init();
    let info = match info::read(start_info) {
        Ok(info) => info,
        Err(error) => panic!("cannot start: {error:?}: wants a PVH loader and 16 MiB of memory"),
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
