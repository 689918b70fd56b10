//! Starting the other CPUs: reset, then a start-up interrupt with the page of
//! the trampoline, which leads through `start.s` to `other_cpu_main`.

use super::paging;
use crate::port::arch::cpu::{self, MAX_CPUS, STACK_BYTES};
use crate::port::arch::phys::{IMAGE_BASE, direct_map};
use crate::port::arch::{apic, descriptors, time};
use crate::port::console::log;
use crate::port::sched;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use x86_64::instructions::port::Port;

const TRAMPOLINE: u64 = 0x8000;
const START_TIMEOUT_NS: u64 = 2_000_000_000;
/// Duration of the measurement while the others reset. Old CPUs need 10 ms for
/// that; every CPU since 2000 needs next to none.
const MEASURE_NS: u64 = 4_000_000;

/// Stack of each CPU, for `start.s`.
#[unsafe(no_mangle)]
static CPU_STACKS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static NR_UP: AtomicUsize = AtomicUsize::new(1);
static GO: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static trampoline_high: u8;
    static trampoline_high_end: u8;
}

/// How many CPUs QEMU says there are, by its configuration device.
fn nr_present() -> usize {
    // SAFETY: K6: selects item 5 (number of CPUs) and reads its two bytes.
    let nr = unsafe {
        Port::<u16>::new(0x510).write(5);
        let low = Port::<u8>::new(0x511).read();
        let high = Port::<u8>::new(0x511).read();
        usize::from(low) | usize::from(high) << 8
    };
    // Without the device both bytes read as ones.
    if nr == 0 || nr == 0xffff { 1 } else { nr.min(MAX_CPUS) }
}

fn copy_trampoline() {
    let (from, to) = (&raw const trampoline_high as u64, &raw const trampoline_high_end as u64);
    let source = direct_map(from - IMAGE_BASE);
    // SAFETY: K7: the page at 0x8000 is nobody's; the code is shorter than it.
    unsafe { core::ptr::copy_nonoverlapping(source, direct_map(TRAMPOLINE), (to - from) as usize) };
}

fn give_stacks(nr: usize) {
    for slot in &CPU_STACKS[1..nr] {
        let stack = Box::leak(alloc::vec![0u128; STACK_BYTES / 16].into_boxed_slice());
        slot.store(stack.as_ptr_range().end as u64, Ordering::Relaxed);
    }
}

/// Measures the clocks and starts all CPUs; gives their number.
pub fn start() -> usize {
    let nr = nr_present();
    if nr > 1 {
        copy_trampoline();
        give_stacks(nr);
        apic::reset_others();
    }
    let passed = time::measure(MEASURE_NS, apic::start_measuring);
    apic::end_measuring(passed);
    if nr > 1 {
        apic::start_others((TRAMPOLINE >> 12) as u8);
        let deadline = time::now_ns() + START_TIMEOUT_NS;
        while NR_UP.load(Ordering::Acquire) < nr {
            assert!(time::now_ns() < deadline, "{} of {nr} CPUs started", NR_UP.load(Ordering::Relaxed));
        }
    }
    cpu::set_nr_cpus(nr);
    log!("{nr} CPUs");
    nr
}

/// Lets the other CPUs go to work; the subsystem is there.
pub fn release() {
    GO.store(1, Ordering::Release);
}

#[unsafe(no_mangle)]
extern "C" fn other_cpu_main(index: usize) -> ! {
    paging::load_kernel_root();
    cpu::init(index).expect("the same CPU as the first");
    descriptors::init();
    apic::init();
    NR_UP.fetch_add(1, Ordering::AcqRel);
    while GO.load(Ordering::Acquire) == 0 {}
    sched::run_idle()
}
