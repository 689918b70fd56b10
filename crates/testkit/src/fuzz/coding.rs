//! Bytes to steps and back.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | the machine: fault-locking mode (2 bits), mode (1), several CPUs (1), seed (4) |
//! | then, for each step: 1 | call (4 bits), program (2), narrow access (1), one of the later calls (1) |
//! | and its arguments | as their kinds: place, length, rights, flags, advice, value |
//!
//! A frequent argument is one byte, a rare one a tag with more behind it, so that
//! a changed byte mostly changes one step. Bytes that are missing are zeroes.

use super::{MAX_STEPS, Setup};
use crate::model::{EXEC, READ, WRITE};
use crate::numbers::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE,
    MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, PROT_GROWSDOWN, PROT_GROWSUP, PROT_SEM,
};
use crate::op::{Call, HEAP, KnobBits, Op, PAGE, WINDOW, WINDOW_PAGES};
use softfault::FaultLocking;
use softfault_host::Mode;

/// Pages of the window that a place of one byte names, around the end of a leaf
/// table.
const NEAR_FIRST: u64 = 416;
const NR_NEAR: u64 = 192;
const PLACE_PAGE: u8 = 192;
const PLACE_BYTE: u8 = 193;
const PLACE_HEAP: u8 = 194;
const PLACE_RAW: u8 = 195;
/// From here on an offset, with a near page behind it.
const PLACE_OFFSET: u8 = 196;
const OFFSETS: [u64; 8] = [8, 2048, 4088, 9, 15, 4095, 1, 0];

const LENGTH_PAGES: u8 = 248;
const LENGTH_LESS: u8 = 249;
const LENGTH_RAW: u8 = 250;

/// Flags of mmap; the first bit chooses the type.
const MAP_BITS: [u64; 7] =
    [0, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_POPULATE, MAP_NORESERVE, MAP_NONBLOCK];
/// The type follows in a byte, with a bit for `MAP_LOCKED`.
const MAP_TYPE_FOLLOWS: u8 = 0x80;
const TYPE_LOCKED: u8 = 0x10;
/// The right or flag follows in eight bytes.
const RAW_FOLLOWS: u8 = 0x80;
const PROT_BITS: [u64; 6] = [READ, WRITE, EXEC, PROT_SEM, PROT_GROWSDOWN, PROT_GROWSUP];
const ADVICE_RAW: u8 = 255;

/// Calls have four bits; those that one for each leaves over are frequent ones
/// again.
const FREQUENT: [Call; 4] = [Call::Mmap, Call::Madvise, Call::Mremap, Call::Store];
/// Calls with a number of their own; the others are the exit of a program with
/// more in the byte, so that strings of bytes from before there were any keep
/// their meaning.
const NR_NUMBERED: usize = 16 - FREQUENT.len();
const EXIT: u8 = Call::Exit as u8;
const EXTRA: u8 = 0x80;
const EXTRA_KNOBS: u8 = 0x40;

fn call_of(head: u8) -> Call {
    let bits = usize::from(head & 0xf);
    match head & (EXTRA | EXTRA_KNOBS | 0xf) {
        extra if extra == EXIT | EXTRA | EXTRA_KNOBS => Call::Knobs,
        extra if extra == EXIT | EXTRA => Call::ThpDisable,
        _ if bits < NR_NUMBERED => Call::ALL[bits],
        _ => FREQUENT[bits - NR_NUMBERED],
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self, nr_bytes: u32) -> u64 {
        (0..nr_bytes).fold(0, |number, i| number | u64::from(self.byte()) << (8 * i))
    }

    fn place(&mut self) -> u64 {
        let near = |page: u8| WINDOW + (NEAR_FIRST + u64::from(page) % NR_NEAR) * PAGE;
        match self.byte() {
            PLACE_PAGE => WINDOW + self.number(2) % WINDOW_PAGES * PAGE,
            PLACE_BYTE => WINDOW + self.number(2) % WINDOW_PAGES * PAGE + self.number(2) % PAGE,
            PLACE_HEAP => HEAP + self.number(3),
            PLACE_RAW => self.number(8),
            tag @ PLACE_OFFSET.. => near(self.byte()) + OFFSETS[usize::from(tag - PLACE_OFFSET) % 8],
            page => near(page),
        }
    }

    fn length(&mut self) -> u64 {
        match self.byte() {
            LENGTH_PAGES => self.number(2) * PAGE,
            LENGTH_LESS => (self.number(2) * PAGE).saturating_sub(self.number(2) % PAGE),
            LENGTH_RAW.. => self.number(8),
            pages => u64::from(pages) * PAGE,
        }
    }

    fn bits(&mut self, bits: &[u64]) -> u64 {
        match self.byte() {
            RAW_FOLLOWS.. => self.number(8),
            byte => gather(byte, bits),
        }
    }

    fn mmap_flags(&mut self) -> u64 {
        let byte = self.byte();
        let kind = match (byte & MAP_TYPE_FOLLOWS != 0, byte & 1 != 0) {
            (true, _) => {
                let kind = self.byte();
                u64::from(kind & 0xf) | if kind & TYPE_LOCKED != 0 { MAP_LOCKED } else { 0 }
            }
            (_, true) => MAP_SHARED,
            _ => MAP_PRIVATE,
        };
        MAP_ANONYMOUS | gather(byte, &MAP_BITS) | kind
    }

    fn step(&mut self) -> Op {
        let head = self.byte();
        let call = call_of(head);
        let bytes = if head & 0x40 != 0 { 1 } else { 8 };
        let args = match call {
            Call::Mmap => [self.place(), self.length(), self.bits(&PROT_BITS), self.mmap_flags(), self.place(), 0],
            Call::Munmap | Call::Mincore => [self.place(), self.length(), 0, 0, 0, 0],
            Call::Mprotect => [self.place(), self.length(), self.bits(&PROT_BITS), 0, 0, 0],
            Call::Mremap => {
                [self.place(), self.length(), self.length(), self.bits(&[1, 2, 4]), self.place(), self.place()]
            }
            Call::Brk => [self.place(), 0, 0, 0, 0, 0],
            Call::Madvise => [self.place(), self.length(), self.advice(), 0, 0, 0],
            Call::Fork => [1 + u64::from(self.byte() % 3), 0, 0, 0, 0, 0],
            Call::Exit => [0; 6],
            Call::Load => [self.place(), bytes, 0, 0, 0, 0],
            Call::Store => [self.place(), bytes, spread(self.byte()), 0, 0, 0],
            Call::Exec => [self.place(), 0, 0, 0, 0, 0],
            Call::Knobs => [u64::from(self.byte()) % KnobBits::COUNT, 0, 0, 0, 0, 0],
            Call::ThpDisable => [u64::from(self.byte() & 1), 0, 0, 0, 0, 0],
            // No byte stands for one of a file.
            _ => [0; 6],
        };
        Op { who: u64::from(head >> 4 & 3), call, args }
    }

    fn advice(&mut self) -> u64 {
        match self.byte() {
            ADVICE_RAW => u64::MAX,
            advice => advice.into(),
        }
    }
}

/// The flags whose bits are set.
fn gather(byte: u8, bits: &[u64]) -> u64 {
    bits.iter().enumerate().filter(|(i, _)| byte & 1 << i != 0).fold(0, |flags, (_, bit)| flags | bit)
}

/// A bit for each of them that is set.
fn set_in(flags: u64, bits: &[u64]) -> u8 {
    bits.iter().enumerate().filter(|(_, bit)| flags & **bit != 0).fold(0, |byte, (i, _)| byte | 1 << i)
}

/// The byte whose bits give these flags, if there is one.
fn scatter(flags: u64, bits: &[u64]) -> Option<u8> {
    let byte = set_in(flags, bits);
    (gather(byte, bits) == flags).then_some(byte)
}

/// A word whose bytes are all the same: wide and narrow accesses agree about it.
fn spread(byte: u8) -> u64 {
    u64::from(byte) * 0x0101_0101_0101_0101
}

pub(super) fn decode(bytes: &[u8]) -> (Setup, Vec<Op>) {
    let mut reader = Reader(bytes);
    let head = reader.byte();
    let setup = Setup {
        fault_locking: FaultLocking::ALL[usize::from(head & 3)],
        mode: if head & 4 != 0 { Mode::Broadcast } else { Mode::Interrupt },
        several: head & 8 != 0,
        seed: head >> 4,
    };
    let mut ops = Vec::new();
    while !reader.0.is_empty() && ops.len() < 2 * MAX_STEPS {
        ops.push(reader.step());
    }
    (setup, ops)
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64, nr_bytes: usize) {
        self.0.extend(&number.to_le_bytes()[..nr_bytes]);
    }

    fn tagged(&mut self, tag: u8, number: u64, nr_bytes: usize) {
        self.0.push(tag);
        self.number(number, nr_bytes);
    }

    fn place(&mut self, addr: u64) {
        if (HEAP..HEAP + (1 << 24)).contains(&addr) {
            return self.tagged(PLACE_HEAP, addr - HEAP, 3);
        }
        if !(WINDOW..WINDOW + WINDOW_PAGES * PAGE).contains(&addr) {
            return self.tagged(PLACE_RAW, addr, 8);
        }
        let (page, offset) = ((addr - WINDOW) / PAGE, addr % PAGE);
        let near = page.checked_sub(NEAR_FIRST).filter(|near| *near < NR_NEAR).map(|near| near as u8);
        let known = OFFSETS.iter().position(|known| *known == offset);
        match (near, known) {
            (Some(near), _) if offset == 0 => self.0.push(near),
            (Some(near), Some(i)) => self.0.extend([PLACE_OFFSET + i as u8, near]),
            _ if offset == 0 => self.tagged(PLACE_PAGE, page, 2),
            _ => {
                self.tagged(PLACE_BYTE, page, 2);
                self.number(offset, 2);
            }
        }
    }

    fn length(&mut self, len: u64) {
        let pages = len.div_ceil(PAGE);
        match (len.is_multiple_of(PAGE), pages) {
            (true, 0..248) => self.0.push(pages as u8),
            (true, 0..0x1_0000) => self.tagged(LENGTH_PAGES, pages, 2),
            (false, 0..0x1_0000) => {
                self.tagged(LENGTH_LESS, pages, 2);
                self.number(pages * PAGE - len, 2);
            }
            _ => self.tagged(LENGTH_RAW, len, 8),
        }
    }

    fn bits(&mut self, flags: u64, bits: &[u64]) {
        match scatter(flags, bits) {
            Some(byte) => self.0.push(byte),
            None => self.tagged(RAW_FOLLOWS, flags, 8),
        }
    }

    fn mmap_flags(&mut self, flags: u64) {
        let byte = set_in(flags, &MAP_BITS);
        match flags & (0xf | MAP_LOCKED) {
            MAP_SHARED => self.0.push(byte | 1),
            MAP_PRIVATE => self.0.push(byte),
            kind => {
                let locked = if kind & MAP_LOCKED != 0 { TYPE_LOCKED } else { 0 };
                self.0.extend([byte | MAP_TYPE_FOLLOWS, (kind & 0xf) as u8 | locked]);
            }
        }
    }

    fn step(&mut self, op: &Op) {
        let [a, b, c, d, e, f] = op.args;
        let narrow = matches!(op.call, Call::Load | Call::Store) && b == 1;
        let call = match op.call {
            Call::Knobs => EXIT | EXTRA | EXTRA_KNOBS,
            Call::ThpDisable => EXIT | EXTRA,
            call => call as u8,
        };
        self.0.push(call | (op.who as u8 & 3) << 4 | u8::from(narrow) << 6);
        match op.call {
            Call::Exit => return,
            Call::Knobs | Call::ThpDisable => return self.0.push(a as u8),
            Call::Fork => return self.0.push(a.wrapping_sub(1) as u8),
            _ => self.place(a),
        }
        match op.call {
            Call::Mmap | Call::Munmap | Call::Mincore | Call::Mprotect | Call::Mremap | Call::Madvise => self.length(b),
            Call::Store => self.0.push(c as u8),
            _ => {}
        }
        match op.call {
            Call::Mmap => {
                self.bits(c, &PROT_BITS);
                self.mmap_flags(d);
                self.place(e);
            }
            Call::Mremap => {
                self.length(c);
                self.bits(d, &[1, 2, 4]);
                self.place(e);
                self.place(f);
            }
            Call::Mprotect => self.bits(c, &PROT_BITS),
            Call::Madvise => self.0.push(u8::try_from(c).unwrap_or(ADVICE_RAW)),
            _ => {}
        }
    }
}

pub(super) fn encode<'a>(setup: Setup, ops: impl Iterator<Item = &'a Op>) -> Vec<u8> {
    let fault_locking = FaultLocking::ALL.iter().position(|d| *d == setup.fault_locking).unwrap_or(0) as u8;
    let mode = u8::from(setup.mode == Mode::Broadcast);
    let mut writer = Writer(vec![fault_locking | mode << 2 | u8::from(setup.several) << 3 | setup.seed << 4]);
    ops.filter(|op| !op.call.is_of_file()).for_each(|op| writer.step(op));
    writer.0
}
