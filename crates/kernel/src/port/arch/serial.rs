//! The first serial line, for typed input: a 16550 whose interrupt goes through
//! the I/O interrupt controller to CPU 0. Output goes elsewhere (console.rs).
//!
//! Its queue stays off: turning it on would forget what was typed before.

use super::phys::direct_map;
use spin::Once;
use x86_64::instructions::port::Port;

/// Vector of its interrupt.
pub const SERIAL: u64 = 0x42;

const BASE: u16 = 0x3f8;
/// Data, interrupts on, line control, modem control, line status.
const DATA: u16 = BASE;
const ENABLE: u16 = BASE + 1;
const LINE: u16 = BASE + 3;
const MODEM: u16 = BASE + 4;
const STATUS: u16 = BASE + 5;
const EIGHT_BITS: u8 = 3;
/// Ready, request to send, and the gate of the interrupt.
const MODEM_LINES: u8 = 0xb;
const RECEIVED: u8 = 1;

/// The I/O interrupt controller: which register, and its value.
const IO_APIC: u64 = 0xfec0_0000;
const IO_APIC_VALUE: u64 = IO_APIC + 0x10;
/// Low half of the entry of input 4.
const ENTRY_4: u32 = 0x10 + 2 * 4;

fn out(port: u16, value: u8) {
    // SAFETY: K6: a register of the serial line.
    unsafe { Port::new(port).write(value) }
}

fn read(port: u16) -> u8 {
    // SAFETY: K6: a register of the serial line.
    unsafe { Port::new(port).read() }
}

fn route(register: u32, value: u32) {
    // SAFETY: K1 and K6: the controller's two registers, at their fixed physical
    // address.
    unsafe {
        direct_map(IO_APIC).cast::<u32>().write_volatile(register);
        direct_map(IO_APIC_VALUE).cast::<u32>().write_volatile(value);
    }
}

/// Called when bytes were typed.
static ON_INPUT: Once<fn()> = Once::new();

/// Lets typed bytes interrupt CPU 0, which calls `on_input` then with no lock held.
/// Bytes that came before wait to be read.
pub fn init(on_input: fn()) {
    ON_INPUT.call_once(|| on_input);
    out(LINE, EIGHT_BITS);
    out(MODEM, MODEM_LINES);
    route(ENTRY_4 + 1, 0);
    route(ENTRY_4, SERIAL as u32);
    out(ENABLE, RECEIVED);
}

/// The line has interrupted this CPU.
pub fn interrupted() {
    if let Some(on_input) = ON_INPUT.get() {
        on_input();
    }
}

/// The next byte that was typed.
pub fn next_byte() -> Option<u8> {
    (read(STATUS) & RECEIVED != 0).then(|| read(DATA))
}
