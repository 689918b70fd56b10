//! Calls about time: clocks, sleeping, CPU time.

use super::call::Call;
use crate::linux::errno::{self, Errno, Restart};
use crate::port::arch::time::{now_ns, wall_ns};
use crate::port::mm;
use crate::port::sched::{self, Used};
use linux_raw_sys::general::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID,
    CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_THREAD_CPUTIME_ID, ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL,
    RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD, TIMER_ABSTIME,
};

const NS_PER_S: u64 = 1_000_000_000;

fn clock_ns(call: &Call, clock: u32) -> errno::Result<u64> {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE => Ok(wall_ns()),
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_RAW | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME => Ok(now_ns()),
        CLOCK_PROCESS_CPUTIME_ID => {
            let used = call.process.used();
            Ok(used.user_ns + used.system_ns)
        }
        CLOCK_THREAD_CPUTIME_ID => {
            let used = call.thread.usage.read();
            Ok(used.user_ns + used.system_ns)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// A `timespec` as nanoseconds, cut at the largest number.
fn get_timespec(call: &Call, addr: u64) -> errno::Result<u64> {
    let [seconds, ns] = mm::get::<[u64; 2]>(call.space(), addr)?;
    if seconds as i64 >= 0 && ns < NS_PER_S {
        Ok(seconds.saturating_mul(NS_PER_S).saturating_add(ns))
    } else {
        Err(Errno::EINVAL)
    }
}

fn put_timespec(call: &Call, addr: u64, ns: u64) -> errno::Result<()> {
    mm::put(call.space(), addr, &[ns / NS_PER_S, ns % NS_PER_S])
}

/// When a timeout at `addr` is over; none if there is no timeout.
pub fn deadline(call: &Call, addr: u64, absolute: bool, realtime: bool) -> errno::Result<Option<u64>> {
    if addr == 0 {
        return Ok(None);
    }
    let ns = get_timespec(call, addr)?;
    Ok(Some(match (absolute, realtime) {
        (false, _) => call.deadline_in(ns),
        (true, false) => ns,
        (true, true) => now_ns().saturating_add(ns.saturating_sub(wall_ns())),
    }))
}

/// Sleeps until the deadline, or until interrupted.
fn sleep(call: &Call, deadline_ns: u64) -> errno::Result<()> {
    while now_ns() < deadline_ns {
        if call.thread.is_interrupted() {
            return Err(Restart::Unhandled.errno());
        }
        sched::block_until(Some(deadline_ns));
    }
    Ok(())
}

pub fn nanosleep(call: &mut Call) -> errno::Result {
    let end = call.deadline_in(get_timespec(call, call.args[0])?);
    sleep_or_say_rest(call, end, call.args[1])
}

fn sleep_or_say_rest(call: &Call, end: u64, rest_at: u64) -> errno::Result {
    let result = sleep(call, end);
    if result.is_err() && rest_at != 0 {
        put_timespec(call, rest_at, end.saturating_sub(now_ns()))?;
    }
    result.map(|()| 0)
}

pub fn clock_nanosleep(call: &mut Call) -> errno::Result {
    let [clock, flags, request, rest_at, ..] = call.args;
    let clock = clock as u32;
    if !matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME) {
        return Err(Errno::EINVAL);
    }
    let absolute = flags as u32 & TIMER_ABSTIME != 0;
    if request == 0 {
        return Err(Errno::EFAULT);
    }
    let end = deadline(call, request, absolute, clock == CLOCK_REALTIME)?.unwrap_or(u64::MAX);
    sleep_or_say_rest(call, end, if absolute { 0 } else { rest_at })
}

pub fn clock_gettime(call: &mut Call) -> errno::Result {
    let ns = clock_ns(call, call.int(0))?;
    put_timespec(call, call.args[1], ns)?;
    Ok(0)
}

pub fn clock_getres(call: &mut Call) -> errno::Result {
    clock_ns(call, call.int(0))?;
    if call.args[1] != 0 {
        put_timespec(call, call.args[1], 1)?;
    }
    Ok(0)
}

fn timeval(ns: u64) -> [u64; 2] {
    [ns / NS_PER_S, ns % NS_PER_S / 1000]
}

pub fn gettimeofday(call: &mut Call) -> errno::Result {
    let [tv_at, tz_at, ..] = call.args;
    if tv_at != 0 {
        mm::put(call.space(), tv_at, &timeval(wall_ns()))?;
    }
    if tz_at != 0 {
        mm::put(call.space(), tz_at, &[0u32; 2])?;
    }
    Ok(0)
}

pub fn time(call: &mut Call) -> errno::Result {
    let seconds = wall_ns() / NS_PER_S;
    if call.args[0] != 0 {
        mm::put(call.space(), call.args[0], &seconds)?;
    }
    Ok(seconds)
}

/// `struct rusage`: two times, then fourteen numbers, of which the first is the
/// largest resident size and the third from there ru_minflt.
pub fn rusage(used: &Used, peak_kib: u64) -> [u64; 18] {
    let mut words = [0u64; 18];
    words[..2].copy_from_slice(&timeval(used.user_ns));
    words[2..4].copy_from_slice(&timeval(used.system_ns));
    words[4] = peak_kib;
    words[8] = used.nr_faults;
    words
}

pub fn getrusage(call: &mut Call) -> errno::Result {
    let words = match call.int(0) as i32 {
        who if who == RUSAGE_SELF as i32 => rusage(&call.process.used(), call.process.peak_kib()),
        who if who == RUSAGE_THREAD as i32 => rusage(&call.thread.usage.read(), call.process.peak_kib()),
        who if who == RUSAGE_CHILDREN => {
            let below = *call.process.children_used.lock();
            rusage(&below.used, below.peak_kib)
        }
        _ => return Err(Errno::EINVAL),
    };
    mm::put(call.space(), call.args[1], &words)?;
    Ok(0)
}

fn get_timeval(call: &Call, addr: u64) -> errno::Result<u64> {
    let [seconds, us] = mm::get::<[u64; 2]>(call.space(), addr)?;
    if seconds as i64 >= 0 && us < 1_000_000 {
        Ok(seconds.saturating_mul(NS_PER_S).saturating_add(us * 1000))
    } else {
        Err(Errno::EINVAL)
    }
}

/// In whole seconds; what was left is rounded, but never down to nothing.
pub fn alarm(call: &mut Call) -> errno::Result {
    let value = u64::from(call.int(0)) * NS_PER_S;
    let (left, _) = call.process.alarm.set(call.process.pid, value, 0);
    Ok(if left == 0 { 0 } else { ((left + NS_PER_S / 2) / NS_PER_S).max(1) })
}

fn put_itimer(call: &Call, addr: u64, (value, interval): (u64, u64)) -> errno::Result<()> {
    let [a, b] = timeval(interval);
    // A remaining time is never shown as none.
    let [c, d] = timeval(if value == 0 { 0 } else { value.max(1000) });
    mm::put(call.space(), addr, &[a, b, c, d])
}

/// Real time only: what a program uses is not watched.
pub fn setitimer(call: &mut Call) -> errno::Result {
    let [_, new_at, old_at, ..] = call.args;
    if call.int(0) != ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    let (interval, value) = match new_at {
        0 => (0, 0),
        at => (get_timeval(call, at)?, get_timeval(call, at.wrapping_add(16))?),
    };
    let before = call.process.alarm.set(call.process.pid, value, interval);
    if old_at != 0 {
        put_itimer(call, old_at, before)?;
    }
    Ok(0)
}

pub fn getitimer(call: &mut Call) -> errno::Result {
    let now = match call.int(0) {
        ITIMER_REAL => call.process.alarm.get(),
        ITIMER_VIRTUAL | ITIMER_PROF => (0, 0),
        _ => return Err(Errno::EINVAL),
    };
    put_itimer(call, call.args[1], now)?;
    Ok(0)
}

/// In hundredths of a second.
pub fn times(call: &mut Call) -> errno::Result {
    const NS_PER_TICK: u64 = NS_PER_S / 100;
    if call.args[0] != 0 {
        let used = call.process.used();
        let below = call.process.children_used.lock().used;
        let all = [used.user_ns, used.system_ns, below.user_ns, below.system_ns];
        mm::put(call.space(), call.args[0], &all.map(|ns| ns / NS_PER_TICK))?;
    }
    Ok(now_ns() / NS_PER_TICK)
}
