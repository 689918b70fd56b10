//! A program's open files: its table of numbers, and the kinds of files behind
//! them: files of the tree (`crate::linux::fs`), devices, pipes, event counters, sets
//! of files that are watched.
//!
//! A thread waits in [`bell::wait`] for a file to become ready; a thread that makes
//! one ready rings its bell. Files know no processes: a caller that may wait says
//! whether it is interrupted. No lock is held on entry.

pub mod bell;
pub mod console;
mod epoll;
mod event;
pub mod life;
pub mod locks;
pub mod open;
mod parts;
pub mod pipe;
mod ready;
mod table;

pub use epoll::Epoll;
pub use event::Event;
pub use open::open;
pub use ready::Ready;
pub use table::{MAX_OPEN, Table};

use crate::linux::errno::{self, Errno};
use crate::linux::fs::inode::access::Writing;
use crate::linux::fs::inode::names;
use crate::linux::fs::mount::InUse;
use crate::linux::fs::text::Text;
use crate::linux::fs::{Body, Inode, Spot, walk};
use crate::port::console::Channel;
use crate::port::heap;
use crate::port::mm;
use crate::port::sched::sleeping::SleepingLock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bell::{Bell, Places};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use life::Life;
use linux_raw_sys::general::{O_ACCMODE, O_APPEND, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use pipe::{Pipe, Reader, Writer};

/// Heap that an open file costs.
const HEAP_BYTES: usize = 320;

/// A kind of file.
pub enum Kind {
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/full`.
    Full,
    /// `/dev/random`, `/dev/urandom`.
    Random,
    /// The program's input, output or error output.
    Console(Channel),
    /// A plain file.
    File,
    /// A directory.
    Dir,
    /// A generated file.
    Text(Text),
    /// A pipe, to be read, written or both.
    Pipe {
        /// The end to read from.
        reader: Option<Reader>,
        /// The end to write to.
        writer: Option<Writer>,
    },
    /// eventfd(2).
    Event(Event),
    /// epoll(7).
    Epoll(Epoll),
    /// pidfd_open(2).
    Process(Arc<Life>),
    /// Opened with O_PATH: a place, nothing to read or write.
    Path,
}

/// An open file; numbers that were duplicated share one.
pub struct Open {
    /// Its kind.
    pub kind: Kind,
    /// The file.
    pub inode: Arc<Inode>,
    /// Where it was found, if it has a name.
    pub spot: Option<Spot>,
    /// Where the next read or write begins.
    pub position: SleepingLock<u64>,
    flags: AtomicU32,
    /// A lock was asked for in its name.
    has_locks: AtomicBool,
    _writing: Option<Writing>,
    _mount: Option<InUse>,
    _charge: heap::Charge,
}

impl Open {
    /// Opened by its name; ETXTBSY if it is a program that runs and is to be written.
    pub fn named(kind: Kind, inode: Arc<Inode>, flags: u32, spot: Option<Spot>) -> errno::Result<Arc<Open>> {
        let is_written = matches!(kind, Kind::File) && flags & O_ACCMODE != O_RDONLY;
        let writing = if is_written { Some(Writing::of(&inode)?) } else { None };
        Open::bare(kind, inode, flags, spot, writing)
    }
    /// Made by a call that needs no name: as on Linux it can be written while its program runs.
    pub fn made(kind: Kind, inode: Arc<Inode>, flags: u32, spot: Spot) -> errno::Result<Arc<Open>> {
        Open::bare(kind, inode, flags, Some(spot), None)
    }
    fn bare(
        kind: Kind,
        inode: Arc<Inode>,
        flags: u32,
        spot: Option<Spot>,
        writing: Option<Writing>,
    ) -> errno::Result<Arc<Open>> {
        let mount = inode.mount().map(InUse::of);
        let charge = heap::charge(HEAP_BYTES + spot.as_ref().map_or(0, |spot| spot.name.len()))?;
        Ok(Arc::new(Open {
            kind,
            inode,
            spot,
            position: SleepingLock::new(0),
            flags: AtomicU32::new(flags),
            has_locks: AtomicBool::new(false),
            _writing: writing,
            _mount: mount,
            _charge: charge,
        }))
    }
    /// Without a name.
    pub fn new(kind: Kind, inode: Arc<Inode>, flags: u32) -> errno::Result<Arc<Open>> {
        Open::bare(kind, inode, flags, None, None)
    }
    /// Something that calls make, which is in no directory.
    pub fn nameless(kind: Kind, what: &'static str, flags: u32) -> errno::Result<Arc<Open>> {
        Open::new(kind, Inode::new(Body::Nameless(what), 0o600)?, flags)
    }
    /// Access mode and status flags, as F_GETFL gives them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }
    /// F_SETFL: the flags of `mask` become those of `flags`.
    pub fn set_flags(&self, flags: u32, mask: u32) {
        self.flags.store(self.flags() & !mask | flags & mask, Ordering::Relaxed);
    }
    /// A lock is about to be its own: closing it gives that up.
    pub fn note_lock(&self) {
        self.has_locks.store(true, Ordering::Relaxed);
    }
    /// Whether it may be read.
    pub fn may_read(&self) -> bool {
        self.flags() & O_PATH == 0 && matches!(self.flags() & O_ACCMODE, O_RDONLY | O_RDWR)
    }
    /// Whether it may be written.
    pub fn may_write(&self) -> bool {
        self.flags() & O_PATH == 0 && matches!(self.flags() & O_ACCMODE, O_WRONLY | O_RDWR)
    }
    /// Whether writes go to the end.
    pub fn appends(&self) -> bool {
        self.flags() & O_APPEND != 0
    }
    /// Whether calls fail with EAGAIN where they would wait.
    pub fn is_nonblocking(&self) -> bool {
        self.flags() & O_NONBLOCK != 0
    }
    /// The path that it was found at, with a note if it is there no more.
    pub fn path(&self) -> errno::Result<Vec<u8>> {
        walk::path_of(&self.inode, self.spot.as_ref())
    }
    /// The shared object that holds its content, for mapping it.
    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        let object = self.inode.object()?;
        // Without a name it can still be mapped.
        let _ = self.path().and_then(|path| names::set(object.id(), &self.inode, &path));
        Ok(object)
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        match &self.kind {
            Kind::Null | Kind::Zero | Kind::Full | Kind::Random | Kind::File | Kind::Dir | Kind::Text(_) => {
                Ready::IN | Ready::OUT
            }
            Kind::Console(channel) => console::ready(*channel),
            Kind::Pipe { reader, writer } => {
                reader.as_ref().map_or(Ready::empty(), Reader::ready)
                    | writer.as_ref().map_or(Ready::empty(), Writer::ready)
            }
            Kind::Event(event) => event.ready(),
            Kind::Epoll(epoll) => epoll.ready(),
            Kind::Process(life) => ready_of(life),
            Kind::Path => Ready::empty(),
        }
    }
    /// The bells that ring when it may have become ready, each with what for.
    fn bells(&self) -> [Option<(&Arc<Bell>, Ready)>; 2] {
        match &self.kind {
            Kind::Pipe { reader, writer } => [
                reader.as_ref().map(|r| (r.pipe().bell_of_readers(), Ready::IN)),
                writer.as_ref().map(|w| (w.pipe().bell_of_writers(), Ready::OUT)),
            ],
            Kind::Event(event) => [Some((&event.filled, Ready::IN)), Some((&event.emptied, Ready::OUT))],
            Kind::Console(_) => [console::bell().map(|bell| (bell, Ready::IN)), None],
            Kind::Epoll(epoll) => [Some((epoll.bell(), Ready::IN)), None],
            Kind::Process(life) => [Some((&life.bell, Ready::IN)), None],
            _ => [None, None],
        }
    }
    /// Has a thread wait for it, and, if it is a set, for what is in it.
    pub fn enter(&self, places: &mut Places) -> errno::Result<()> {
        self.bells().into_iter().flatten().try_for_each(|(bell, _)| places.add(bell))?;
        if let Kind::Epoll(epoll) = &self.kind { epoll.enter(places) } else { Ok(()) }
    }
    /// Differs from what it was before if the file may have become ready for one
    /// of `events` since, or its other side has gone.
    pub fn nr_rings(&self, events: Ready) -> u64 {
        let bells = self.bells();
        let has_both = bells[0].is_some() && bells[1].is_some();
        let counted = bells.into_iter().flatten().filter(|(_, on)| !has_both || events.intersects(*on));
        counted.map(|(bell, _)| bell.nr_rings()).fold(0, u64::wrapping_add)
    }
    /// Does `step` until it gives something other than EAGAIN, waiting in
    /// between unless the file does not want that, and no longer than until
    /// `is_interrupted`.
    pub fn retry<T>(
        &self,
        is_interrupted: impl Fn() -> bool,
        mut step: impl FnMut() -> errno::Result<T>,
    ) -> errno::Result<T> {
        if self.is_nonblocking() {
            return step();
        }
        let done = bell::wait(
            is_interrupted,
            None,
            |places| self.enter(places),
            || match step() {
                Err(Errno::EAGAIN) => None,
                other => Some(other),
            },
        )?;
        done.unwrap_or(Err(Errno::EAGAIN))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.has_locks.load(Ordering::Relaxed) {
            locks::release(locks::Owner::Open(core::ptr::from_ref(self) as usize), Some(self.inode.number));
        }
    }
}

/// A process is readable once it has ended, and hangs up once it was waited for. A thread, but the first of its process,
/// does both at its end.
fn ready_of(life: &Life) -> Ready {
    match (life.has_ended(), life.is_gone()) {
        (false, _) => Ready::empty(),
        (true, false) => Ready::IN,
        (true, true) => Ready::IN | Ready::HUP,
    }
}

/// A pipe without a name: the end to read, the end to write.
pub fn new_pipe(flags: u32) -> errno::Result<(Arc<Open>, Arc<Open>)> {
    let pipe = Pipe::nameless()?;
    let (reader, writer, _) = pipe.open(true, true);
    let inode = Inode::new(Body::Pipe(pipe), 0o600)?;
    let read = Kind::Pipe { reader, writer: None };
    let write = Kind::Pipe { reader: None, writer };
    Ok((Open::new(read, inode.clone(), flags | O_RDONLY)?, Open::new(write, inode, flags | O_WRONLY)?))
}

/// Two ends that both read and write, each what the other wrote.
pub fn new_pair(flags: u32) -> errno::Result<(Arc<Open>, Arc<Open>)> {
    let (there, back) = (Pipe::of_socket()?, Pipe::of_socket()?);
    let end = |from: &Arc<Pipe>, to: &Arc<Pipe>| {
        let kind = Kind::Pipe { reader: from.open(true, false).0, writer: to.open(false, true).1 };
        Open::new(kind, Inode::new(Body::Socket, 0o777)?, flags | O_RDWR)
    };
    Ok((end(&there, &back)?, end(&back, &there)?))
}

/// Makes the bells that are always there, before the first process.
fn make_bells() {
    console::make_bell();
    locks::init();
}
