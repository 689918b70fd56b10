//! epoll(7).

use super::call::Call;
use super::file::add;
use super::path::open_file;
use super::poll::{deadline, with_mask};
use super::time;
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::file::{Epoll, Kind, Open, bell};
use crate::port::mm;
use linux_raw_sys::general::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, O_CLOEXEC, O_RDWR};

const MAX_EVENTS: usize = 128;
const EPOLL_EVENT_BYTES: u64 = 12;

/// epoll_create1(2), and epoll_create(2) with a size that says nothing.
pub fn create(call: &mut Call, flags: u32) -> errno::Result {
    if flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    add(call, Open::nameless(Kind::Epoll(Epoll::new()?), "[eventpoll]", O_RDWR)?, flags)
}

pub fn ctl(call: &mut Call) -> errno::Result {
    let (op, number) = (call.int(1), call.int(2));
    let (set, target) = (open_file(call, 0)?, open_file(call, 2)?);
    let Kind::Epoll(epoll) = &set.kind else { return Err(Errno::EINVAL) };
    if op == EPOLL_CTL_DEL {
        return epoll.remove(number).map(|()| 0);
    }
    if matches!(target.kind, Kind::Epoll(_)) {
        return Err(Errno::EINVAL);
    }
    if matches!(
        target.kind,
        Kind::File | Kind::Dir | Kind::Text(_) | Kind::Null | Kind::Zero | Kind::Full | Kind::Random | Kind::Path
    ) {
        return Err(Errno::EPERM);
    }
    let events = mm::get::<u32>(call.space(), call.args[3])?;
    let data = mm::get::<u64>(call.space(), call.args[3].wrapping_add(4))?;
    match op {
        EPOLL_CTL_ADD => epoll.add(number, &target, events, data)?,
        EPOLL_CTL_MOD => epoll.modify(number, events, data)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn wait_until(call: &mut Call, deadline: Option<u64>) -> errno::Result {
    let [_, out, max, ..] = call.args;
    let set = open_file(call, 0)?;
    let Kind::Epoll(epoll) = &set.kind else { return Err(Errno::EINVAL) };
    let max = max as i32;
    if max <= 0 {
        return Err(Errno::EINVAL);
    }
    let max = (max as usize).min(MAX_EVENTS);
    let events = bell::wait(
        || call.thread.is_interrupted(),
        deadline,
        |places| set.enter(places),
        || {
            let events = epoll.collect(max);
            (!events.is_empty()).then_some(events)
        },
    );
    let events = events.map_err(|e| Restart::Untouched.instead_of(e))?.unwrap_or_default();
    for (i, found) in events.iter().enumerate() {
        let at = out.wrapping_add(i as u64 * EPOLL_EVENT_BYTES);
        let put = mm::put(call.space(), at, &found.ready)
            .and_then(|()| mm::put(call.space(), at.wrapping_add(4), &found.data));
        if let Err(errno) = put {
            epoll.put_back(&events[i..]);
            return if i == 0 { Err(errno) } else { Ok(i as u64) };
        }
    }
    Ok(events.len() as u64)
}

pub fn wait(call: &mut Call) -> errno::Result {
    wait_until(call, deadline(call, call.args[3] as i32))
}

pub fn pwait(call: &mut Call) -> errno::Result {
    let [_, _, _, timeout_ms, mask, bytes] = call.args;
    with_mask(call, mask, bytes, |call| wait_until(call, deadline(call, timeout_ms as i32)))
}

pub fn pwait2(call: &mut Call) -> errno::Result {
    let [_, _, _, timeout, mask, bytes] = call.args;
    let deadline = time::deadline(call, timeout, false, false)?;
    with_mask(call, mask, bytes, |call| wait_until(call, deadline))
}
