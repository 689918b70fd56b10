//! `/proc/PID/fd` and `/proc/PID/fdinfo`: a process's open files.

use super::subject::Subject;
use crate::linux::errno::{self, Errno};
use crate::linux::file::Kind;
use crate::linux::file::life::Life;
use crate::linux::fs::Body;
use crate::linux::fs::buffer::Buffer;
use crate::linux::fs::inode::generated::{About, Generate, Jump, Opened};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use linux_raw_sys::general::O_CLOEXEC;

/// `/proc/PID/fd/N`.
pub(super) struct Fd(pub(super) Subject, pub(super) u32);

impl Generate for Fd {
    fn about(&self) -> About {
        About::LINK
    }
    /// As a path or in words.
    fn link(&self) -> errno::Result<Option<Vec<u8>>> {
        let open = self.0.open(self.1)?;
        let inode = &open.inode;
        let text = match &inode.body {
            Body::Pipe(_) if open.spot.is_none() => alloc::format!("pipe:[{}]", inode.number),
            Body::Socket if open.spot.is_none() => alloc::format!("socket:[{}]", inode.number),
            Body::Nameless(what) => alloc::format!("anon_inode:{what}"),
            Body::Console(_) => alloc::string::String::from("/dev/console"),
            _ => return open.path().map(Some),
        };
        Ok(Some(text.into_bytes()))
    }
    /// To be opened again.
    fn jump(&self) -> errno::Result<Option<Jump>> {
        let open = self.0.open(self.1)?;
        Ok(Some(Jump::Open(Opened { inode: open.inode.clone(), spot: open.spot.clone() })))
    }
}

/// `/proc/PID/fdinfo/N`.
pub(super) struct FdInfo(pub(super) Subject, pub(super) u32);

impl Generate for FdInfo {
    fn about(&self) -> About {
        About::FILE
    }
    fn write_text(&self, _: u64, buffer: &mut Buffer) -> errno::Result<Option<u64>> {
        let FdInfo(subject, number) = *self;
        let open = subject.open(number)?;
        let closes = subject.process()?.files.lock().closes_on_exec(number).map_err(|_| Errno::ENOENT)?;
        let flags = open.flags() | if closes { O_CLOEXEC } else { 0 };
        let position = *open.position.lock();
        let mut written =
            writeln!(buffer, "pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{}", open.inode.number);
        if let Kind::Process(life) = &open.kind {
            written = written.and_then(|()| write_numbers(life, buffer));
        }
        written.map(|()| None).map_err(|_| Errno::ENOMEM)
    }
}

/// Writes the number of the process or thread of a descriptor; -1 once that was waited for. There is one namespace.
fn write_numbers(life: &Life, out: &mut dyn Write) -> fmt::Result {
    let number = if life.is_gone() { -1 } else { i64::from(life.number) };
    writeln!(out, "Pid:\t{number}\nNSpid:\t{number}")
}
