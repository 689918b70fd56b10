//! One step of a sequence (a system call or an access, with raw arguments) and its outcome.
//!
//! Steps are plain numbers, so processes can share them in memory. All addresses are in the
//! [`WINDOW`], in the heap, or such that the call must fail on every side.

use core::fmt;
use softfault::Errno;

/// Where sequences map things: 64 MiB, with nothing near.
pub const WINDOW: u64 = 0x10_0000_0000;
/// Pages in it.
pub const WINDOW_PAGES: u64 = 16384;
/// Where sequences see the heap begin; each side has its own place for it.
pub const HEAP: u64 = 0x20_0000_0000;
/// Bytes from there that are translated.
pub const HEAP_BYTES: u64 = 64 << 20;
/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Bytes at both ends of the window into which mappings may grow.
pub const MARGIN_BYTES: u64 = 64 << 20;
/// Files of a sequence. The first one is memory of the machine, the other one is read from a storage, where there is one.
pub const NR_FILES: usize = 2;
/// Pages that they have at first.
pub const FILE_PAGES: u64 = 24;
/// The word of each page of the second file that is not zero at first: where it is in the page, and what it is.
pub const FILE_WORD_AT: u64 = 8;
/// See [`FILE_WORD_AT`].
pub const fn file_word(page: u64) -> u64 {
    0xf11e_0000_0000_0001 + page
}
/// Value of [`Call::FileRead`] at the end of the file.
pub const FILE_END: u64 = 256;
/// One past the last user address.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Bytes in a page of the pool.
pub const HUGE: u64 = 512 * PAGE;
/// Where sequences map pages of a pool, and other memory over them, at multiples of their size.
pub const POOL_WINDOW: u64 = 0x18_0000_0000;
/// Pages of the pool that fit in there.
pub const POOL_WINDOW_PAGES: u64 = 24;
/// Most pages in one mapping of the pool. One that begins in the window may end that far behind it.
pub const MOST_POOL_PAGES: u64 = 16;

/// Whether it is in the part of the address space for pages of a pool.
pub fn is_for_pool(addr: u64) -> bool {
    (POOL_WINDOW..POOL_WINDOW + POOL_WINDOW_PAGES * HUGE).contains(&addr)
}

/// Whether a mapping there is where a sequence put it, and not of the callee's
/// choice.
pub fn is_ours(addr: u64) -> bool {
    let window = WINDOW - MARGIN_BYTES..WINDOW + WINDOW_PAGES * PAGE + MARGIN_BYTES;
    window.contains(&addr) || is_for_pool(addr) || (HEAP..HEAP + HEAP_BYTES).contains(&addr)
}

/// Which step it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u64)]
#[allow(missing_docs)] // as the system calls of these names
pub enum Call {
    /// addr, len, prot, flags, landing: where to move the mapping if it was put
    /// anywhere (0: unmap it then).
    Mmap,
    /// addr, len
    Munmap,
    /// addr, len, prot
    Mprotect,
    /// old, old len, new len, flags, new, landing
    Mremap,
    /// addr
    Brk,
    /// addr, len, advice
    Madvise,
    /// addr, len: at most 64 pages; gives a bit for each
    Mincore,
    /// number of the child
    Fork,
    /// The program ends.
    Exit,
    /// addr, bytes: 1 or 8, aligned
    Load,
    /// addr, bytes: 1 or 8, aligned; value
    Store,
    /// addr: calls the code there, which has to be a `ret`
    Exec,
    /// setting: the machine's knobs of huge pages; see [`KnobBits`]. Linux keeps
    /// its own.
    Knobs,
    /// 1 or 0: whether the program refuses huge pages (prctl(2)).
    ThpDisable,
    /// Makes the files, which all programs have from now on.
    MakeFiles,
    /// addr, len, prot, flags, landing; file and first page: see [`Op::file_and_page`].
    MmapFile,
    /// file, bytes (ftruncate(2))
    FileSize,
    /// file, first page, pages (fallocate(2))
    FilePunch,
    /// file, offset: gives a byte, or [`FILE_END`] (pread(2))
    FileRead,
    /// file, offset, byte (pwrite(2))
    FileWrite,
    /// pages, surplus pages: the size of the machine's pool of 2 MiB pages, and its limit of surplus pages. Gives the size. On Linux
    /// only where the host's pool may be set, as the calls below.
    PoolSize,
    /// pages of 2 MiB: makes the file of the pool, which all programs have from now on.
    PoolFile,
    /// addr, len, prot, flags, landing; first page (of 4 KiB)
    PoolMap,
    /// bytes
    PoolFileSize,
    /// first page, pages (of 4 KiB)
    PoolFilePunch,
    /// offset: gives a byte, or [`FILE_END`]
    PoolFileRead,
    /// offset, byte
    PoolFileWrite,
}

/// The knobs of huge pages in the argument of [`Call::Knobs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnobBits(pub u64);

impl KnobBits {
    /// How many settings there are.
    pub const COUNT: u64 = 1 << 5;

    /// `enabled`: 0 always, 1 madvise, 2 and 3 never.
    pub fn enabled(self) -> u64 {
        (self.0 & 3).min(2)
    }
    /// Whether every size is set to always, from 16 KiB to 2 MiB.
    pub fn all_sizes(self) -> bool {
        self.0 & 4 != 0
    }
    /// Whether a write to a shared huge page copies all of it.
    pub fn copies_whole(self) -> bool {
        self.0 & 8 != 0
    }
    /// Whether reads may get the huge zero page.
    pub fn zero_page(self) -> bool {
        self.0 & 16 == 0
    }
    /// Whether no memory gets pages above 4 KiB, but by `MADV_COLLAPSE`.
    pub fn is_never(self) -> bool {
        self.enabled() == 2 && !self.all_sizes()
    }
    /// The class that it counts in.
    pub fn class(self) -> String {
        let enabled = ["always", "madvise", "never"][self.enabled() as usize];
        let sizes = if self.all_sizes() { ", all sizes" } else { "" };
        format!("{enabled}{sizes}, {}", if self.copies_whole() { "copy" } else { "split" })
    }
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 27] = [
        Call::Mmap,
        Call::Munmap,
        Call::Mprotect,
        Call::Mremap,
        Call::Brk,
        Call::Madvise,
        Call::Mincore,
        Call::Fork,
        Call::Exit,
        Call::Load,
        Call::Store,
        Call::Exec,
        Call::Knobs,
        Call::ThpDisable,
        Call::MakeFiles,
        Call::MmapFile,
        Call::FileSize,
        Call::FilePunch,
        Call::FileRead,
        Call::FileWrite,
        Call::PoolSize,
        Call::PoolFile,
        Call::PoolMap,
        Call::PoolFileSize,
        Call::PoolFilePunch,
        Call::PoolFileRead,
        Call::PoolFileWrite,
    ];

    /// Whether it is about the files.
    pub fn is_of_file(self) -> bool {
        (Call::MakeFiles..Call::PoolSize).contains(&self)
    }

    /// Whether it is about the pool or its file.
    pub fn is_of_pool(self) -> bool {
        self >= Call::PoolSize
    }
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// Which program does it: 0 is the first, the others are its descendants.
    pub who: u64,
    /// The call.
    pub call: Call,
    /// Its arguments; see [`Call`].
    pub args: [u64; 6],
}

/// Words of an encoded step.
pub const OP_WORDS: usize = 8;
/// Words of an encoded outcome.
pub const OUTCOME_WORDS: usize = 3;

impl Op {
    /// A step of program `who`; missing arguments are 0.
    pub fn new(who: u64, call: Call, given: &[u64]) -> Op {
        let mut args = [0; 6];
        args[..given.len()].copy_from_slice(given);
        Op { who, call, args }
    }
    /// The last argument of [`Call::MmapFile`].
    pub const fn file_and_page(file: u64, page: u64) -> u64 {
        file << 32 | page
    }
    /// As words.
    pub fn encode(&self) -> [u64; OP_WORDS] {
        let [a, b, c, d, e, f] = self.args;
        [self.who, self.call as u64, a, b, c, d, e, f]
    }
    /// From words; `None` if they are none.
    pub fn decode(words: [u64; OP_WORDS]) -> Option<Op> {
        let [who, call, args @ ..] = words;
        Some(Op { who, call: *Call::ALL.get(usize::try_from(call).ok()?)?, args })
    }
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Success, with what the call gave.
    Value(u64),
    /// Success at an address of the callee's choice; since moved to the landing.
    Elsewhere,
    /// Failure.
    Errno(u64),
    /// The access raised a signal.
    Signal {
        /// Its number.
        signo: u64,
        /// `si_code`.
        code: u64,
    },
    /// Something that must not be: see the text in `docs/testing.md`.
    Broken(u64),
}

impl Outcome {
    /// SIGSEGV, nothing mapped.
    pub const MAPERR: Outcome = Outcome::Signal { signo: 11, code: 1 };
    /// SIGSEGV, not allowed.
    pub const ACCERR: Outcome = Outcome::Signal { signo: 11, code: 2 };
    /// SIGBUS, past the end of the object.
    pub const ADRERR: Outcome = Outcome::Signal { signo: 7, code: 2 };
    /// SIGBUS, the memory of the page failed.
    pub const MCEERR: Outcome = Outcome::Signal { signo: 7, code: 4 };

    /// Whether the call did what it was asked.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Value(_) | Outcome::Elsewhere)
    }
    /// As words.
    pub fn encode(&self) -> [u64; OUTCOME_WORDS] {
        match *self {
            Outcome::Value(v) => [0, v, 0],
            Outcome::Elsewhere => [1, 0, 0],
            Outcome::Errno(e) => [2, e, 0],
            Outcome::Signal { signo, code } => [3, signo, code],
            Outcome::Broken(why) => [4, why, 0],
        }
    }
    /// From words.
    pub fn decode(words: [u64; OUTCOME_WORDS]) -> Outcome {
        match words {
            [0, v, _] => Outcome::Value(v),
            [1, ..] => Outcome::Elsewhere,
            [2, e, _] => Outcome::Errno(e),
            [3, signo, code] => Outcome::Signal { signo, code },
            [_, why, _] => Outcome::Broken(why),
        }
    }
    /// The column that it counts in.
    pub fn label(&self) -> String {
        match *self {
            Outcome::Value(_) => "ok".into(),
            Outcome::Elsewhere => "ok elsewhere".into(),
            Outcome::Errno(e) => Errno(e as i32).to_string(),
            Outcome::Signal { signo: 11, code: 1 } => "SEGV_MAPERR".into(),
            Outcome::Signal { signo: 11, code: 2 } => "SEGV_ACCERR".into(),
            Outcome::Signal { signo: 7, code: 2 } => "BUS_ADRERR".into(),
            Outcome::Signal { signo: 7, code: 4 } => "BUS_MCEERR_AR".into(),
            Outcome::Signal { signo, code } => format!("signal {signo} code {code}"),
            Outcome::Broken(why) => format!("broken {why}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Value(v) => write!(f, "{v:#x}"),
            other => f.write_str(&other.label()),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nr = match self.call {
            Call::Exit | Call::MakeFiles => 0,
            Call::Brk | Call::Fork | Call::Exec | Call::Knobs | Call::ThpDisable => 1,
            Call::PoolFile | Call::PoolFileSize | Call::PoolFileRead => 1,
            Call::PoolSize | Call::PoolFilePunch | Call::PoolFileWrite => 2,
            Call::Munmap | Call::Mincore | Call::Load | Call::FileSize | Call::FileRead => 2,
            Call::Mprotect | Call::Madvise | Call::Store | Call::FilePunch | Call::FileWrite => 3,
            Call::Mmap => 5,
            Call::Mremap | Call::MmapFile | Call::PoolMap => 6,
        };
        let args: Vec<String> = self.args[..nr].iter().map(|a| format!("{a:#x}")).collect();
        write!(f, "[{}] {}({})", self.who, format!("{:?}", self.call).to_lowercase(), args.join(", "))
    }
}
