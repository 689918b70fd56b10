//! `/proc/PID` and its files.

use super::fd::{Fd, FdInfo};
use super::subject::Subject;
use super::{mappings, memory};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::buffer::Buffer;
use crate::linux::fs::inode::generated::{About, Generate, Jump, Node};
use crate::linux::fs::{mounts, tree, walk};
use crate::linux::process::Process;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

/// Something about a process, by its name.
pub struct Of {
    name: &'static str,
    what: What,
    /// Is there for a process only, not for a thread.
    whole: bool,
}

type Write_ = fn(&Process, u32, &mut dyn Write) -> fmt::Result;

enum What {
    Text(Write_),
    /// Written mapping by mapping, as far as it is read.
    Mappings(mappings::Part),
    /// Reads and writes the program's memory.
    Memory,
    /// Translations of pages.
    Pagemap,
    /// Arguments.
    Cmdline,
    /// Environment, as the program has it now.
    Environ,
    /// Accepts writes and ignores them.
    Sink,
    Exe,
    Cwd,
    Root,
    Fds,
    FdInfos,
    Tasks,
}

const fn text(name: &'static str, write: Write_) -> Of {
    Of { name, what: What::Text(write), whole: false }
}
const fn other(name: &'static str, what: What) -> Of {
    Of { name, what, whole: false }
}

const COMM: &str = "comm";
const OOM_ADJUSTMENT: &str = "oom_score_adj";

static NAMES: [Of; 24] = [
    text("status", memory::status),
    text("stat", memory::stat),
    text("statm", memory::statm),
    other("maps", What::Mappings(mappings::maps)),
    other("smaps", What::Mappings(mappings::smaps)),
    text("smaps_rollup", mappings::smaps_rollup),
    text("limits", memory::limits),
    text(COMM, |process, _, out| writeln!(out, "{}", process.name())),
    text("mounts", write_mounts),
    text("mountinfo", write_mountinfo),
    text("wchan", |_, _, out| write!(out, "0")),
    text("oom_score", |_, _, out| writeln!(out, "0")),
    text(OOM_ADJUSTMENT, |process, _, out| writeln!(out, "{}", process.oom_score_adj.load(Ordering::Relaxed))),
    other("environ", What::Environ),
    text("cgroup", |_, _, out| writeln!(out, "0::/")),
    other("coredump_filter", What::Sink),
    other("clear_refs", What::Sink),
    other("cmdline", What::Cmdline),
    other("mem", What::Memory),
    other("exe", What::Exe),
    other("cwd", What::Cwd),
    other("root", What::Root),
    other("fd", What::Fds),
    other("fdinfo", What::FdInfos),
];

static TASKS: Of = Of { name: "task", what: What::Tasks, whole: true };
static PAGEMAP: Of = other("pagemap", What::Pagemap);

fn all_names() -> impl Iterator<Item = &'static Of> {
    NAMES.iter().chain([&PAGEMAP, &TASKS])
}

fn write_mounts(_: &Process, _: u32, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "tmpfs / tmpfs rw,relatime 0 0\nproc /proc proc rw,relatime 0 0\nsysfs /sys sysfs rw,relatime 0 0")?;
    mounts::write_mounts(out)
}

fn write_mountinfo(_: &Process, _: u32, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "1 1 0:2 / / rw,relatime - tmpfs tmpfs rw")?;
    writeln!(out, "2 1 0:21 / /proc rw,relatime - proc proc rw\n3 1 0:21 / /sys rw,relatime - sysfs sysfs rw")?;
    mounts::write_mountinfo(4, out)
}

impl Generate for Subject {
    fn about(&self) -> About {
        About::DIR
    }
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        self.process().ok()?;
        let of = all_names().find(|of| of.name.as_bytes() == name)?;
        (self.tid.is_none() || !of.whole).then(|| Arc::new(Fact(*self, of)) as Node)
    }
    fn names(&self) -> Vec<Arc<[u8]>> {
        let names = all_names().filter(|of| self.tid.is_none() || !of.whole);
        names.map(|of| of.name.as_bytes().into()).collect()
    }
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

impl Of {
    fn is_writable_text(&self) -> bool {
        self.name == OOM_ADJUSTMENT || self.name == COMM
    }
}

/// Something about a process.
struct Fact(Subject, &'static Of);

impl Generate for Fact {
    fn about(&self) -> About {
        let Fact(_, of) = *self;
        match of.what {
            What::Fds | What::FdInfos => About::DIR.with_mode(0o500),
            What::Tasks => About::DIR,
            What::Exe | What::Cwd | What::Root => About::LINK,
            What::Sink => About::FILE.with_mode(0o644),
            What::Memory => About::FILE.with_mode(0o600),
            What::Pagemap => About::FILE.with_mode(0o400),
            What::Text(_) if of.is_writable_text() => About::FILE.with_mode(0o644),
            What::Environ => About::FILE.with_mode(0o400),
            What::Text(_) | What::Mappings(_) | What::Cmdline => About::FILE,
        }
    }
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let Fact(subject, of) = *self;
        let number = number(name)?;
        match of.what {
            What::Fds => subject.open(number).ok().map(|_| Arc::new(Fd(subject, number)) as Node),
            What::FdInfos => subject.open(number).ok().map(|_| Arc::new(FdInfo(subject, number)) as Node),
            What::Tasks => {
                let has = subject.process().ok()?.threads.lock().contains_key(&number);
                has.then(|| Arc::new(Subject { tid: Some(number), ..subject }) as Node)
            }
            _ => None,
        }
    }
    fn names(&self) -> Vec<Arc<[u8]>> {
        let Fact(subject, of) = *self;
        let numbers: Vec<u32> = match (&of.what, subject.process()) {
            (What::Fds | What::FdInfos, _) => subject.numbers(),
            (What::Tasks, Ok(process)) => process.all_threads().iter().map(|t| t.tid).collect(),
            _ => Vec::new(),
        };
        numbers.iter().map(|n| n.to_string().as_bytes().into()).collect()
    }
    fn link(&self) -> errno::Result<Option<Vec<u8>>> {
        let Fact(subject, of) = *self;
        let process = subject.process()?;
        Ok(match of.what {
            What::Exe => Some(process.mm().ok_or(Errno::ENOENT)?.program.path.as_bytes().to_vec()),
            What::Cwd => {
                let cwd = process.place.lock().cwd.clone();
                Some(walk::path_of_dir(&cwd)?)
            }
            What::Root => Some(b"/".to_vec()),
            _ => None,
        })
    }
    fn jump(&self) -> errno::Result<Option<Jump>> {
        let Fact(subject, of) = *self;
        Ok(match of.what {
            What::Cwd => Some(Jump::Inode(subject.process()?.place.lock().cwd.clone())),
            What::Root => Some(Jump::Inode(tree::root())),
            _ => None,
        })
    }
    /// Writes the text, or the part of it that begins at `from`; gives where the next one
    /// begins.
    fn write_text(&self, from: u64, buffer: &mut Buffer) -> errno::Result<Option<u64>> {
        let Fact(subject, of) = *self;
        let process = subject.process()?;
        let written = match of.what {
            What::Mappings(write) => {
                let Some(mm) = process.mm() else { return Ok(None) };
                return write(&mm.space, from, buffer).map_err(|_| Errno::ENOMEM);
            }
            What::Text(write) => write(&process, subject.number(), buffer).map_err(|_| Errno::ENOMEM),
            What::Cmdline => process.mm().map_or(Ok(()), |mm| buffer.push(&mm.program.args)),
            What::Environ => process.mm().map_or(Ok(()), |mm| memory::write_environment(&mm, buffer)),
            What::Sink => writeln!(buffer, "0").map_err(|_| Errno::ENOMEM),
            _ => Err(Errno::EINVAL),
        };
        written.map(|()| None)
    }
    /// Reads what is no text; nothing if it is one.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<errno::Result<usize>> {
        let Fact(subject, of) = *self;
        let mm = || subject.process()?.mm().ok_or(Errno::ESRCH);
        match of.what {
            What::Memory => Some(mm().and_then(|mm| memory::read_memory(&mm.space, offset, into))),
            What::Pagemap => Some(mm().and_then(|mm| memory::read_pagemap(&mm.space, offset, into))),
            _ => None,
        }
    }
    /// Writes, where that means something.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> errno::Result<usize> {
        let Fact(subject, of) = *self;
        match of.what {
            What::Memory => {
                let mm = subject.process()?.mm().ok_or(Errno::ESRCH)?;
                memory::write_memory(&mm.space, offset, bytes)
            }
            What::Sink => Ok(bytes.len()),
            What::Text(_) if of.name == COMM => {
                let name = alloc::string::String::from_utf8_lossy(&bytes[..bytes.len().min(15)]).trim_end().to_string();
                subject.process()?.set_name(Some(name));
                Ok(bytes.len())
            }
            What::Text(_) if of.name == OOM_ADJUSTMENT => {
                let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
                let value: i32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
                if !(-1000..=1000).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                subject.process()?.oom_score_adj.store(value, Ordering::Relaxed);
                Ok(bytes.len())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
