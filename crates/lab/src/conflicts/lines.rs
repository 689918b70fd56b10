//! The last writer of each cache line, and the transfers that this cost others.
//!
//! A touch happens a thousand million times in a run, so the books are flat
//! arrays: one for each GiB of address space, filled by the host page by page as
//! lines are touched. A line takes 8 bytes; only a line that travels, or that
//! two CPUs read, gets more (an [`Extra`]).

/// log2 of the bytes in a cache line.
const LINE_SHIFT: usize = 6;
/// log2 of the bytes that one array covers.
const CHUNK_SHIFT: usize = 30;
/// Bits of an address in user space.
const ADDRESS_BITS: usize = 47;
/// CPUs that a set of readers can hold.
const MAX_CPUS: usize = softfault::machine::MAX_CPUS;
const WORDS_PER_LINE: usize = 8;
const LINES_PER_CHUNK: usize = 1 << (CHUNK_SHIFT - LINE_SHIFT);

/// The record of one line. CPUs are stored plus one, so that 0 is nobody.
#[derive(Clone, Copy)]
struct Line {
    writer: u16,
    /// The first CPU other than the writer that read it since; more are in `extra`.
    reader: u16,
    /// Index into `extras` plus one.
    extra: u32,
}

impl Line {
    fn unpack(word: u64) -> Line {
        Line { writer: word as u16, reader: (word >> 16) as u16, extra: (word >> 32) as u32 }
    }
    fn pack(self) -> u64 {
        u64::from(self.writer) | u64::from(self.reader) << 16 | u64::from(self.extra) << 32
    }
}

/// The further record of a line that more than one CPU touches.
struct Extra {
    addr: usize,
    readers: [u64; MAX_CPUS / 64],
    transfers: [u32; WORDS_PER_LINE],
    read_misses: [u32; WORDS_PER_LINE],
}

/// Where lines travelled: one word of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hot {
    /// Address of the word that was touched.
    pub addr: usize,
    /// Transfers that touches of this word caused.
    pub transfers: u64,
    /// Read misses that touches of this word caused.
    pub read_misses: u64,
}

/// The books.
pub struct Lines {
    /// Packed [`Line`]s: plain integers, which come zeroed from the host at no cost.
    chunks: Vec<Option<Box<[u64]>>>,
    extras: Vec<Extra>,
    /// Writes to a line last written by another CPU.
    pub transfers: u64,
    /// Reads of a line written by another CPU since the reader's last touch.
    pub read_misses: u64,
}

impl Lines {
    /// Nobody has written anything.
    pub fn new() -> Lines {
        let chunks = std::iter::repeat_with(|| None).take(1 << (ADDRESS_BITS - CHUNK_SHIFT)).collect();
        Lines { chunks, extras: Vec::new(), transfers: 0, read_misses: 0 }
    }

    /// `cpu` writes the word at `addr`.
    pub fn write(&mut self, cpu: u16, addr: usize) {
        let cpu = cpu + 1;
        let word = self.line(addr);
        let before = Line::unpack(*word);
        *word = Line { writer: cpu, reader: 0, extra: before.extra }.pack();
        if before.writer != 0 && before.writer != cpu {
            self.transfers += 1;
            self.extra(addr).transfers[word_of(addr)] += 1;
        }
        if before.reader != 0 {
            self.extra(addr).readers = [0; MAX_CPUS / 64];
        }
    }

    /// `cpu` reads the word at `addr`.
    pub fn read(&mut self, cpu: u16, addr: usize) {
        let cpu = cpu + 1;
        let word = self.line(addr);
        let line = Line::unpack(*word);
        if line.writer == 0 || line.writer == cpu || line.reader == cpu {
            return;
        }
        if line.reader == 0 {
            *word = Line { reader: cpu, ..line }.pack();
        }
        let extra = self.extra(addr);
        let (set, bit) = (usize::from(cpu - 1) / 64, 1u64 << ((cpu - 1) % 64));
        if extra.readers[set] & bit == 0 {
            extra.readers[set] |= bit;
            extra.read_misses[word_of(addr)] += 1;
            self.read_misses += 1;
        }
    }

    /// Forgets what touches have cost so far, but not who wrote which line.
    pub fn start_counting(&mut self) {
        (self.transfers, self.read_misses) = (0, 0);
        for extra in &mut self.extras {
            extra.transfers = [0; WORDS_PER_LINE];
            extra.read_misses = [0; WORDS_PER_LINE];
        }
    }

    /// All words whose lines travelled, in no particular order.
    pub fn hot(&self) -> impl Iterator<Item = Hot> + '_ {
        self.extras.iter().flat_map(|extra| {
            (0..WORDS_PER_LINE).filter_map(|i| {
                let (transfers, read_misses) = (u64::from(extra.transfers[i]), u64::from(extra.read_misses[i]));
                (transfers + read_misses > 0).then_some(Hot { addr: extra.addr + i * 8, transfers, read_misses })
            })
        })
    }

    fn line(&mut self, addr: usize) -> &mut u64 {
        let index = (addr & ((1 << CHUNK_SHIFT) - 1)) >> LINE_SHIFT;
        let chunk = self.chunks[addr >> CHUNK_SHIFT].get_or_insert_with(|| vec![0; LINES_PER_CHUNK].into());
        &mut chunk[index]
    }

    /// The line's extra, made if there is none yet.
    fn extra(&mut self, addr: usize) -> &mut Extra {
        let new = self.extras.len() as u32 + 1;
        let word = self.line(addr);
        let line = Line::unpack(*word);
        if line.extra != 0 {
            return &mut self.extras[line.extra as usize - 1];
        }
        *word = Line { extra: new, ..line }.pack();
        self.extras.push(Extra {
            addr: addr & !((1 << LINE_SHIFT) - 1),
            readers: [0; MAX_CPUS / 64],
            transfers: [0; WORDS_PER_LINE],
            read_misses: [0; WORDS_PER_LINE],
        });
        self.extras.last_mut().expect("one was pushed")
    }
}

fn word_of(addr: usize) -> usize {
    (addr >> 3) % WORDS_PER_LINE
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
