//! Calls that wait for several files at once.

use super::{Call, time};
use crate::arch::time::now_ns;
use crate::errno::{self, Errno};
use crate::file::{self, Kind, Open, Ready};
use crate::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, POLLNVAL};

const MAX_POLLED: u64 = 1024;
const MAX_EVENTS: usize = 128;
const EPOLL_EVENT_BYTES: u64 = 12;

/// When a timeout in milliseconds is over; negative is never.
fn deadline(timeout_ms: i32) -> Option<u64> {
    u64::try_from(timeout_ms).ok().map(|ms| now_ns() + ms * 1_000_000)
}

/// One entry of poll(2)'s list.
enum Polled {
    /// A negative number: passed over.
    None,
    /// A number that is not open.
    Invalid,
    /// A file and what it is polled for.
    File(Arc<Open>, Ready),
}

impl Polled {
    fn answer(&self) -> u16 {
        match self {
            Polled::None => 0,
            Polled::Invalid => POLLNVAL as u16,
            Polled::File(open, wanted) => (open.ready() & (*wanted | Ready::ERR | Ready::HUP)).bits() as u16,
        }
    }
}

fn poll_until(call: &mut Call, deadline: Option<u64>) -> errno::Result {
    let [list, nr, ..] = call.args;
    if nr > MAX_POLLED {
        return Err(Errno::EINVAL);
    }
    let mut polled = Vec::new();
    for i in 0..nr {
        let [low, high, events, _] = mm::get::<[u16; 4]>(call.space(), list.wrapping_add(i * 8))?;
        let number = u32::from(high) << 16 | u32::from(low);
        let open = call.process.files.lock().get(number);
        polled.push(match open {
            _ if (number as i32) < 0 => Polled::None,
            Ok(open) => Polled::File(open, Ready::from_bits_truncate(events.into())),
            Err(_) => Polled::Invalid,
        });
    }
    let any = || polled.iter().any(|p| p.answer() != 0).then_some(());
    file::wait(call.thread, deadline, any)?;
    let mut nr_ready = 0;
    for (i, entry) in polled.iter().enumerate() {
        let answer = entry.answer();
        nr_ready += u64::from(answer != 0);
        mm::put(call.space(), list.wrapping_add(i as u64 * 8 + 6), &answer)?;
    }
    Ok(nr_ready)
}

pub fn poll(call: &mut Call) -> errno::Result {
    poll_until(call, deadline(call.args[2] as i32))
}

pub fn ppoll(call: &mut Call) -> errno::Result {
    let deadline = time::deadline(call, call.args[2], false, false)?;
    poll_until(call, deadline)
}

pub fn epoll_create1(call: &mut Call) -> errno::Result {
    let kind = Kind::Epoll(file::Epoll::new());
    call.process.files.lock().add(kind, false).map(u64::from)
}

pub fn epoll_ctl(call: &mut Call) -> errno::Result {
    let (set, op, number) = (call.int(0), call.int(1), call.int(2));
    let (set, target) = {
        let files = call.process.files.lock();
        (files.get(set)?, files.get(number)?)
    };
    let Kind::Epoll(epoll) = &set.kind else { return Err(Errno::EINVAL) };
    if op == EPOLL_CTL_DEL {
        return epoll.remove(number).map(|()| 0);
    }
    if matches!(target.kind, Kind::Epoll(_)) {
        return Err(Errno::EINVAL);
    }
    if matches!(target.kind, Kind::Plain(_) | Kind::Null | Kind::Zero) {
        return Err(Errno::EPERM);
    }
    let events = mm::get::<u32>(call.space(), call.args[3])?;
    let data = mm::get::<u64>(call.space(), call.args[3].wrapping_add(4))?;
    match op {
        EPOLL_CTL_ADD => epoll.add(number, &target, events, data)?,
        EPOLL_CTL_MOD => epoll.modify(number, events, data)?,
        _ => return Err(Errno::EINVAL),
    }
    file::changed();
    Ok(0)
}

/// epoll_wait(2), and epoll_pwait(2) without a mask.
pub fn epoll_wait(call: &mut Call) -> errno::Result {
    let [_, out, max, timeout_ms, ..] = call.args;
    let set = call.process.files.lock().get(call.int(0))?;
    let Kind::Epoll(epoll) = &set.kind else { return Err(Errno::EINVAL) };
    let max = max as i32;
    if max <= 0 {
        return Err(Errno::EINVAL);
    }
    let max = (max as usize).min(MAX_EVENTS);
    let events = file::wait(call.thread, deadline(timeout_ms as i32), || {
        let events = epoll.collect(max);
        (!events.is_empty()).then_some(events)
    });
    // As on Linux, this call is not restarted.
    let events = events.map_err(|e| if e == Errno::RESTART { Errno::EINTR } else { e })?.unwrap_or_default();
    for (i, (ready, data)) in events.iter().enumerate() {
        let at = out.wrapping_add(i as u64 * EPOLL_EVENT_BYTES);
        mm::put(call.space(), at, ready)?;
        mm::put(call.space(), at.wrapping_add(4), data)?;
    }
    Ok(events.len() as u64)
}

pub fn epoll_pwait(call: &mut Call) -> errno::Result {
    if call.args[4] != 0 {
        return Err(Errno::ENOSYS);
    }
    epoll_wait(call)
}
