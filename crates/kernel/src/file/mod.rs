//! What a program has open: its table of numbers, and the kinds of things behind
//! them. There is no file system: files of the initial archive can be read, two
//! devices are there, the rest is made by calls (pipes, event counters, epoll).
//!
//! Whoever waits for a file to become ready waits in [`wait`]; whoever makes one
//! ready calls [`changed`].

mod epoll;
mod event;
mod pipe;
mod plain;

pub use epoll::Epoll;
pub use event::Event;
pub use pipe::{Reader, Writer, pipe};
pub use plain::Plain;

use crate::arch::time::now_ns;
use crate::console::Channel;
use crate::errno::{self, Errno};
use crate::process::archive;
use crate::sched::{self, Thread};
use crate::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers are below this.
pub const MAX_OPEN: u32 = 1024;

bitflags::bitflags! {
    /// What a file is ready for; values as poll(2) and epoll(7) have them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Ready: u32 {
        /// Reading does not wait.
        const IN = 1;
        /// Writing does not wait.
        const OUT = 4;
        /// The other side cannot receive any more.
        const ERR = 8;
        /// The other side has gone.
        const HUP = 16;
    }
}

/// A kind of file.
pub enum Kind {
    /// At its end from the beginning: standard input, `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// The program's output or error output.
    Output(Channel),
    /// A file of the archive.
    Plain(Plain),
    /// The end of a pipe that is read.
    Reader(Reader),
    /// The end that is written.
    Writer(Writer),
    /// eventfd(2).
    Event(Event),
    /// epoll(7).
    Epoll(Epoll),
}

/// An open file; numbers that were duplicated share one.
pub struct Open {
    /// What it is.
    pub kind: Kind,
    /// Calls fail with EAGAIN where they would wait.
    pub nonblocking: AtomicBool,
    /// Grows with each change of what it is ready for.
    pub generation: AtomicU64,
}

impl Open {
    fn new(kind: Kind) -> Arc<Open> {
        Arc::new(Open { kind, nonblocking: AtomicBool::new(false), generation: AtomicU64::new(1) })
    }
    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        match &self.kind {
            Kind::Null | Kind::Zero | Kind::Plain(_) => Ready::IN | Ready::OUT,
            Kind::Output(_) => Ready::OUT,
            Kind::Reader(end) => end.ready(),
            Kind::Writer(end) => end.ready(),
            Kind::Event(event) => event.ready(),
            Kind::Epoll(epoll) => epoll.ready(),
        }
    }
    /// Does `step` until it gives something other than EAGAIN, waiting in
    /// between unless the file does not want that.
    pub fn retry<T>(&self, thread: &Thread, mut step: impl FnMut() -> errno::Result<T>) -> errno::Result<T> {
        let once = self.nonblocking.load(Ordering::Relaxed);
        let done = wait(thread, None, || match step() {
            Err(Errno::EAGAIN) if !once => None,
            other => Some(other),
        })?;
        let result = done.unwrap_or(Err(Errno::EAGAIN));
        if result.is_ok() {
            self.generation.fetch_add(1, Ordering::Relaxed);
            changed();
        }
        result
    }
}

/// Threads that wait for any file to change. One list for all: waits are few.
static WATCHERS: SpinLock<Vec<Arc<Thread>>> = SpinLock::new(Vec::new());

/// Some file may be ready now that was not before.
pub fn changed() {
    let watchers = core::mem::take(&mut *WATCHERS.lock());
    watchers.iter().for_each(sched::wake);
}

fn forget(thread: &Arc<Thread>) {
    WATCHERS.lock().retain(|t| !Arc::ptr_eq(t, thread));
}

/// Asks `question` after each change until it has an answer; none once
/// `deadline_ns` has passed.
pub fn wait<T>(
    thread: &Thread,
    deadline_ns: Option<u64>,
    mut question: impl FnMut() -> Option<T>,
) -> errno::Result<Option<T>> {
    if let Some(answer) = question() {
        return Ok(Some(answer));
    }
    let me = sched::current();
    loop {
        WATCHERS.lock().push(me.clone());
        let answer = question();
        let over = deadline_ns.is_some_and(|d| now_ns() >= d);
        let interrupted = thread.is_interrupted();
        if answer.is_none() && !over && !interrupted {
            sched::block_until(deadline_ns);
        }
        forget(&me);
        match answer {
            Some(answer) => return Ok(Some(answer)),
            None if over => return Ok(None),
            None if interrupted && deadline_ns.is_some() => return Err(Errno::EINTR),
            None if interrupted => return Err(Errno::RESTART),
            None => {}
        }
    }
}

/// A process's numbers.
pub struct Table(BTreeMap<u32, Arc<Open>>);

impl Table {
    /// For a child.
    pub fn duplicate(&self) -> Table {
        Table(self.0.clone())
    }
    /// What a new program does not keep: no number is marked so yet.
    pub fn take_cloexec(&mut self) -> Vec<Arc<Open>> {
        Vec::new()
    }
    /// All of it, when the process ends.
    pub fn take_all(&mut self) -> Vec<Arc<Open>> {
        core::mem::take(&mut self.0).into_values().collect()
    }
    /// Standard input, output and error output.
    pub fn standard() -> Table {
        let kinds = [Kind::Null, Kind::Output(Channel::Output), Kind::Output(Channel::Error)];
        Table((0..).zip(kinds.map(Open::new)).collect())
    }
    /// The file behind a number.
    pub fn get(&self, number: u32) -> errno::Result<Arc<Open>> {
        self.0.get(&number).cloned().ok_or(Errno::EBADF)
    }
    /// Gives an open file the lowest free number from `least` on.
    pub fn put(&mut self, open: Arc<Open>, least: u32) -> errno::Result<u32> {
        let number = (least..MAX_OPEN).find(|n| !self.0.contains_key(n)).ok_or(Errno::EMFILE)?;
        self.0.insert(number, open);
        Ok(number)
    }
    /// Opens something new.
    pub fn add(&mut self, kind: Kind, nonblocking: bool) -> errno::Result<u32> {
        let open = Open::new(kind);
        open.nonblocking.store(nonblocking, Ordering::Relaxed);
        self.put(open, 0)
    }
    /// Gives an open file this number; what had it before.
    pub fn replace(&mut self, open: Arc<Open>, number: u32) -> errno::Result<Option<Arc<Open>>> {
        if number >= MAX_OPEN {
            return Err(Errno::EBADF);
        }
        Ok(self.0.insert(number, open))
    }
    /// Takes a number away; what it stood for.
    pub fn remove(&mut self, number: u32) -> errno::Result<Arc<Open>> {
        self.0.remove(&number).ok_or(Errno::EBADF)
    }
}

/// What is at `path`.
pub fn find(path: &[u8]) -> errno::Result<Kind> {
    match path {
        b"/dev/null" => Ok(Kind::Null),
        b"/dev/zero" => Ok(Kind::Zero),
        _ => {
            let path = core::str::from_utf8(path).map_err(|_| Errno::ENOENT)?;
            archive::find(path).map(|bytes| Kind::Plain(Plain::new(bytes))).ok_or(Errno::ENOENT)
        }
    }
}
