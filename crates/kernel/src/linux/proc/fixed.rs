//! A name of `/proc` or `/sys` that is always there, and what is done with it. `names` has all
//! of them.

use super::setting::{PoolKnob, Setting, Stat, Word};
use super::subject::Subject;
use crate::linux::errno::{self, Errno};
use crate::linux::fs::buffer::Buffer;
use crate::linux::fs::inode::generated::{About, Generate, Node};
use crate::linux::knobs::{self, Knob};
use crate::linux::process;
use crate::linux::process::thread::Task;
use crate::port::arch::cpu;
use crate::port::mm;
use crate::port::sched;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use softfault::Order;

/// A name and its content.
pub struct Fixed {
    pub(super) name: &'static str,
    pub(super) what: What,
}

/// Kind and content of an entry.
pub(super) enum What {
    Dir(&'static [Fixed]),
    /// The root of `/proc`: with the processes.
    Processes(&'static [Fixed]),
    /// With a directory for each CPU.
    Cpus(&'static [Fixed]),
    File(fn(&mut dyn Write) -> fmt::Result),
    /// The same, directly in `/proc`: opened for writing by root, who then cannot write.
    Report(fn(&mut dyn Write) -> fmt::Result),
    Line(&'static str),
    Knob(&'static Knob),
    /// A knob of huge pages, and a counter of theirs.
    Setting(Setting),
    Stat(Stat),
    /// A size of a pool of huge pages; in `/proc/sys` that of the pool of the default size.
    Pool(Order, &'static PoolKnob),
    DefaultPool(&'static PoolKnob),
    /// An action, done when a number is written; nothing to read.
    Action(Order, &'static PoolKnob),
    /// A word of a list, which is kept without effect.
    Word(&'static Word),
    /// A text, and the texts that it takes; it stays what it is.
    Choice(&'static str, fn(&[u8]) -> errno::Result<()>),
    /// `self` and `thread-self`.
    Own {
        thread: bool,
    },
    Link(&'static str),
}

/// A directory.
pub(super) const fn dir(name: &'static str, inside: &'static [Fixed]) -> Fixed {
    Fixed { name, what: What::Dir(inside) }
}
/// A text.
pub(super) const fn file(name: &'static str, write: fn(&mut dyn Write) -> fmt::Result) -> Fixed {
    Fixed { name, what: What::File(write) }
}
/// A text, directly in `/proc`.
pub(super) const fn report(name: &'static str, write: fn(&mut dyn Write) -> fmt::Result) -> Fixed {
    Fixed { name, what: What::Report(write) }
}
/// A text that never changes.
pub(super) const fn line(name: &'static str, text: &'static str) -> Fixed {
    Fixed { name, what: What::Line(text) }
}
/// A number.
pub(super) const fn knob(name: &'static str, knob: &'static Knob) -> Fixed {
    Fixed { name, what: What::Knob(knob) }
}

/// A knob of huge pages.
pub(super) const fn setting(name: &'static str, setting: Setting) -> Fixed {
    Fixed { name, what: What::Setting(setting) }
}

/// A counter of huge pages, or a number that follows from their size.
pub(super) const fn stat(name: &'static str, order: Order, get: fn(Order) -> u64) -> Fixed {
    Fixed { name, what: What::Stat(Stat { order, get }) }
}

/// A size of a pool.
pub(super) const fn pool(name: &'static str, order: Order, knob: &'static PoolKnob) -> Fixed {
    Fixed { name, what: What::Pool(order, knob) }
}

/// A size of the pool of the default size, in `/proc/sys`.
pub(super) const fn default_pool(name: &'static str, knob: &'static PoolKnob) -> Fixed {
    Fixed { name, what: What::DefaultPool(knob) }
}

/// `/sys/devices/system/cpu/cpuN`.
struct Cpu;

impl Generate for Cpu {
    fn about(&self) -> About {
        About::DIR
    }
}

impl Fixed {
    fn inside(&self) -> &'static [Fixed] {
        match &self.what {
            What::Dir(inside) | What::Processes(inside) | What::Cpus(inside) => inside,
            _ => &[],
        }
    }
}

impl Generate for &'static Fixed {
    fn about(&self) -> About {
        match &self.what {
            What::Dir(_) | What::Processes(_) | What::Cpus(_) => About::DIR,
            What::File(_) | What::Report(_) | What::Line(_) | What::Stat(_) => About::FILE,
            What::Setting(_) | What::Pool(..) | What::DefaultPool(_) | What::Word(_) | What::Choice(..) => {
                About::FILE.with_mode(0o644)
            }
            What::Action(..) => About::FILE.with_mode(0o200),
            What::Knob(knob) if knob.is_writable => About::FILE.with_mode(0o644),
            What::Knob(_) => About::FILE,
            What::Own { .. } | What::Link(_) => About::LINK,
        }
    }
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let text = core::str::from_utf8(name).ok()?;
        if let Some(fixed) = self.inside().iter().find(|f| f.name == text) {
            return Some(Arc::new(fixed));
        }
        match self.what {
            What::Processes(_) => Subject::named(text).map(|subject| Arc::new(subject) as Node),
            What::Cpus(_) => {
                let number: usize = text.strip_prefix("cpu")?.parse().ok()?;
                (number < cpu::nr_cpus()).then(|| Arc::new(Cpu) as Node)
            }
            _ => None,
        }
    }
    fn names(&self) -> Vec<Arc<[u8]>> {
        let mut names: Vec<Arc<[u8]>> = self.inside().iter().map(|f| f.name.as_bytes().into()).collect();
        match self.what {
            What::Processes(_) => names.extend(process::all().iter().map(|p| p.pid.to_string().as_bytes().into())),
            What::Cpus(_) => names.extend((0..cpu::nr_cpus()).map(|n| alloc::format!("cpu{n}").as_bytes().into())),
            _ => {}
        }
        names
    }
    fn link(&self) -> errno::Result<Option<Vec<u8>>> {
        Ok(match self.what {
            What::Link(target) => Some(target.as_bytes().to_vec()),
            What::Own { thread } => sched::with_current(|current| {
                let current = current.downcast_ref::<Task>()?;
                let pid = current.process().pid;
                let text = if thread { alloc::format!("{pid}/task/{}", current.tid) } else { pid.to_string() };
                Some(text.into_bytes())
            }),
            _ => None,
        })
    }
    /// As in sysfs and `/proc/sys`, not even root opens for writing what can only be read.
    fn refuses_writers(&self) -> bool {
        let is_knob = matches!(self.what, What::Knob(Knob { is_writable: false, .. }));
        is_knob || matches!(self.what, What::Stat(_) | What::File(_) | What::Line(_))
    }
    fn write_text(&self, _: u64, buffer: &mut Buffer) -> errno::Result<Option<u64>> {
        let written = match &self.what {
            What::File(write) | What::Report(write) => write(buffer),
            What::Line(text) | What::Choice(text, _) => buffer.write_str(text),
            What::Knob(knob) => writeln!(buffer, "{knob}"),
            What::Setting(setting) => setting.write(buffer),
            What::Stat(stat) => stat.write(buffer),
            What::Word(word) => word.write(buffer),
            What::Pool(order, knob) => writeln!(buffer, "{}", knob.get(*order)),
            What::DefaultPool(knob) => writeln!(buffer, "{}", knob.get(mm::default_huge_order())),
            _ => return Err(Errno::EINVAL),
        };
        written.map(|()| None).map_err(|_| Errno::ENOMEM)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> errno::Result<usize> {
        match &self.what {
            What::Report(_) => return Err(Errno::EIO),
            // As Linux: nothing is no value, and in /proc/sys nothing counts behind the first write.
            _ if bytes.is_empty() => {}
            What::Knob(_) | What::DefaultPool(_) if at > 0 => {}
            What::Knob(knob) => return knobs::set(knob, bytes),
            What::DefaultPool(knob) => return knob.set_sysctl(mm::default_huge_order(), bytes),
            // As sysfs does: each write is a value of its own, wherever it goes.
            What::Setting(setting) => setting.set(bytes)?,
            What::Pool(order, knob) | What::Action(order, knob) => knob.set(*order, bytes)?,
            What::Word(word) => word.set(bytes)?,
            What::Choice(_, set) => set(bytes)?,
            _ => return Err(Errno::EACCES),
        }
        Ok(bytes.len())
    }
}
