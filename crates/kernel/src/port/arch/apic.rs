//! The local interrupt controller (xAPIC): the timer, and interrupts from one
//! CPU to another. The two old controllers are silenced.

use super::cpu;
use super::phys::direct_map;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::port::Port;

/// Vector of the timer.
pub const TIMER: u64 = 0x40;
/// Vector by which a CPU is asked to look at its mailbox and its run queue.
pub const POKE: u64 = 0x41;
/// Vector of interrupts that went away before they were taken.
pub const SPURIOUS: u64 = 0xff;

const BASE: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const EOI: u64 = 0xb0;
const SPURIOUS_REGISTER: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER_ENTRY: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_NOW: u64 = 0x390;
const TIMER_DIVIDE: u64 = 0x3e0;

/// Timer ticks per 2^20 ns; 0 until measured.
static TICKS_PER_MIB_NS: AtomicU64 = AtomicU64::new(0);

fn register(offset: u64) -> *mut u32 {
    direct_map(BASE + offset).cast()
}

fn read(offset: u64) -> u32 {
    // SAFETY: K1: the controller's registers, at their fixed physical address.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: K1 and K6: as above; interrupts aside, no register here has an
    // effect on memory.
    unsafe { register(offset).write_volatile(value) }
}

/// Masks both 8259 controllers: an interrupt of theirs would look like an
/// exception.
pub fn silence_old_controllers() {
    // SAFETY: K6: the two mask registers.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}

/// Turns the executing CPU's controller on.
pub fn init() {
    write(SPURIOUS_REGISTER, 1 << 8 | SPURIOUS as u32);
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_ENTRY, TIMER as u32);
    cpu::this().apic_id.store(read(ID) >> 24, Ordering::Relaxed);
}

/// Starts counting down from the top, for [`ticks_elapsed`].
pub fn start_measuring() {
    write(TIMER_START, u32::MAX);
}

/// Ends it: `ns` have passed.
pub fn end_measuring(ns: u64) {
    let ticks = u64::from(u32::MAX - read(TIMER_NOW));
    write(TIMER_START, 0);
    TICKS_PER_MIB_NS.store(((ticks << 20) / ns.max(1)).max(1), Ordering::Relaxed);
}

/// Interrupts the executing CPU once, in `ns`.
pub fn set_timer(ns: u64) {
    let ticks = (ns.min(1 << 30) * TICKS_PER_MIB_NS.load(Ordering::Relaxed)) >> 20;
    write(TIMER_START, ticks.clamp(1, u64::from(u32::MAX)) as u32);
}

/// Says that the interrupt being handled is done.
pub fn end_of_interrupt() {
    write(EOI, 0);
}

fn command(high: u32, low: u32) {
    while read(COMMAND) & 1 << 12 != 0 {}
    write(COMMAND_HIGH, high);
    write(COMMAND, low);
}

/// Interrupts CPU `index` with [`POKE`].
pub fn poke(index: usize) {
    let id = cpu::by_index(index).apic_id.load(Ordering::Relaxed);
    command(id << 24, 1 << 14 | POKE as u32);
}

/// Resets all CPUs but this one.
pub fn reset_others() {
    command(0, 0b11 << 18 | 1 << 14 | 0b101 << 8);
}

/// Starts all CPUs but this one at the real-mode page `page`.
pub fn start_others(page: u8) {
    command(0, 0b11 << 18 | 1 << 14 | 0b110 << 8 | u32::from(page));
}
