//! Calls about processes: replacing their programs, waiting for them, groups.

use super::call::Call;
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::fs::walk::{Follow, walk};
use crate::linux::process::exec::{self, Command, Texts};
use crate::linux::process::stack::{self, Inherited};
use crate::linux::process::table::{self, GroupError};
use crate::linux::process::usage::ChildUsage;
use crate::linux::process::wait::{Look, News, Wanted, Which};
use crate::linux::process::{self, Process};
use crate::port::mm;
use crate::port::sched::WaitEnd;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{
    __WALL, __WCLONE, __WNOTHREAD, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CLD_CONTINUED, CLD_EXITED, CLD_KILLED,
    CLD_STOPPED, P_ALL, P_PGID, P_PID, RLIMIT_STACK, S_IFLNK, SIGCHLD, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED,
    WUNTRACED,
};

/// A path, or one argument, with its end.
const MAX_TEXT: usize = 128 << 10;
const MAX_PATH: usize = 4096;

/// A text that ends with a zero; E2BIG-like `too_long` beyond `max` bytes.
pub fn read_text(call: &Call, addr: u64, max: usize, too_long: Errno) -> errno::Result<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        // Up to the end of the page: the next one may not be there.
        let at = addr.wrapping_add(text.len() as u64);
        let mut part = [0u8; 256];
        let len = (4096 - at % 4096).min(256) as usize;
        mm::copy_in(call.space(), at, &mut part[..len])?;
        if let Some(end) = part[..len].iter().position(|b| *b == 0) {
            text.extend_from_slice(&part[..end]);
            return Ok(text);
        }
        text.extend_from_slice(&part[..len]);
        if text.len() >= max {
            return Err(too_long);
        }
    }
}

/// A list of pointers to texts, ended by a null pointer.
fn read_texts(call: &Call, addr: u64, budget: &mut u64) -> errno::Result<Texts> {
    let mut texts = Texts::new();
    if addr == 0 {
        return Ok(texts);
    }
    loop {
        let at = mm::get::<u64>(call.space(), addr.wrapping_add(texts.len() as u64 * 8))?;
        if at == 0 {
            return Ok(texts);
        }
        let text = read_text(call, at, MAX_TEXT, Errno::E2BIG)?;
        *budget = budget.checked_sub(text.len() as u64 + 9).ok_or(Errno::E2BIG)?;
        texts.push(text);
    }
}

pub fn execve(call: &mut Call) -> errno::Result {
    let [path, args, env, ..] = call.args;
    let path = read_text(call, path, MAX_PATH, Errno::ENAMETOOLONG)?;
    exec_path(call, path, false, args, env)
}

fn exec_path(call: &mut Call, path: Vec<u8>, is_open: bool, args: u64, env: u64) -> errno::Result {
    let limits = call.process.limits.lock().clone();
    let mut budget = stack::most_text_bytes(limits.now(RLIMIT_STACK));
    // Twice: once as read, once more as laid out.
    let _charge = crate::port::heap::charge(2 * budget as usize)?;
    let args = read_texts(call, args, &mut budget)?;
    let env = read_texts(call, env, &mut budget)?;
    let place = call.process.place.lock().clone();
    let inherited =
        Inherited { limits, thp_disable: call.space().thp_disable(), identity: *call.process.identity.lock() };
    let prepared = exec::prepare(&place, Command { path, is_open, args, env }, &inherited).map_err(|e| e.errno())?;
    call.process.exec(call.thread, prepared)?;
    Ok(0)
}

/// A path relative to something open is `/dev/fd/N/...`: that is also what a
/// script's interpreter is told.
pub fn execveat(call: &mut Call) -> errno::Result {
    let [_, at, args, env, _, _] = call.args;
    let (number, flags) = (call.int(0), call.int(4));
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut path = read_text(call, at, MAX_PATH, Errno::ENAMETOOLONG)?;
    if path.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    let is_name = !path.is_empty();
    if !path.starts_with(b"/") && number as i32 != AT_FDCWD {
        let open = call.process.files.lock().get(number)?;
        if is_name && !open.inode.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let mut full = format!("/dev/fd/{number}").into_bytes();
        if is_name {
            full.push(b'/');
        }
        full.append(&mut path);
        path = full;
    }
    if is_name && flags & AT_SYMLINK_NOFOLLOW != 0 {
        let cwd = call.process.place.lock().cwd.clone();
        let last = walk(&cwd, &path, Follow::Never)?.found()?;
        if last.kind() == S_IFLNK {
            return Err(Errno::ELOOP);
        }
    }
    exec_path(call, path, !is_name, args, env)
}

/// Waits until a child has news.
fn wait_for(call: &Call, wanted: &Wanted, nonblocking: bool) -> errno::Result<Option<News>> {
    let look = || match call.process.look_for_child(wanted) {
        Look::News(news) => Some(Ok(Some(news))),
        Look::NoChild => Some(Err(Errno::ECHILD)),
        Look::Nothing if nonblocking => Some(Ok(None)),
        Look::Nothing => None,
    };
    let found = call.thread.wait_at(&call.process.watchers, None, look);
    found.map_err(|end| match end {
        WaitEnd::Interrupted => Restart::AsAsked.errno(),
        WaitEnd::TimedOut => Errno::EAGAIN,
    })?
}

fn put_usage(call: &Call, at: u64, usage: &ChildUsage) -> errno::Result<()> {
    if at == 0 {
        return Ok(());
    }
    mm::put(call.space(), at, &super::time::rusage(&usage.used, usage.peak_kib))
}

pub fn wait4(call: &mut Call) -> errno::Result {
    let [_, status_at, _, usage_at, ..] = call.args;
    let (pid, options) = (call.int(0) as i32, call.int(2));
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | __WALL | __WCLONE | __WNOTHREAD) != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match pid {
        -1 => Which::Any,
        0 => Which::Group(call.process.group()),
        i32::MIN => return Err(Errno::ESRCH),
        _ if pid < 0 => Which::Group(pid.unsigned_abs()),
        _ => Which::Process(pid as u32),
    };
    let (stops, resumes) = (options & WUNTRACED != 0, options & WCONTINUED != 0);
    let wanted = Wanted { which, ends: true, stops, resumes, keep: false };
    let Some(news) = wait_for(call, &wanted, options & WNOHANG != 0)? else { return Ok(0) };
    if status_at != 0 {
        mm::put(call.space(), status_at, &news.status)?;
    }
    put_usage(call, usage_at, &news.usage)?;
    Ok(news.pid.into())
}

pub fn waitid(call: &mut Call) -> errno::Result {
    let [_, id, info_at, _, usage_at, _] = call.args;
    let (kind, options) = (call.int(0), call.int(3));
    let events = options & (WEXITED | WSTOPPED | WCONTINUED);
    if events == 0 || options & !(events | WNOHANG | WNOWAIT | __WALL | __WCLONE | __WNOTHREAD) != 0 {
        return Err(Errno::EINVAL);
    }
    let id = id as u32;
    let which = match kind {
        P_ALL => Which::Any,
        P_PID if id as i32 > 0 => Which::Process(id),
        P_PGID if id == 0 => Which::Group(call.process.group()),
        P_PGID if id as i32 > 0 => Which::Group(id),
        _ => return Err(Errno::EINVAL),
    };
    let wanted = Wanted {
        which,
        ends: options & WEXITED != 0,
        stops: options & WSTOPPED != 0,
        resumes: options & WCONTINUED != 0,
        keep: options & WNOWAIT != 0,
    };
    let news = wait_for(call, &wanted, options & WNOHANG != 0)?;
    if info_at != 0 {
        mm::put(call.space(), info_at, &wait_info(news.as_ref()))?;
    }
    if let Some(news) = &news {
        put_usage(call, usage_at, &news.usage)?;
    }
    Ok(0)
}

/// `siginfo_t` as waitid(2) fills it.
fn wait_info(news: Option<&News>) -> [u32; 32] {
    let mut words = [0u32; 32];
    if let Some(news) = news {
        let (code, status) = match (news.status & 0x7f, news.status >> 8) {
            _ if news.status == 0xffff => (CLD_CONTINUED, linux_raw_sys::general::SIGCONT),
            (0, status) => (CLD_EXITED, status & 0xff),
            (0x7f, signal) => (CLD_STOPPED, signal & 0xff),
            (signal, _) => (CLD_KILLED, signal),
        };
        words[0] = SIGCHLD;
        words[2] = code;
        words[4] = news.pid;
        words[6] = status;
    }
    words
}

fn group_errno(error: GroupError) -> Errno {
    match error {
        GroupError::NotFound => Errno::ESRCH,
        GroupError::NotAllowed => Errno::EPERM,
        GroupError::TooLate => Errno::EACCES,
    }
}

pub fn setpgid(call: &mut Call) -> errno::Result {
    let own = call.process.pid;
    let or_own = |n: u32, other: u32| if n == 0 { other } else { n };
    let pid = or_own(call.int(0), own);
    let group = or_own(call.int(1), pid);
    if group as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    table::set_group(own, pid, group).map(|()| 0).map_err(group_errno)
}

pub fn setsid(call: &mut Call) -> errno::Result {
    table::set_session(call.process.pid).map(|()| call.process.pid.into()).map_err(group_errno)
}

fn by_number(call: &Call) -> errno::Result<Arc<Process>> {
    match call.int(0) {
        0 => Ok(call.process.clone()),
        pid => process::find(pid).ok_or(Errno::ESRCH),
    }
}

pub fn getpgid(call: &mut Call) -> errno::Result {
    by_number(call).map(|p| p.group().into())
}

pub fn getsid(call: &mut Call) -> errno::Result {
    by_number(call).map(|p| p.session().into())
}
