//! Opens inodes: the kind of open file follows from the kind of inode.

use super::{Kind, bell, console};
use crate::linux::errno::{self, Errno};
use crate::linux::file::pipe::Pipe;
use crate::linux::fs::initial::device;
use crate::linux::fs::text::Text;
use crate::linux::fs::{Body, Inode};
use crate::port::console::Channel;
use alloc::sync::Arc;
use linux_raw_sys::general::{O_ACCMODE, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};

/// Opens `inode`; `flags` as open(2) has them. Waits where a FIFO's other end is
/// not open yet, until the caller `is_interrupted`.
pub fn open(inode: &Arc<Inode>, flags: u32, is_interrupted: impl Fn() -> bool) -> errno::Result<Kind> {
    Ok(match &inode.body {
        Body::File(_) => Kind::File,
        _ if inode.is_dir() => {
            if flags & O_ACCMODE != O_RDONLY {
                return Err(Errno::EISDIR);
            }
            Kind::Dir
        }
        Body::Symlink(_) => return Err(Errno::ELOOP),
        Body::Pipe(pipe) => open_pipe(pipe, flags, is_interrupted)?,
        Body::Device(number) => device(*number)?,
        Body::Console(channel) => Kind::Console(*channel),
        Body::Generated(generated) => Kind::Text(Text::open(generated, flags & O_ACCMODE != O_RDONLY)?),
        Body::Dir | Body::Socket | Body::Nameless(_) => return Err(Errno::ENXIO),
    })
}

fn device(number: u64) -> errno::Result<Kind> {
    Ok(match number {
        device::NULL => Kind::Null,
        device::ZERO => Kind::Zero,
        device::FULL => Kind::Full,
        device::RANDOM | device::URANDOM => Kind::Random,
        device::TTY if console::is_terminal() => Kind::Console(Channel::Output),
        device::CONSOLE => Kind::Console(Channel::Output),
        _ => return Err(Errno::ENXIO),
    })
}

/// fifo(7): each side waits for the other, unless it does not want to wait or
/// opens both.
fn open_pipe(pipe: &Arc<Pipe>, flags: u32, is_interrupted: impl Fn() -> bool) -> errno::Result<Kind> {
    let access = flags & O_ACCMODE;
    let nonblocking = flags & O_NONBLOCK != 0;
    let (reader, writer, seen) = pipe.open(access != O_WRONLY, access != O_RDONLY);
    // Which of the two is waited for.
    let other = usize::from(access == O_RDONLY);
    let is_alone = pipe.is_fifo && access != O_RDWR && seen.nr_ends[other] == 0;
    if is_alone && nonblocking && access == O_WRONLY {
        return Err(Errno::ENXIO);
    }
    if is_alone && !nonblocking {
        // The other may come and go before this thread runs again: what counts
        // is that it came.
        let bell = if other == 0 { pipe.bell_of_writers() } else { pipe.bell_of_readers() };
        let has_come = || (pipe.nr_opened()[other] != seen.nr_opened[other]).then_some(());
        bell::wait(is_interrupted, None, |places| places.add(bell), has_come)?;
    }
    Ok(Kind::Pipe { reader, writer })
}
