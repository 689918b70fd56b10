//! An address space that is obviously right: a map of pages.
//!
//! It has no VMAs, tables or frames: each page has rights and content. Some outcomes on
//! Linux depend on VMA boundaries, and so on history, which the model does not have. It
//! answers [`Unknown`] for such a step, and the generator chooses another one.
//!
//! `place.rs` has the calls that map, `remap.rs` mremap(2), `advise.rs`
//! madvise(2), `access.rs` what programs do and fork(2), `huge.rs` what huge pages
//! leave to the system, `pool.rs` pages of a pool (`pool_calls.rs`, `pool_moves.rs`, `pool_file.rs`: the calls about them), `files.rs` the files, `machine.rs` what a machine does to pages between steps.

mod access;
mod advise;
mod files;
mod huge;
mod machine;
mod place;
mod pool;
mod pool_calls;
mod pool_file;
mod pool_linux;
mod pool_moves;
mod remap;

use self::huge::HugeKnown;
use self::pool::{Pool, PoolPage};
use crate::features::{Feature, Features, LOCKED_PAGES_MAX};
use crate::numbers::{MADV_COLLAPSE, MAP_HUGETLB};
use crate::op::{Call, HEAP, KnobBits, Op, Outcome, PAGE, TASK_SIZE};
use softfault::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// `PROT_READ`.
pub const READ: u64 = 1;
/// `PROT_WRITE`.
pub const WRITE: u64 = 2;
/// `PROT_EXEC`.
pub const EXEC: u64 = 4;

/// The words of a page that are not zero, by offset in bytes.
pub(crate) type Content = BTreeMap<u16, u64>;

/// State of the memory of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Present {
    /// Nothing yet: zeroes when it is touched.
    #[default]
    No,
    /// Zeroes that were read.
    Zero,
    /// Memory of its own.
    Data,
    /// Zeroes that are there or not, the system's choice: a fork need not copy
    /// them, and a page may have come with its neighbours.
    Maybe,
    /// Its memory failed: each access is told.
    Failed,
}

/// Properties that are fixed when a page is mapped, or changed by a call for a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attrs {
    pub(crate) prot: u64,
    /// The shared object and the page's index in it.
    pub(crate) object: Option<usize>,
    /// The file that is shown where a private mapping has no copy, and the page's index in it.
    pub(crate) behind: Option<usize>,
    pub(crate) dont_fork: bool,
    pub(crate) wipe_on_fork: bool,
    /// `MADV_NORMAL`, `RANDOM`, `SEQUENTIAL`: splits VMAs and does nothing else.
    pub(crate) pattern: u64,
    /// `MAP_GROWSDOWN`.
    pub(crate) grows: bool,
    /// `MAP_LOCKED`.
    pub(crate) locked: bool,
    /// Other flags that split VMAs.
    pub(crate) other: u64,
}

/// A mapped page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) attrs: Attrs,
    /// Pages with one number next to each other are surely one VMA; with two
    /// numbers and equal attributes nobody knows.
    pub(crate) piece: u64,
    /// Index in the object.
    pub(crate) index: u64,
    pub(crate) present: Present,
    pub(crate) content: Content,
    pub(crate) guard: bool,
    /// `MADV_FREE` since the last store: the system may take it at any time.
    pub(crate) lazy: bool,
}

impl Page {
    /// The object whose page is shown.
    pub(crate) fn shown(&self) -> Option<usize> {
        let has_copy = matches!(self.present, Present::Data | Present::Failed);
        self.attrs.object.or(self.attrs.behind.filter(|_| !has_copy))
    }

    /// The same mapping with nothing in it.
    pub(crate) fn emptied(&self) -> Page {
        Page { attrs: self.attrs.clone(), piece: self.piece, index: self.index, ..Page::default() }
    }
}

/// A shared object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub(crate) nr_pages: u64,
    pub(crate) pages: BTreeMap<u64, Content>,
    /// Pages whose memory failed.
    pub(crate) failed: BTreeSet<u64>,
    /// Pages that nobody touched may be resident all the same.
    pub(crate) may_be_full: bool,
    /// Bytes; of files alone.
    pub(crate) size_bytes: Option<u64>,
    /// The system chooses which pages are resident.
    pub(crate) is_read: bool,
}

impl Attrs {
    /// Whether it maps an object, shared or privately.
    pub(crate) fn has_object(&self) -> bool {
        self.object.is_some() || self.behind.is_some()
    }
}

/// One program's memory.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// Huge pages are refused (prctl(2)).
    pub(crate) thp_disable: bool,
    pub(crate) pages: BTreeMap<u64, Page>,
    /// Pages of the pool, by address / 2 MiB. Where they are, `pages` has none.
    pub(crate) pool: BTreeMap<u64, PoolPage>,
    /// End of the heap, bytes.
    pub(crate) brk: u64,
}

/// All programs of a sequence.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) spaces: BTreeMap<u64, Space>,
    pub(crate) objects: Vec<Object>,
    last_piece: u64,
    features: Features,
    /// The first address that programs cannot have.
    pub task_size: u64,
    huge: huge::HugeKnown,
    pool: Option<Pool>,
    /// Pages go to the swap area and come back.
    has_pager: bool,
}

/// The outcome that a step has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The outcome.
    pub outcome: Outcome,
    /// Bits of its value that are certain.
    pub certain: u64,
    /// Whether the call may as well fail in one of the ways of `MADV_COLLAPSE`:
    /// what it did is seen in what is resident.
    pub may_refuse: bool,
    /// The counts of the pool afterwards, where there is one.
    pub pool: Option<PoolCounts>,
}

/// The counts of a pool, as [`softfault::HugetlbCounts`] has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// All its pages.
    pub nr: u64,
    /// Those that nobody has.
    pub free: u64,
    /// Of these, those that are promised.
    pub reserved: u64,
    /// Pages beyond its size.
    pub surplus: u64,
}

/// EAGAIN, ENOMEM, EBUSY, EINVAL
const REFUSALS: [Errno; 4] = [Errno::EAGAIN, Errno::ENOMEM, Errno::EBUSY, Errno::EINVAL];

impl Expected {
    /// This outcome and no other.
    pub(crate) fn certain(outcome: Outcome) -> Expected {
        Expected { outcome, certain: u64::MAX, may_refuse: false, pool: None }
    }

    /// The same beside other threads that map memory: a fault of theirs may fill a batch of pages, of which some are in a mapping
    /// that merged with theirs. So what is absent may be resident.
    pub fn beside_others(self, call: Call) -> Expected {
        match (call, self.outcome) {
            (Call::Mincore, Outcome::Value(bits)) => Expected { certain: self.certain & bits, ..self },
            _ => self,
        }
    }

    /// Whether `seen` is as expected.
    pub fn allows(&self, seen: Outcome) -> bool {
        match (self.outcome, seen) {
            (Outcome::Value(a), Outcome::Value(b)) => (a ^ b) & self.certain == 0,
            (_, Outcome::Errno(errno)) if self.may_refuse => REFUSALS.iter().any(|refusal| refusal.0 as u64 == errno),
            (a, b) => a == b,
        }
    }
}

/// The step depends on what the model does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown;

pub(crate) type Answer = Result<Outcome, Unknown>;

pub(crate) const ENOMEM: Outcome = Outcome::Errno(Errno::ENOMEM.0 as u64);
pub(crate) const EHWPOISON: Outcome = Outcome::Errno(Errno::EHWPOISON.0 as u64);
pub(crate) const EFAULT: Outcome = Outcome::Errno(Errno::EFAULT.0 as u64);
pub(crate) const EEXIST: Outcome = Outcome::Errno(Errno::EEXIST.0 as u64);
pub(crate) const EINVAL: Outcome = Outcome::Errno(Errno::EINVAL.0 as u64);
pub(crate) const OK: Outcome = Outcome::Value(0);

impl Default for Model {
    fn default() -> Model {
        Model::new(Features::default())
    }
}

impl Model {
    /// One program without memory, on a kernel that has these features; what
    /// another one does is unknown.
    pub fn new(features: Features) -> Model {
        let first = Space { thp_disable: false, pages: BTreeMap::new(), pool: BTreeMap::new(), brk: HEAP };
        Model {
            spaces: BTreeMap::from([(0, first)]),
            objects: Vec::new(),
            last_piece: 0,
            features,
            task_size: TASK_SIZE,
            huge: HugeKnown::default(),
            pool: None,
            has_pager: false,
        }
    }

    /// The same where user addresses end there.
    pub fn with_task_size(self, task_size: u64) -> Model {
        Model { task_size, ..self }
    }

    /// Does the step and says what has to come of it. After [`Unknown`] the model
    /// is as before.
    pub fn apply(&mut self, op: &Op) -> Result<Expected, Unknown> {
        if !self.spaces.contains_key(&op.who) || self.is_other_on_linux(op) {
            return Err(Unknown);
        }
        let expected = self.apply_call(op)?;
        self.tidy_pool();
        Ok(Expected { pool: self.pool_counts(), ..expected })
    }

    fn apply_call(&mut self, op: &Op) -> Result<Expected, Unknown> {
        let [a, b, c, d, e, f] = op.args;
        let certain = Expected::certain;
        let who = op.who;
        if let Some(answer) = self.in_pool(op) {
            return answer.map(certain);
        }
        match op.call {
            Call::Mmap if d & MAP_HUGETLB != 0 => self.mmap_pool(who, [a, b, c, d, e]),
            Call::Mmap => self.mmap(who, [a, b, c, d, e], None),
            Call::MmapFile => self.mmap_file(who, op),
            Call::MakeFiles => self.make_files(),
            Call::FileSize => self.set_file_size(a, b),
            Call::FilePunch => self.punch_file(a, b, c),
            Call::FileRead => self.read_file(a, b),
            Call::FileWrite => self.write_file(a, b, c),
            Call::Munmap => self.munmap(who, a, b),
            Call::Mprotect => self.mprotect(who, a, b, c),
            Call::Mremap => self.mremap(who, [a, b, c, d, e, f]),
            Call::Brk => self.brk(who, a),
            Call::Madvise if c == MADV_COLLAPSE => return self.collapse(who, a, b),
            Call::Madvise => self.madvise(who, a, b, c),
            Call::Mincore => return self.mincore(who, a, b),
            Call::Fork => self.fork(who, a),
            Call::Exit => self.exit(who),
            Call::Load => self.load(who, a, b),
            Call::Store => self.store(who, a, b, c),
            Call::Exec => self.exec(who, a),
            Call::Knobs => self.knobs(KnobBits(a)),
            Call::ThpDisable => self.set_thp_disable(who, a),
            Call::PoolSize => self.set_pool(a, b),
            Call::PoolFile => self.make_pool_file(a),
            Call::PoolMap => self.map_pool_file(who, op.args),
            Call::PoolFileSize => self.set_pool_file_size(a),
            Call::PoolFilePunch => self.punch_pool_file(a, b),
            Call::PoolFileRead => self.read_pool_file(a),
            Call::PoolFileWrite => self.write_pool_file(a, b),
        }
        .map(certain)
    }

    /// Programs that are alive.
    pub fn programs(&self) -> impl Iterator<Item = u64> + '_ {
        self.spaces.keys().copied()
    }

    pub(crate) fn space(&self, who: u64) -> &Space {
        &self.spaces[&who]
    }

    pub(crate) fn space_mut(&mut self, who: u64) -> &mut Space {
        self.spaces.get_mut(&who).expect("checked in apply")
    }

    pub(crate) fn new_piece(&mut self) -> u64 {
        self.last_piece += 1;
        self.last_piece
    }
}

impl Space {
    /// Whether all pages `first..end` are mapped.
    pub(crate) fn is_full(&self, first: u64, end: u64) -> bool {
        self.pages.range(first..end).count() as u64 == end - first
    }

    /// Whether so many more pages could be locked.
    pub(crate) fn can_lock(&self, nr_pages: u64) -> Result<(), Unknown> {
        let nr_locked = self.pages.values().filter(|page| page.attrs.locked).count() as u64;
        if nr_locked + nr_pages <= LOCKED_PAGES_MAX { Ok(()) } else { Err(Unknown) }
    }

    /// Whether none is.
    pub(crate) fn is_hole(&self, first: u64, end: u64) -> bool {
        self.pages.range(first..end).next().is_none() && !self.has_pool_in(first, end)
    }

    /// Whether `page` and the one before it are surely one VMA, surely two, or
    /// nobody knows. Both are mapped.
    pub(crate) fn joined(&self, page: u64) -> Result<bool, Unknown> {
        let (a, b) = (&self.pages[&(page - 1)], &self.pages[&page]);
        match (a.piece == b.piece, a.attrs == b.attrs) {
            (true, true) => Ok(true),
            (_, false) => Ok(false),
            (false, true) => Err(Unknown),
        }
    }
}

/// Bytes rounded up to pages; `None` if that wraps to nothing.
pub(crate) fn page_align(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(PAGE)
}

pub(crate) fn is_aligned(addr: u64) -> bool {
    addr.is_multiple_of(PAGE)
}

/// First page and end page of a range that lies in user memory.
pub(crate) fn page_range(addr: u64, len: u64) -> (u64, u64) {
    debug_assert!(addr.checked_add(len).is_some());
    (addr / PAGE, (addr + len).div_ceil(PAGE))
}

/// Questions of the generator.
impl Model {
    /// A mapped range of at most `nr` pages at or behind `from`, else before it.
    pub(crate) fn mapped_near(&self, who: u64, from: u64, nr: u64) -> Option<(u64, u64)> {
        let pages = &self.space(who).pages;
        let (first, _) = pages.range(from..).next().or_else(|| pages.range(..from).next_back())?;
        let run = pages.range(*first..*first + nr).zip(*first..).take_while(|((number, _), i)| *number == i).count();
        Some((*first, run as u64))
    }

    /// Whether no page of the program from `first` up to `end` is mapped.
    pub fn is_hole(&self, who: u64, first: u64, end: u64) -> bool {
        self.space(who).is_hole(first, end)
    }

    /// Addresses of words that were written, at most `nr`.
    pub(crate) fn written_pages(&self, who: u64, nr: usize) -> Vec<u64> {
        let written = |(number, page): (&u64, &Page)| {
            let content = match page.shown() {
                Some(object) => self.objects[object].pages.get(&page.index)?,
                None => &page.content,
            };
            content.keys().next_back().map(|offset| number * PAGE + u64::from(*offset))
        };
        let all: Vec<u64> = self.space(who).pages.iter().filter_map(written).collect();
        let step = all.len().div_ceil(nr).max(1);
        all.into_iter().step_by(step).collect()
    }
}

#[cfg(test)]
mod tests;
