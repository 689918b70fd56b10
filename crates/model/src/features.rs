//! Features that a sequence may use and a kernel may lack, by version, configuration or
//! CPU. They are queried before sequences are generated, and hold for all of them.

use crate::numbers::{MAP_ANONYMOUS, MAP_FIXED, MAP_LOCKED, MAP_PRIVATE, MREMAP_DONTUNMAP};
use crate::op::{Call, Op, PAGE, WINDOW};

/// Something that a kernel may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Guard pages.
    Guards,
    /// Population by advice.
    Populate,
    /// A move that leaves the old place mapped.
    DontUnmap,
    /// A move of several VMAs at once.
    Several,
    /// `PROT_EXEC` alone can be read: the CPU, or the kernel, has no protection
    /// keys.
    ExecAlone,
    /// Room for locked memory ([`LOCKED_PAGES_MAX`]).
    Locked,
    /// Locked memory that becomes writable gets its pages at once.
    LockedWrites,
    /// Locked pages can be dropped.
    DropLocked,
    /// Huge pages, on which sequences do not rely, can be asked for.
    Collapse,
    /// Files in memory, with holes.
    Files,
}

use Feature::*;

/// Pages that a program of a sequence may have locked.
pub const LOCKED_PAGES_MAX: u64 = 1024;

const RIGHTS: u64 = 3;
/// Private, at the given place.
const THERE: u64 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 10] =
        [Guards, Populate, DontUnmap, Several, ExecAlone, Locked, LockedWrites, DropLocked, Collapse, Files];

    /// Its name, and since when kernels have it.
    pub fn name(self) -> &'static str {
        match self {
            Guards => "MADV_GUARD_INSTALL (Linux 6.13)",
            Populate => "MADV_POPULATE_READ (Linux 5.14)",
            DontUnmap => "MREMAP_DONTUNMAP for all memory (Linux 5.13)",
            Several => "mremap of several mappings (Linux 6.17)",
            ExecAlone => "PROT_EXEC that can be read (a CPU without protection keys)",
            Locked => "4 MiB of locked memory (RLIMIT_MEMLOCK)",
            LockedWrites => "locked memory that can become writable",
            DropLocked => "MADV_DONTNEED_LOCKED (Linux 5.18)",
            Collapse => "MADV_COLLAPSE (Linux 6.1)",
            Files => "memfd_create(2), and holes in such files",
        }
    }

    /// Steps; where the kernel has it, the last one succeeds.
    fn probe(self) -> Vec<Op> {
        let map = |at: u64, len: u64, prot: u64, flags: u64| Op::new(0, Call::Mmap, &[at, len, prot, flags]);
        let advise = |len: u64, advice: u64| Op::new(0, Call::Madvise, &[WINDOW, len, advice]);
        let page = map(WINDOW, PAGE, RIGHTS, THERE);
        match self {
            Guards => vec![page, advise(PAGE, 102)],
            Populate => vec![page, advise(PAGE, 22)],
            DontUnmap => {
                let shared = map(WINDOW, PAGE, RIGHTS, THERE ^ 3);
                vec![shared, Op::new(0, Call::Mremap, &[WINDOW, PAGE, PAGE, 5])]
            }
            Several => {
                let other = map(WINDOW + PAGE, PAGE, 1, THERE);
                let to = WINDOW + 8 * PAGE;
                vec![page, other, Op::new(0, Call::Mremap, &[WINDOW, 2 * PAGE, 2 * PAGE, 3, to])]
            }
            ExecAlone => vec![map(WINDOW, PAGE, 4, THERE), Op::new(0, Call::Load, &[WINDOW, 8])],
            Locked => vec![map(WINDOW, LOCKED_PAGES_MAX * PAGE, RIGHTS, THERE | MAP_LOCKED)],
            LockedWrites => {
                let locked = map(WINDOW, PAGE, 1, THERE | MAP_LOCKED);
                vec![locked, Op::new(0, Call::Mprotect, &[WINDOW, PAGE, RIGHTS])]
            }
            // The advice is looked at even where there is nothing to do.
            DropLocked => vec![advise(0, 24)],
            Collapse => vec![advise(0, 25)],
            Files => vec![Op::new(0, Call::MakeFiles, &[]), Op::new(0, Call::FilePunch, &[1, 0, 1])],
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Those that a kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(u32);

/// Features that a new Linux has and the core lacks.
const NOT_IN_CORE: [Feature; 0] = [];

/// The core's features.
impl Default for Features {
    fn default() -> Features {
        NOT_IN_CORE.iter().fold(Features::all(), |features, feature| Features(features.0 & !feature.bit()))
    }
}

impl Features {
    /// All, as a new Linux.
    pub fn all() -> Features {
        Features(Feature::ALL.iter().fold(0, |bits, feature| bits | feature.bit()))
    }

    /// None of them.
    pub fn none() -> Features {
        Features(0)
    }

    /// Asks a kernel: `run` executes a sequence and says whether its last step
    /// succeeded.
    pub fn probe<E>(mut run: impl FnMut(&[Op]) -> Result<bool, E>) -> Result<Features, E> {
        let mut found = Features::none();
        for feature in Feature::ALL {
            if run(&feature.probe())? {
                found.0 |= feature.bit();
            }
        }
        Ok(found)
    }

    /// Whether it is one of them.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Those that are among the others, too.
    pub fn and(self, others: Features) -> Features {
        Features(self.0 & others.0)
    }

    /// Returns the features that only the core has.
    pub fn missing(self) -> impl Iterator<Item = Feature> {
        let core = Features::default();
        Feature::ALL.into_iter().filter(move |feature| core.has(*feature) && !self.has(*feature))
    }

    /// Whether a step asks for nothing else. Features that depend on what is mapped
    /// ([`Several`], [`LockedWrites`]) the model looks after.
    pub fn cover(self, op: &Op) -> bool {
        let [_, _, c, d, ..] = op.args;
        let needs = match op.call {
            call if call.is_of_file() && !self.has(Files) => Files,
            Call::Madvise => match c {
                22 | 23 => Populate,
                24 => DropLocked,
                25 => Collapse,
                102 | 103 => Guards,
                _ => return true,
            },
            Call::Mremap if d & MREMAP_DONTUNMAP != 0 => DontUnmap,
            Call::Mmap if d & MAP_LOCKED != 0 && !self.has(Locked) => Locked,
            Call::Mmap | Call::MmapFile | Call::Mprotect if c & 7 == 4 => ExecAlone,
            _ => return true,
        };
        self.has(needs)
    }
}
