//! Calls about processes: making and replacing them, waiting for them, groups.

use super::Call;
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::fs::walk::{Follow, walk};
use crate::linux::process::exec::{self, Command, Texts};
use crate::linux::process::fork::{self, Plan};
use crate::linux::process::stack;
use crate::linux::process::stack::Inherited;
use crate::linux::process::table::{self, GroupError};
use crate::linux::process::thread::Thread;
use crate::linux::process::usage::ChildUsage;
use crate::linux::process::wait::{Look, News, Wanted, Which};
use crate::linux::process::{self, Process};
use crate::linux::signal::NR_SIGNALS;
use crate::port::mm::{self, USER_END};
use crate::port::sched::WaitEnd;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    __WALL, __WCLONE, __WNOTHREAD, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CLD_CONTINUED, CLD_EXITED, CLD_KILLED,
    CLD_STOPPED, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_FS, CLONE_INTO_CGROUP,
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_PARENT,
    CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_PTRACE, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM,
    P_ALL, P_PGID, P_PID, RLIMIT_NPROC, RLIMIT_STACK, S_IFLNK, SIGCHLD, WCONTINUED, WEXITED, WNOHANG, WNOWAIT,
    WSTOPPED, WUNTRACED,
};

/// A path, or one argument, with its end.
const MAX_TEXT: usize = 128 << 10;
const MAX_PATH: usize = 4096;

/// The common part of clone(2) and clone3(2).
#[derive(Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub exit_signal: u8,
    /// Stack pointer of the child; 0 keeps the caller's.
    pub stack: u64,
    pub parent_tid: u64,
    pub child_tid: u64,
    pub tls: u64,
}

impl CloneArgs {
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
    /// Combinations that no kernel takes, and what this one has not.
    fn check(&self) -> errno::Result<()> {
        let unsupported = CLONE_NEWCGROUP
            | CLONE_NEWIPC
            | CLONE_NEWNET
            | CLONE_NEWNS
            | CLONE_NEWPID
            | CLONE_NEWUSER
            | CLONE_NEWUTS
            | CLONE_PTRACE
            | CLONE_PIDFD;
        let wrong = self.has(CLONE_THREAD) && !self.has(CLONE_SIGHAND)
            || self.has(CLONE_SIGHAND) && !self.has(CLONE_VM)
            || self.flags & CLONE_CLEAR_SIGHAND != 0 && self.has(CLONE_SIGHAND)
            || self.has(unsupported)
            || self.flags & CLONE_INTO_CGROUP != 0
            || usize::from(self.exit_signal) > NR_SIGNALS;
        if wrong {
            return Err(Errno::EINVAL);
        }
        if self.has(CLONE_SETTLS) && self.tls >= USER_END {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

pub fn clone(call: &mut Call) -> errno::Result {
    let [flags, stack, parent_tid, child_tid, tls, _] = call.args;
    let args = CloneArgs { flags: flags & 0xffff_ff00, exit_signal: flags as u8, stack, parent_tid, child_tid, tls };
    clone_as(call, &args)
}

/// `struct clone_args`, as far as anybody fills it.
pub fn clone3(call: &mut Call) -> errno::Result {
    const FIRST_BYTES: u64 = 64;
    const KNOWN_BYTES: usize = 88;
    let [at, bytes, ..] = call.args;
    if bytes < FIRST_BYTES {
        return Err(Errno::EINVAL);
    }
    if bytes > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut raw = [0u64; KNOWN_BYTES / 8];
    let mut buffer = [0u8; KNOWN_BYTES];
    let known = KNOWN_BYTES.min(bytes as usize);
    mm::copy_in(call.space(), at, &mut buffer[..known])?;
    for (word, bytes) in raw.iter_mut().zip(buffer.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // Bytes beyond must be zero: others would mean something newer.
    for offset in (KNOWN_BYTES as u64..bytes).step_by(8) {
        if mm::get::<u64>(call.space(), at.wrapping_add(offset))? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let [flags, _pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, tls, _set_tid, nr_set_tid, _cgroup] =
        raw;
    let wrong = exit_signal > NR_SIGNALS as u64
        || flags & 0xff != 0
        || (stack == 0) != (stack_bytes == 0)
        || nr_set_tid != 0
        || flags & u64::from(CLONE_THREAD) != 0 && exit_signal != 0;
    if wrong {
        return Err(Errno::EINVAL);
    }
    let stack = stack.wrapping_add(stack_bytes);
    clone_as(call, &CloneArgs { flags, exit_signal: exit_signal as u8, stack, parent_tid, child_tid, tls })
}

pub fn fork(call: &mut Call) -> errno::Result {
    clone_as(call, &CloneArgs { exit_signal: SIGCHLD as u8, ..CloneArgs::default() })
}

pub fn vfork(call: &mut Call) -> errno::Result {
    let flags = u64::from(CLONE_VFORK | CLONE_VM);
    clone_as(call, &CloneArgs { flags, exit_signal: SIGCHLD as u8, ..CloneArgs::default() })
}

fn clone_as(call: &mut Call, args: &CloneArgs) -> errno::Result {
    args.check()?;
    let mut frame = call.frame.clone();
    frame.rax = 0;
    if args.stack != 0 {
        frame.rsp = args.stack;
    }
    if args.has(CLONE_THREAD) {
        return super::thread::new_thread(call, args, frame);
    }
    if table::all().len() as u64 > call.process.limits.lock().now(RLIMIT_NPROC) {
        return Err(Errno::EAGAIN);
    }
    let plan = Plan {
        shares_memory: args.has(CLONE_VM),
        parent_waits: args.has(CLONE_VFORK),
        clears_handlers: args.flags & CLONE_CLEAR_SIGHAND != 0,
        exit_signal: args.exit_signal,
        same_parent: args.has(CLONE_PARENT),
    };
    let _ = CLONE_FS; // a place of its own is what every child gets
    let first = call.process.fork(call.thread, &plan, frame)?;
    tell_numbers(call.thread, args, &first);
    let pid = first.tid;
    fork::start(call.process, call.thread, &plan, &first);
    Ok(pid.into())
}

/// Sets what the flags ask for in a new thread. As on Linux, a bad pointer here
/// does not undo it.
pub fn tell_numbers(parent: &Thread, args: &CloneArgs, new: &Arc<Thread>) {
    if args.has(CLONE_SETTLS) {
        new.fs_base.store(args.tls, Ordering::Relaxed);
    }
    if args.has(CLONE_CHILD_CLEARTID) {
        new.clear_tid.store(args.child_tid, Ordering::Relaxed);
    }
    if args.has(CLONE_PARENT_SETTID) {
        let _ = mm::put(parent.space(), args.parent_tid, &new.tid);
    }
    if args.has(CLONE_CHILD_SETTID) {
        let _ = mm::put(new.space(), args.child_tid, &new.tid);
    }
}

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
    exec_path(call, path, args, env)
}

fn exec_path(call: &mut Call, path: Vec<u8>, args: u64, env: u64) -> errno::Result {
    let limits = call.process.limits.lock().clone();
    let mut budget = stack::most_text_bytes(limits.now(RLIMIT_STACK));
    // Twice: once as read, once more as laid out.
    let _charge = crate::port::heap::charge(2 * budget as usize)?;
    let args = read_texts(call, args, &mut budget)?;
    let env = read_texts(call, env, &mut budget)?;
    let place = call.process.place.lock().clone();
    let inherited =
        Inherited { limits, thp_disable: call.space().thp_disable(), identity: *call.process.identity.lock() };
    let prepared = exec::prepare(&place, Command { path, args, env }, &inherited).map_err(|e| e.errno())?;
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
    exec_path(call, path, args, env)
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
