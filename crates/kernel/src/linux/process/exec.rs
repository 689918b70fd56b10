//! execve(2): another program in the same process.
//!
//! The new memory is built beside the old one and may fail at any point without
//! a trace. Then the other threads are made to end, and a new thread takes over
//! the process's number; the old one ends, and with it the old memory, whole.

use super::elf::LoadError;
use super::identity::Capability;
use super::mm::{Program, short_name};
use super::stack::{Inherited, NoStack};
use super::thread::{Thread, interrupt};
use super::{Mm, Process, elf, stack};
use crate::linux::errno::{self, Errno};
use crate::linux::fs;
use crate::linux::signal;
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use crate::port::mm;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

/// Interpreters of interpreters, at most.
const MAX_SCRIPTS: usize = 5;
/// Of the first line of a script, this much is looked at.
const MAX_LINE: usize = 256;

/// Arguments or environment: texts without zeroes.
pub type Texts = Vec<Vec<u8>>;

/// The program to run.
pub struct Command {
    /// Path of the file.
    pub path: Vec<u8>,
    /// It is open (AT_EMPTY_PATH): its name is not that of the path.
    pub is_open: bool,
    /// Its arguments, the name it is called by first.
    pub args: Texts,
    /// Its environment.
    pub env: Texts,
}

/// Why a program cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The file, or a script's interpreter, cannot be had.
    File(Errno),
    /// It is no program.
    Load(LoadError),
    /// Its stack cannot be made.
    Stack(NoStack),
    /// There is no memory.
    Memory,
}

impl Refusal {
    /// As execve(2) gives it.
    pub fn errno(self) -> Errno {
        match self {
            Refusal::File(errno) => errno,
            Refusal::Load(error) => error.errno(),
            Refusal::Stack(error) => error.errno(),
            Refusal::Memory => Errno::ENOMEM,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::File(Errno::ENOENT) => f.write_str("is not in the archive, or its interpreter is not"),
            Refusal::File(Errno::ENOEXEC) => f.write_str("is a script that names no interpreter"),
            Refusal::File(errno) => write!(f, "cannot be read as a program ({errno})"),
            Refusal::Load(error) => error.fmt(f),
            Refusal::Stack(NoStack::Arguments) => f.write_str("its arguments do not fit on its stack"),
            Refusal::Stack(NoStack::Memory) | Refusal::Memory => f.write_str("does not fit into the machine's memory"),
        }
    }
}

/// A program in new memory, ready to begin.
pub struct Prepared {
    /// The memory.
    pub mm: Arc<Mm>,
    /// Its first registers.
    pub frame: Frame,
}

/// The interpreter that the first line of a script names.
struct Interpreter {
    path: Vec<u8>,
    /// All that follows, as one.
    argument: Option<Vec<u8>>,
}

/// The interpreter, if the file is a script.
fn interpreter(head: &[u8]) -> errno::Result<Option<Interpreter>> {
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|b| *b == b'\n').next().unwrap_or(b"").trim_ascii();
    if line.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    let end = line.iter().position(|b| *b == b' ' || *b == b'\t').unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    let argument = (!argument.is_empty()).then(|| argument.to_vec());
    Ok(Some(Interpreter { path: line[..end].to_vec(), argument }))
}

/// Follows scripts to their interpreters; the file to load, the path of the first one, links
/// followed, and the arguments as the loaded one gets them.
fn resolve(place: &fs::Place, mut path: Vec<u8>, args: &mut Texts) -> errno::Result<(fs::Program, Vec<u8>)> {
    let mut first = None;
    for _ in 0..MAX_SCRIPTS {
        let program = fs::open_program(place, &path)?;
        let first = first.get_or_insert_with(|| program.path.clone());
        let mut head = [0u8; MAX_LINE];
        let len = program.read_at(0, &mut head)?;
        let Some(interpreter) = interpreter(&head[..len])? else { return Ok((program, core::mem::take(first))) };
        let mut new = alloc::vec![interpreter.path.clone()];
        new.extend(interpreter.argument);
        new.push(path);
        new.extend(args.drain(..).skip(1));
        *args = new;
        path = interpreter.path;
    }
    Err(Errno::ELOOP)
}

/// Builds the memory of the program.
pub fn prepare(place: &fs::Place, command: Command, inherited: &Inherited) -> Result<Prepared, Refusal> {
    let Command { path: called, is_open, mut args, env } = command;
    if args.is_empty() {
        args.push(Vec::new());
    }
    let (program, first) = resolve(place, called.clone(), &mut args).map_err(Refusal::File)?;
    let space = mm::new_space().map_err(|_| Refusal::Memory)?;
    space.set_thp_disable(inherited.thp_disable);
    inherited.limits.apply(&space, inherited.identity.has(Capability::IpcLock));
    let loaded = elf::load(&space, &program, place).map_err(Refusal::Load)?;
    let texts = stack::Texts { path: &called, args: &args, env: &env };
    let sp = stack::build(&space, &loaded, &texts, inherited).map_err(Refusal::Stack)?;
    let cmdline = args.iter().flat_map(|a| a.iter().copied().chain([0])).collect();
    let name = short_name(&String::from_utf8_lossy(if is_open { first.as_ref() } else { &called }));
    let path = String::from_utf8_lossy(&program.path).into_owned();
    let running = program.into_running();
    let program = Program { path, name, args: cmdline, first_sp: sp };
    Ok(Prepared { mm: Mm::new(space, Arc::new(program), Some(running)), frame: Frame::for_program(loaded.start, sp) })
}

impl Process {
    /// Replaces the program that `thread` runs: after this it has to end, and
    /// `Thread::successor` begins.
    pub fn exec(self: &Arc<Process>, thread: &Thread, prepared: Prepared) -> errno::Result<()> {
        let new = self.new_thread_in(self.pid, prepared.mm.clone(), prepared.frame, Image::initial())?;
        if let Err(errno) = self.end_other_threads(thread) {
            new.mm().leave();
            return Err(errno);
        }
        new.signals.lock().mask = thread.signals.lock().mask;
        new.affinity.store(thread.affinity.load(Ordering::Relaxed), Ordering::Relaxed);
        signal::forget_handlers(&mut self.actions.lock());
        // A process that sees an end of a pipe close knows that the program is replaced.
        self.has_executed.store(true, Ordering::SeqCst);
        let closed = self.files.lock().take_cloexec();
        drop(closed);
        self.set_name(None);
        let no_new_privs = self.kept.lock().no_new_privs;
        let identity = {
            let mut identity = self.identity.lock();
            identity.exec(no_new_privs);
            *identity
        };
        prepared.mm.dumpable.store(identity.is_itself(), Ordering::Relaxed);
        self.set_mm(Some(prepared.mm));
        self.borrows_memory.store(false, Ordering::Release);
        self.apply_limits();
        *thread.successor.lock() = Some(new);
        thread.attention.store(true, Ordering::SeqCst);
        Ok(())
    }
    /// Makes all threads but this one end, and waits until they have.
    fn end_other_threads(&self, thread: &Thread) -> errno::Result<()> {
        if self.replacing.compare_exchange(0, thread.tid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(Errno::EAGAIN);
        }
        self.all_threads().iter().filter(|t| t.tid != thread.tid).for_each(interrupt);
        let alone = self.watchers.wait(None, || match self.is_ending() {
            true => Some(Err(Errno::EINTR)),
            false => (self.nr_threads() == 1).then_some(Ok(())),
        });
        let result = alone.unwrap_or(Ok(()));
        self.replacing.store(0, Ordering::Release);
        result
    }
}
