//! ioctl(2): a few questions about files, and the console as a terminal, where
//! it is one.

use super::call::Call;
use super::path::open_file;
use crate::linux::errno::{self, Errno};
use crate::linux::file::console::{self, Termios};
use crate::linux::file::{Kind, Open};
use crate::linux::process::table;
use crate::port::mm;
use linux_raw_sys::general::O_NONBLOCK;

const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TCSETSW: u32 = 0x5403;
const TCSETSF: u32 = 0x5404;
const TCSBRK: u32 = 0x5409;
const TCXONC: u32 = 0x540a;
const TCFLSH: u32 = 0x540b;
const TIOCSCTTY: u32 = 0x540e;
const TIOCGPGRP: u32 = 0x540f;
const TIOCSPGRP: u32 = 0x5410;
const TIOCGWINSZ: u32 = 0x5413;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCNOTTY: u32 = 0x5422;
const TIOCGSID: u32 = 0x5429;
const FIONREAD: u32 = 0x541b;
const FIONBIO: u32 = 0x5421;
const FIOCLEX: u32 = 0x5451;
const FIONCLEX: u32 = 0x5450;

/// Bytes that could be read now.
fn nr_readable(open: &Open) -> errno::Result<i32> {
    let nr = match &open.kind {
        Kind::Console(_) if console::is_terminal() => console::nr_readable() as u64,
        Kind::Pipe { reader: Some(reader), .. } => reader.pipe().len() as u64,
        Kind::Pipe { writer: Some(writer), .. } => writer.pipe().len() as u64,
        Kind::File => open.inode.size_bytes().saturating_sub(*open.position.lock()),
        _ => return Err(Errno::ENOTTY),
    };
    Ok(nr.min(i32::MAX as u64) as i32)
}

pub fn ioctl(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    let number = call.int(0);
    match call.int(1) {
        FIONREAD => mm::put(call.space(), call.args[2], &nr_readable(&open)?)?,
        FIONBIO => {
            let on: u32 = mm::get(call.space(), call.args[2])?;
            open.set_flags(if on != 0 { O_NONBLOCK } else { 0 }, O_NONBLOCK);
        }
        FIOCLEX => call.process.files.lock().set_closes_on_exec(number, true)?,
        FIONCLEX => call.process.files.lock().set_closes_on_exec(number, false)?,
        request => match open.kind {
            Kind::Console(_) if console::is_terminal() => terminal(call, request)?,
            _ => return Err(Errno::ENOTTY),
        },
    }
    Ok(0)
}

/// Carries out a request to a terminal; ioctl_tty(2).
fn terminal(call: &Call, request: u32) -> errno::Result<()> {
    let at = call.args[2];
    match request {
        TCGETS => mm::put(call.space(), at, &console::modes()),
        TCSETS | TCSETSW | TCSETSF => {
            let modes = mm::get::<Termios>(call.space(), at)?;
            console::set_modes(modes, request == TCSETSF);
            Ok(())
        }
        TIOCGWINSZ => mm::put(call.space(), at, &console::size()),
        TIOCSWINSZ => {
            let size = mm::get::<[u16; 4]>(call.space(), at)?;
            console::set_size(size);
            Ok(())
        }
        TIOCGPGRP => mm::put(call.space(), at, &console::foreground()),
        TIOCSPGRP => {
            let group = mm::get::<u32>(call.space(), at)?;
            if group as i32 <= 0 {
                return Err(Errno::EINVAL);
            }
            if table::in_group(group).is_empty() {
                return Err(Errno::ESRCH);
            }
            console::set_foreground(group);
            Ok(())
        }
        TIOCGSID => mm::put(call.space(), at, &call.process.session()),
        // It is everybody's already.
        TIOCSCTTY | TIOCNOTTY => Ok(()),
        TCFLSH | TCSBRK | TCXONC => Ok(()),
        _ => Err(Errno::ENOTTY),
    }
}
