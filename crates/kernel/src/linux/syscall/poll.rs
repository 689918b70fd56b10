//! Calls that wait for several files at once: poll(2) and select(2).

use super::call::Call;
use super::time;
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::file::bell::{self, Places};
use crate::linux::file::{Open, Ready};
use crate::port::arch::time::now_ns;
use crate::port::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::POLLNVAL;

const NS_PER_S: u64 = 1_000_000_000;
/// Numbers that select(2) looks at.
const MAX_SELECTED: u32 = 1024;
const NR_WORDS: usize = MAX_SELECTED as usize / 64;

/// When a timeout in milliseconds is over; negative is never.
pub fn deadline(call: &Call, timeout_ms: i32) -> Option<u64> {
    u64::try_from(timeout_ms).ok().map(|ms| call.deadline_in(ms * 1_000_000))
}

/// Does `f` with another mask of blocked signals, if `mask_at` is not 0. If it is
/// interrupted, the mask comes back after the signal was handled
/// (`ThreadSignals::restore_mask`).
pub fn with_mask(
    call: &mut Call,
    mask_at: u64,
    bytes: u64,
    f: impl FnOnce(&mut Call) -> errno::Result,
) -> errno::Result {
    if mask_at == 0 {
        return f(call);
    }
    if bytes != 8 {
        return Err(Errno::EINVAL);
    }
    let mask = mm::get::<u64>(call.space(), mask_at)?;
    let before = {
        let mut signals = call.thread.signals.lock();
        let before = signals.mask;
        call.thread.set_mask(&mut signals, mask);
        before
    };
    let result = f(call);
    let mut signals = call.thread.signals.lock();
    match result {
        Err(errno) if Restart::of(errno).is_some() => signals.restore_mask = Some(before),
        _ => call.thread.set_mask(&mut signals, before),
    }
    drop(signals);
    result
}

/// As [`bell::wait`], for calls that no handler has made again. A signal that waits ends
/// them also when their time is over: another mask may let it through for this moment
/// alone.
fn wait(
    call: &Call,
    deadline: Option<u64>,
    enter: impl Fn(&mut Places) -> errno::Result<()>,
    is_ready: impl Fn() -> bool,
) -> errno::Result<()> {
    let waited = bell::wait(|| call.thread.is_interrupted(), deadline, enter, || is_ready().then_some(()));
    match waited {
        Ok(None) if call.thread.is_interrupted() => Err(Restart::Unhandled.errno()),
        Ok(_) => Ok(()),
        Err(errno) => Err(Restart::Unhandled.instead_of(errno)),
    }
}

/// One entry of poll(2)'s list.
enum Polled {
    /// A negative number: passed over.
    None,
    /// A number that is not open.
    Invalid,
    /// A file and the events it is polled for.
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

/// POLLRDNORM and POLLWRNORM mean what POLLIN and POLLOUT do.
const READ_NORMAL: u16 = 0x40;
const WRITE_NORMAL: u16 = 0x100;

fn answer_to(entry: &Polled, events: u16) -> u16 {
    let answer = entry.answer();
    let mut full = answer;
    if answer & 1 != 0 {
        full |= events & READ_NORMAL;
        full &= !(!events & 1);
    }
    if answer & 4 != 0 {
        full |= events & WRITE_NORMAL;
        full &= !(!events & 4);
    }
    full
}

fn wanted(events: u16) -> Ready {
    let mut wanted = Ready::from_bits_truncate(events.into());
    wanted |= if events & READ_NORMAL != 0 { Ready::IN } else { Ready::empty() };
    wanted | if events & WRITE_NORMAL != 0 { Ready::OUT } else { Ready::empty() }
}

fn poll_until(call: &mut Call, deadline: Option<u64>) -> errno::Result {
    let [list, nr, ..] = call.args;
    if nr > super::file::limit(call) {
        return Err(Errno::EINVAL);
    }
    let mut polled = Vec::new();
    polled.try_reserve_exact(nr as usize).map_err(|_| Errno::ENOMEM)?;
    for i in 0..nr {
        let [low, high, events, _] = mm::get::<[u16; 4]>(call.space(), list.wrapping_add(i * 8))?;
        let number = u32::from(high) << 16 | u32::from(low);
        let open = call.process.files.lock().get(number);
        let entry = match open {
            _ if (number as i32) < 0 => Polled::None,
            Ok(open) => Polled::File(open, wanted(events)),
            Err(_) => Polled::Invalid,
        };
        polled.push((entry, events));
    }
    let any = || polled.iter().any(|(p, _)| p.answer() != 0);
    let enter = |places: &mut Places| {
        polled.iter().try_for_each(|(entry, _)| match entry {
            Polled::File(open, _) => open.enter(places),
            _ => Ok(()),
        })
    };
    wait(call, deadline, enter, any)?;
    let mut nr_ready = 0;
    for (i, (entry, events)) in polled.iter().enumerate() {
        let answer = answer_to(entry, *events);
        nr_ready += u64::from(answer != 0);
        mm::put(call.space(), list.wrapping_add(i as u64 * 8 + 6), &answer)?;
    }
    Ok(nr_ready)
}

pub fn poll(call: &mut Call) -> errno::Result {
    poll_until(call, deadline(call, call.args[2] as i32))
}

pub fn ppoll(call: &mut Call) -> errno::Result {
    let [_, _, timeout, mask, bytes, _] = call.args;
    let deadline = time::deadline(call, timeout, false, false)?;
    let result = with_mask(call, mask, bytes, |call| poll_until(call, deadline));
    put_rest(call, timeout, deadline, 1);
    result
}

/// Stores the rest of a timeout, in seconds and parts of `unit_ns`.
fn put_rest(call: &Call, timeout_at: u64, deadline: Option<u64>, unit_ns: u64) {
    if let Some(deadline) = deadline.filter(|_| timeout_at != 0) {
        let left = deadline.saturating_sub(now_ns());
        // If it cannot be stored it is not, as on Linux.
        let _ = mm::put(call.space(), timeout_at, &[left / NS_PER_S, left % NS_PER_S / unit_ns]);
    }
}

/// A set of numbers, as select(2) has it.
type Set = [u64; NR_WORDS];

fn get_set(call: &Call, addr: u64, nr: u32) -> errno::Result<Set> {
    let mut set = [0; NR_WORDS];
    if addr != 0 {
        for (n, word) in (0..).zip(&mut set[..nr.div_ceil(64) as usize]) {
            *word = mm::get::<u64>(call.space(), addr.wrapping_add(n * 8))?;
        }
        if !nr.is_multiple_of(64) {
            set[nr as usize / 64] &= (1 << (nr % 64)) - 1;
        }
    }
    Ok(set)
}

fn put_set(call: &Call, addr: u64, nr: u32, set: &Set) -> errno::Result<()> {
    let words = (0..nr.div_ceil(64) as usize).filter(|_| addr != 0);
    words.into_iter().try_for_each(|word| mm::put(call.space(), addr.wrapping_add(word as u64 * 8), &set[word]))
}

/// For reading, for writing, for exceptions, as select(2) understands them.
const SELECTED: [Ready; 3] =
    [Ready::IN.union(Ready::HUP).union(Ready::ERR), Ready::OUT.union(Ready::ERR), Ready::empty()];

fn select_until(call: &mut Call, deadline: Option<u64>) -> errno::Result {
    let [_, first, second, third, ..] = call.args;
    let nr = call.int(0);
    if nr > MAX_SELECTED {
        return Err(Errno::EINVAL);
    }
    let at = [first, second, third];
    let mut sets = [[0; NR_WORDS]; 3];
    for (set, addr) in sets.iter_mut().zip(at) {
        *set = get_set(call, addr, nr)?;
    }
    let mut files = Vec::new();
    for number in 0..nr {
        let (word, bit) = (number as usize / 64, 1u64 << (number % 64));
        if sets.iter().any(|set| set[word] & bit != 0) {
            let open = call.process.files.lock().get(number)?;
            files.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            files.push((number, open));
        }
    }
    let look = || {
        let mut found = [[0; NR_WORDS]; 3];
        let mut nr_found = 0;
        for (number, open) in &files {
            let ready = open.ready();
            let (word, bit) = (*number as usize / 64, 1u64 << (number % 64));
            for (n, wanted) in SELECTED.iter().enumerate() {
                if sets[n][word] & bit != 0 && ready.intersects(*wanted) {
                    found[n][word] |= bit;
                    nr_found += 1;
                }
            }
        }
        (found, nr_found)
    };
    let enter = |places: &mut Places| files.iter().try_for_each(|(_, open)| open.enter(places));
    wait(call, deadline, enter, || look().1 > 0)?;
    let (found, nr_found) = look();
    for (set, addr) in found.iter().zip(at) {
        put_set(call, addr, nr, set)?;
    }
    Ok(nr_found)
}

pub fn select(call: &mut Call) -> errno::Result {
    let timeout = call.args[4];
    let deadline = match timeout {
        0 => None,
        at => {
            let [seconds, us] = mm::get::<[i64; 2]>(call.space(), at)?;
            if seconds < 0 || us < 0 {
                return Err(Errno::EINVAL);
            }
            let ns = (seconds as u64).saturating_mul(NS_PER_S).saturating_add((us as u64).saturating_mul(1000));
            Some(call.deadline_in(ns))
        }
    };
    let result = select_until(call, deadline);
    put_rest(call, timeout, deadline, 1000);
    result
}

/// The mask comes by way of a structure: its address and size.
pub fn pselect6(call: &mut Call) -> errno::Result {
    let [_, _, _, _, timeout, masks] = call.args;
    let deadline = time::deadline(call, timeout, false, false)?;
    let [mask, bytes] = if masks == 0 { [0; 2] } else { mm::get::<[u64; 2]>(call.space(), masks)? };
    let result = with_mask(call, mask, bytes, |call| select_until(call, deadline));
    put_rest(call, timeout, deadline, 1);
    result
}
