//! A setting of the host: a file with a number, where it may be read and set. It is put back when the experiment ends,
//! also by an error, a panic, or SIGINT, SIGTERM, SIGHUP or SIGQUIT; SIGKILL leaves it as it was set. One at a time: a
//! second process says so and waits.
//!
//! One of the lab's files with `unsafe` (L1 is in `os.rs`):
//! - **L12** the handler of signals uses atomic cells and calls that POSIX allows there. The descriptor that
//!   it writes to stays open while it may run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Signals that end a process and can be caught.
const SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// For the handler: the open file, or -1, and what was in it.
static OPEN: AtomicI32 = AtomicI32::new(-1);
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Holds the host's setting.
pub struct Knob {
    path: PathBuf,
    file: File,
    before: u64,
}

impl Knob {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or not be set to what it is.
    ///
    /// # Panics
    ///
    /// If this process holds one already.
    pub fn at(path: &Path) -> io::Result<Knob> {
        assert_eq!(OPEN.load(Ordering::Relaxed), -1, "one knob at a time");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // Another process that has set it puts it back before this one looks.
        if file.try_lock().is_err() {
            eprintln!("softfault: {}: another process has set it; waiting for its end", path.display());
            file.lock()?;
        }
        let before = read(&file)?;
        write(&file, before)?;
        BEFORE.store(before, Ordering::Relaxed);
        OPEN.store(file.as_raw_fd(), Ordering::Release);
        for signal in SIGNALS {
            let handler: extern "C" fn(libc::c_int) = put_back_and_end;
            // SAFETY: L12. A signal that is ignored, as under nohup(1), stays so.
            unsafe {
                if libc::signal(signal, handler as *const () as libc::sighandler_t) == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
        }
        Ok(Knob { path: path.into(), file, before })
    }

    /// Returns the value from before.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Reads the value.
    pub fn read(&self) -> io::Result<u64> {
        read(&self.file)
    }

    /// Sets it. Linux may round or refuse the value.
    pub fn set(&self, to: u64) -> io::Result<()> {
        write(&self.file, to)
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        if write(&self.file, self.before).is_err() {
            eprintln!("softfault: {} could not be put back to {}", self.path.display(), self.before);
        }
        OPEN.store(-1, Ordering::Release);
        for signal in SIGNALS {
            // SAFETY: L12: the default again, before the file is closed, but for what is ignored.
            unsafe {
                if libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
        }
    }
}

fn read(file: &File) -> io::Result<u64> {
    let mut text = [0; 32];
    let nr = file.read_at(&mut text, 0)?;
    let number = std::str::from_utf8(&text[..nr]).ok().and_then(|text| text.lines().next()?.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

fn write(file: &File, number: u64) -> io::Result<()> {
    file.write_all_at(format!("{number}\n").as_bytes(), 0)
}

extern "C" fn put_back_and_end(signal: libc::c_int) {
    put_back();
    // SAFETY: L12: what would have happened without a handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Writes the number in decimal without memory from the heap.
fn put_back() {
    let fd = OPEN.load(Ordering::Acquire);
    if fd < 0 {
        return;
    }
    let (mut rest, mut at, mut text) = (BEFORE.load(Ordering::Relaxed), 20, [b'\n'; 21]);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // SAFETY: L12: the bytes from the first digit on, to a descriptor that is open.
    unsafe { libc::pwrite(fd, text[at..].as_ptr().cast(), text.len() - at, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_back_at_the_end_and_by_the_handler() {
        let path = std::env::temp_dir().join(format!("softfault-knob-{}", std::process::id()));
        let said = || std::fs::read_to_string(&path).unwrap().lines().next().unwrap().to_string();
        std::fs::write(&path, "65536\n").unwrap();
        let knob = Knob::at(&path).unwrap();
        knob.set(2 << 20).unwrap();
        assert_eq!((said().as_str(), knob.read().unwrap(), knob.before()), ("2097152", 2 << 20, 65_536));
        put_back();
        // A file in debugfs is written anew by each write; this one keeps the rest.
        assert_eq!(said(), "65536");
        knob.set(2 << 20).unwrap();
        drop(knob);
        assert_eq!(said(), "65536");
        put_back();
        assert!(Knob::at(Path::new("/nowhere/fault_around_bytes")).is_err());
        std::fs::write(&path, "no number\n").unwrap();
        assert!(Knob::at(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
