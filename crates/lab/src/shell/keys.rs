//! The keyboard: puts this terminal into raw mode and passes its input to the machine.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Whether it was.
static WAS_QUIT: AtomicBool = AtomicBool::new(false);
/// Ends the machine: Ctrl-].
const QUIT: u8 = 0x1d;
/// The byte that a terminal sends for the end of input: Ctrl-D.
const END_OF_INPUT: u8 = 4;
/// Without a window.
const DEFAULT_SIZE: [u16; 2] = [24, 80];

/// The terminal is in raw mode until this is dropped.
pub struct Raw(Option<libc::termios>);

impl Raw {
    /// Does nothing if standard input is no terminal.
    pub fn enter() -> Raw {
        if !io::stdin().is_terminal() {
            return Raw(None);
        }
        // SAFETY: L4: both calls read and write the one local structure, which is
        // plain numbers.
        let before = unsafe {
            let mut modes: libc::termios = core::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &mut modes) != 0 {
                return Raw(None);
            }
            let before = modes;
            libc::cfmakeraw(&mut modes);
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &modes);
            before
        };
        Raw(Some(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: L4: reads the structure that tcgetattr filled.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, before) };
        }
    }
}

/// Whether the machine was ended from the keyboard.
pub fn was_quit() -> bool {
    WAS_QUIT.load(Ordering::Relaxed)
}

/// Rows and columns of the window.
pub fn window_size() -> [u16; 2] {
    // SAFETY: L4: fills the local structure, which is plain numbers.
    let size = unsafe {
        let mut size: libc::winsize = core::mem::zeroed();
        match libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) {
            0 => [size.ws_row, size.ws_col],
            _ => [0, 0],
        }
    };
    if size.contains(&0) { DEFAULT_SIZE } else { size }
}

/// Passes the keyboard's input on. Its thread ends with the process: a read of a
/// terminal cannot be cancelled.
pub fn pass_on(mut to: ChildStdin, quit: Box<dyn Fn() + Send>) {
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        loop {
            let nr = io::stdin().read(&mut bytes).unwrap_or(0);
            let typed = &bytes[..nr];
            if typed.contains(&QUIT) {
                WAS_QUIT.store(true, Ordering::Relaxed);
                return quit();
            }
            let typed = if nr == 0 { &[END_OF_INPUT] } else { typed };
            if to.write_all(typed).and_then(|()| to.flush()).is_err() || nr == 0 {
                // The line stays open: closing it would end QEMU's own input.
                return core::mem::forget(to);
            }
        }
    });
}
