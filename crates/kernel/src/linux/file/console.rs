//! The console as a terminal, where the machine says that it is one: bytes that
//! were typed become lines, some of them signals, and are shown as they come.
//! termios(3) has the words. `linux::terminal` sends the signals.
//!
//! The state has a spin lock, under which nothing is called; what comes from the
//! serial line (`arch::serial`) is moved under another.

use super::bell::Bell;
use super::ready::Ready;
use crate::linux::errno::{self, Errno};
use crate::port::arch::serial;
use crate::port::console::{self, Channel};
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use linux_raw_sys::general::{
    ECHO, ECHOE, ECHOK, ECHONL, ICANON, ICRNL, IEXTEN, IGNCR, INLCR, ISIG, ONLCR, OPOST, SIGINT, SIGQUIT, SIGTSTP,
    VEOF, VERASE, VINTR, VKILL, VMIN, VQUIT, VSTART, VSTOP, VSUSP, VTIME,
};
use spin::Once;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that wait to be read, at most; more are dropped.
const MAX_TYPED: usize = 4096;
/// Rate, eight bits, receiver on: what a terminal of today shows.
const CONTROL_MODES: u32 = 0o277;
const DELETE: u8 = 0x7f;

static IS_TERMINAL: AtomicBool = AtomicBool::new(false);
/// The group that signals go to; 0 is none.
static FOREGROUND: AtomicU32 = AtomicU32::new(0);
/// Held while bytes are moved, so that they stay in order.
static PUMPING: SpinLock<()> = SpinLock::new(());
/// Rings when something was typed that can be read now.
static TYPED: Once<Arc<Bell>> = Once::new();
static STATE: SpinLock<State> = SpinLock::new(State::new());

/// `struct termios` of the kernel's calls.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // termios(3)
pub struct Termios {
    pub input: u32,
    pub output: u32,
    pub control: u32,
    pub local: u32,
    pub line: u8,
    pub characters: [u8; 19],
}

struct State {
    modes: Termios,
    /// Rows, columns, and two that nobody uses.
    size: [u16; 4],
    /// Typed, not yet ended by a newline.
    line: Vec<u8>,
    /// Ready to be read.
    typed: VecDeque<u8>,
    /// End-of-file marks: after so many bytes of `typed` a read gives nothing.
    ends: VecDeque<usize>,
}

const fn control(letter: u8) -> u8 {
    letter & 0x1f
}

const fn default_modes() -> Termios {
    let mut characters = [0; 19];
    characters[VINTR as usize] = control(b'C');
    characters[VQUIT as usize] = control(b'\\');
    characters[VERASE as usize] = DELETE;
    characters[VKILL as usize] = control(b'U');
    characters[VEOF as usize] = control(b'D');
    characters[VSTART as usize] = control(b'Q');
    characters[VSTOP as usize] = control(b'S');
    characters[VSUSP as usize] = control(b'Z');
    characters[VMIN as usize] = 1;
    characters[VTIME as usize] = 0;
    let local = ISIG | ICANON | ECHO | ECHOE | ECHOK | IEXTEN;
    Termios { input: ICRNL, output: OPOST | ONLCR, control: CONTROL_MODES, local, line: 0, characters }
}

/// The effect of a byte, besides the byte that is stored.
#[derive(Default)]
struct Effect {
    /// Shown.
    echo: Vec<u8>,
    /// Sent to the foreground.
    signal: u32,
    /// Somebody may read now.
    readable: bool,
}

impl State {
    const fn new() -> State {
        State {
            modes: default_modes(),
            size: [24, 80, 0, 0],
            line: Vec::new(),
            typed: VecDeque::new(),
            ends: VecDeque::new(),
        }
    }
    fn is(&self, character: u32, byte: u8) -> bool {
        byte != 0 && self.modes.characters[character as usize] == byte
    }
    fn has(&self, local: u32) -> bool {
        self.modes.local & local != 0
    }
    /// The echo of a byte: control characters as `^C`.
    fn echo(&self, byte: u8, effect: &mut Effect) {
        if !self.has(ECHO) {
            return;
        }
        match byte {
            b'\n' | b'\t' => effect.echo.push(byte),
            DELETE | ..0x20 => effect.echo.extend([b'^', byte ^ 0x40]),
            _ => effect.echo.push(byte),
        }
    }
    fn type_byte(&mut self, byte: u8) -> Effect {
        let mut effect = Effect::default();
        let byte = match byte {
            b'\r' if self.modes.input & IGNCR != 0 => return effect,
            b'\r' if self.modes.input & ICRNL != 0 => b'\n',
            b'\n' if self.modes.input & INLCR != 0 => b'\r',
            byte => byte,
        };
        if self.has(ISIG) {
            let signals = [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)];
            if let Some((_, signal)) = signals.into_iter().find(|(character, _)| self.is(*character, byte)) {
                self.line.clear();
                self.echo(byte, &mut effect);
                effect.signal = signal;
                return effect;
            }
        }
        match self.has(ICANON) {
            true => self.edit_line(byte, &mut effect),
            false => {
                self.echo(byte, &mut effect);
                self.keep(&[byte]);
                effect.readable = true;
            }
        }
        effect
    }
    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_TYPED.saturating_sub(self.typed.len());
        self.typed.extend(&bytes[..bytes.len().min(room)]);
    }
    fn edit_line(&mut self, byte: u8, effect: &mut Effect) {
        if self.is(VERASE, byte) || byte == 8 {
            if self.line.pop().is_some() && self.has(ECHO) {
                effect.echo.extend(b"\x08 \x08");
            }
        } else if self.is(VKILL, byte) {
            let nr = core::mem::take(&mut self.line).len();
            if self.has(ECHO) {
                (0..nr).for_each(|_| effect.echo.extend(b"\x08 \x08"));
            }
        } else if self.is(VEOF, byte) {
            self.end_line(effect);
            self.ends.push_back(self.typed.len());
        } else {
            if byte == b'\n' && self.has(ECHO | ECHONL) {
                effect.echo.push(byte);
            } else {
                self.echo(byte, effect);
            }
            if self.line.len() < MAX_TYPED {
                self.line.push(byte);
            }
            if byte == b'\n' {
                self.end_line(effect);
            }
        }
    }
    fn end_line(&mut self, effect: &mut Effect) {
        let line = core::mem::take(&mut self.line);
        self.keep(&line);
        effect.readable = true;
    }
    /// Bytes that a read may take before the next end of file.
    fn nr_before_end(&self) -> usize {
        self.ends.front().copied().unwrap_or(self.typed.len())
    }
    fn take(&mut self, max: usize) -> Option<Vec<u8>> {
        let room = max.min(self.nr_before_end());
        // One line at a time, where there are lines.
        let newline = self.typed.iter().take(room).position(|b| *b == b'\n').map(|at| at + 1);
        let nr = if self.has(ICANON) { newline.unwrap_or(room) } else { room };
        if nr == 0 && self.ends.front() != Some(&0) {
            return None;
        }
        let bytes: Vec<u8> = self.typed.drain(..nr).collect();
        self.ends.iter_mut().for_each(|end| *end -= nr);
        if nr == 0 || self.ends.front() == Some(&0) && !bytes.ends_with(b"\n") {
            self.ends.pop_front();
        }
        Some(bytes)
    }
}

/// Makes the bell, before the first process.
pub fn make_bell() {
    TYPED.call_once(|| Arc::new(Bell::new()));
}

/// The bell that rings when something was typed, once it is made.
pub fn bell() -> Option<&'static Arc<Bell>> {
    TYPED.get()
}

/// Whether a user is at the console.
pub fn is_terminal() -> bool {
    IS_TERMINAL.load(Ordering::Relaxed)
}

/// Sets that a user is, in front of so many rows and columns.
pub fn set_terminal(size: [u16; 2]) {
    STATE.lock().size = [size[0], size[1], 0, 0];
    IS_TERMINAL.store(true, Ordering::Relaxed);
}

/// Takes the next byte from the serial line and shows it, if there is one and
/// room for it.
fn next_effect() -> Option<Effect> {
    let _in_order = PUMPING.lock();
    if STATE.lock().typed.len() >= MAX_TYPED {
        return None;
    }
    let effect = STATE.lock().type_byte(serial::next_byte()?);
    if !effect.echo.is_empty() {
        write(Channel::Output, &effect.echo);
    }
    Some(effect)
}

/// Takes the next byte from the serial line, if there is one and room for it: the rest waits
/// there. Returns the signal that the byte sends to the group in the foreground, or 0.
pub fn type_next() -> Option<u32> {
    let effect = next_effect()?;
    if effect.readable {
        bell().iter().for_each(|bell| bell.ring());
    }
    Some(effect.signal)
}

/// Up to `max` typed bytes; none at an end of file; EAGAIN if there are none yet.
pub fn take(max: usize) -> errno::Result<Vec<u8>> {
    STATE.lock().take(max).ok_or(Errno::EAGAIN)
}

/// Bytes that could be read now.
pub fn nr_readable() -> usize {
    STATE.lock().nr_before_end()
}

/// Returns what the channel is ready for.
pub fn ready(channel: Channel) -> Ready {
    let state = STATE.lock();
    let data = match is_terminal() {
        true => !state.typed.is_empty() || !state.ends.is_empty(),
        false => channel == Channel::Input,
    };
    if data { Ready::IN | Ready::OUT } else { Ready::OUT }
}

/// Whether a group is not the one that the terminal is for.
pub fn is_background(group: u32) -> bool {
    is_terminal() && foreground() != 0 && foreground() != group
}

/// Shows bytes; a terminal is told to go to the line's beginning, too.
pub fn write(channel: Channel, bytes: &[u8]) {
    let channel = if channel == Channel::Input { Channel::Output } else { channel };
    let modes = STATE.lock().modes.output;
    if !is_terminal() || modes & OPOST == 0 || modes & ONLCR == 0 || !bytes.contains(&b'\n') {
        return console::send(channel, bytes);
    }
    // Line by line, so that no copy of everything is made.
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(text) => {
                let mut whole = Vec::with_capacity(text.len() + 2);
                whole.extend_from_slice(text);
                whole.extend_from_slice(b"\r\n");
                console::send(channel, &whole);
            }
            None => console::send(channel, line),
        }
    }
}

/// The present modes.
pub fn modes() -> Termios {
    STATE.lock().modes
}

/// Sets them; `flush` drops what was typed and not read.
pub fn set_modes(modes: Termios, flush: bool) {
    let mut state = STATE.lock();
    let leaves_lines = state.has(ICANON) && modes.local & ICANON == 0;
    state.modes = modes;
    if flush {
        state.line.clear();
        state.typed.clear();
        state.ends.clear();
    } else if leaves_lines {
        let line = core::mem::take(&mut state.line);
        state.keep(&line);
    }
}

/// Rows, columns, and two that nobody uses.
pub fn size() -> [u16; 4] {
    STATE.lock().size
}

/// Says how large the window is.
pub fn set_size(size: [u16; 4]) {
    STATE.lock().size = size;
}

/// The group in the foreground.
pub fn foreground() -> u32 {
    FOREGROUND.load(Ordering::Relaxed)
}

/// Puts a group there.
pub fn set_foreground(group: u32) {
    FOREGROUND.store(group, Ordering::Relaxed);
}
