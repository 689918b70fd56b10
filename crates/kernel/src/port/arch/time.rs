//! Clocks: the time-stamp counter, measured against the HPET at boot; the day's
//! time from the CMOS clock.

use super::phys::direct_map;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::port::Port;

const HPET: u64 = 0xfed0_0000;
const HPET_CAPABILITIES: u64 = 0x0;
const HPET_CONFIGURATION: u64 = 0x10;
const HPET_COUNTER: u64 = 0xf0;

/// Counter value that is moment 0.
static ORIGIN: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per tick, times 2^32.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(1 << 32);
/// Seconds from 1970 to moment 0.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The time-stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: K6: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// So many ticks in nanoseconds.
pub fn to_ns(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(NS_PER_TICK.load(Ordering::Relaxed))) >> 32) as u64
}

/// Nanoseconds since the clocks were measured.
pub fn now_ns() -> u64 {
    to_ns(ticks().wrapping_sub(ORIGIN.load(Ordering::Relaxed)))
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> u64 {
    EPOCH.load(Ordering::Relaxed) * 1_000_000_000 + now_ns()
}

fn hpet(offset: u64) -> *mut u64 {
    direct_map(HPET + offset).cast()
}

/// Measures the time-stamp counter over `ns`, while `during` starts and stops
/// what else is to be measured; gives the nanoseconds that really passed.
pub fn measure(ns: u64, during: impl FnOnce()) -> u64 {
    // SAFETY: K1 and K6: the HPET's registers, at their fixed physical address.
    let read = |offset| unsafe { hpet(offset).read_volatile() };
    // SAFETY: K1 and K6: as above; this lets the main counter run.
    unsafe { hpet(HPET_CONFIGURATION).write_volatile(read(HPET_CONFIGURATION) | 1) };
    let femtoseconds = (read(HPET_CAPABILITIES) >> 32).max(1);
    let (start, start_ticks) = (read(HPET_COUNTER), ticks());
    during();
    let to_ns = |count: u64| (u128::from(count) * u128::from(femtoseconds) / 1_000_000) as u64;
    let (passed, end_ticks) = loop {
        let passed = to_ns(read(HPET_COUNTER).wrapping_sub(start));
        if passed >= ns {
            break (passed, ticks());
        }
    };
    let delta = end_ticks.wrapping_sub(start_ticks).max(1);
    NS_PER_TICK.store(((u128::from(passed) << 32) / u128::from(delta)) as u64, Ordering::Relaxed);
    ORIGIN.store(start_ticks, Ordering::Relaxed);
    EPOCH.store(read_cmos_clock(), Ordering::Relaxed);
    passed
}

fn cmos(register: u8) -> u64 {
    // SAFETY: K6: index and data of the CMOS clock.
    let raw = unsafe {
        Port::<u8>::new(0x70).write(register);
        Port::<u8>::new(0x71).read()
    };
    u64::from(raw >> 4) * 10 + u64::from(raw & 15)
}

/// Seconds since 1970 by the CMOS clock (UTC, BCD, as QEMU sets it).
fn read_cmos_clock() -> u64 {
    let read = || [0, 2, 4, 7, 8, 9].map(cmos);
    let mut fields = read();
    // A second reading tells whether the clock was moving on; twice is enough.
    if read() != fields {
        fields = read();
    }
    let [second, minute, hour, day, month, year] = fields;
    days_since_1970(2000 + year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
}

/// Days from 1970-01-01 to the date, proleptic Gregorian; years count from March
/// so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (153 * month + 2) / 5 + day).saturating_sub(719_469)
}
