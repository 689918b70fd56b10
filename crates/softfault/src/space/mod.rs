//! Module `space`: which pages are mapped, by whom, with which rights.
//!
//! An [`AddressSpace`] is one frame of [`SpaceData`], the VMA tree, the page tables, and a line of
//! resident counts for each CPU. Faults read the tree in a section. Operations (`ops/`) change it
//! under the writer lock.
//!
//! An operation that removes something works in this order (I7): publish the new tree, wait until
//! no section uses the old one, take the entries, shoot down, wait again, free.
//!
//! Functions that need the writer lock take its guard, `&Writer` (`lock.rs`). When an operation is
//! refused frames, it drops the lock and starts again if memory could be reclaimed (`reclaim.rs`).
//!
//! This module works on [`Vm`], which is declared in `vm.rs` together with what it
//! embeds.

pub(crate) mod access;
mod active;
mod borrow;
pub(crate) mod cpus;
mod edit;
mod exclusive;
mod exit;
mod grow;
mod huge;
mod limits;
pub(crate) mod lock;
mod members;
mod notify;
pub(crate) mod ops;
pub(crate) mod placement;
pub(crate) mod pools;
mod prepare;
mod query;
mod read;
pub(crate) mod reclaim;
pub(crate) mod removal;
mod rss;
pub(crate) mod split;
pub(crate) mod tree;
pub(crate) mod vm;
pub(crate) mod vma;
pub(crate) mod walker;

pub use active::Active;
pub use vm::Vm;

use crate::account::rss::RssLine;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::Fill;
use crate::frame::{FrameKind, MetaUse, OutOfFrames, Source};
use crate::machine::{Machine, SpaceTag};
use crate::mem::{self, FrameArray};
use crate::rmap::family::FAMILY_OFFSET;
use crate::section::visit::CpusLine;
use crate::sync::{Ordering, Word};
use crate::table::format::{Format, span_of};
pub(crate) use members::{MembersLine, SpaceVisit, Visit};
pub(crate) use rss::RssFrames;
use tree::TreeRoot;

/// The words of an address space, in a frame of their own.
#[repr(C, align(64))]
pub(crate) struct SpaceData {
    /// Never reused.
    pub(crate) id: Word,
    /// Frame of the root table.
    pub(crate) root: Word,
    pub(crate) pad: [Word; 2],
    /// Grows whenever a new tree is published; read by every fault.
    pub(crate) generation: Word,
    pub(crate) tree: TreeRoot,
    /// Held by the operation in progress. See `lock`.
    pub(crate) writer: WriterLine,
    /// Fault-locking mode `global`: the spinlock and the resident count.
    pub(crate) global: GlobalLine,
    /// CPUs that may hold translations or be in a section of this space.
    pub(crate) cpus: CpusLine,
    /// The fork family: see `rmap`.
    pub(crate) family: crate::rmap::family::FamilyData,
    pub(crate) limits: LimitsData,
    /// Subscriptions: see `notify`.
    pub(crate) notify: crate::notify::NotifyLine,
    pub(crate) shot: ShotLine,
    pub(crate) members: MembersLine,
    pub(crate) rss_frames: RssFrames,
    /// Counts of the CPUs that have no line.
    pub(crate) rss_shared: RssLine,
}

/// A line of its own: writers spin on it.
#[repr(C, align(64))]
pub(crate) struct WriterLine {
    pub(crate) word: Word,
    pub(crate) pad: [Word; 7],
}

/// A line of its own, written by every fault of the historic fault-locking modes.
#[repr(C, align(64))]
pub(crate) struct GlobalLine {
    pub(crate) lock: Word,
    pub(crate) rss_anon: Word,
    pub(crate) pad: [Word; 6],
}

/// A line of its own, which nobody writes in a space without walkers.
#[repr(C, align(64))]
pub(crate) struct ShotLine {
    /// Shootdowns since the first walker was made; 0 if none was made. Never reset.
    pub(crate) count: Word,
    pub(crate) pad: [Word; 7],
}

/// Under the writer lock.
#[repr(C, align(64))]
pub(crate) struct LimitsData {
    /// Where the heap begins, bytes; 0 is no heap.
    pub(crate) brk_start: Word,
    /// Where it ends now, bytes.
    pub(crate) brk_end: Word,
    /// Pages in all VMAs (`VmSize`).
    pub(crate) nr_mapped_pages: Word,
    /// Limit of bytes in all VMAs (`RLIMIT_AS`), plus 1; 0 is no limit.
    pub(crate) limit_as: Word,
    /// The same for data (`RLIMIT_DATA`).
    pub(crate) limit_data: Word,
    /// The same for locked VMAs (`RLIMIT_MEMLOCK`).
    pub(crate) limit_memlock: Word,
    /// The same for one mapping that grows down (`RLIMIT_STACK`).
    pub(crate) limit_stack: Word,
    /// Flags that new mappings get besides their own (mlockall(2)).
    pub(crate) lock_future: Word,
    /// 1: no huge pages in this space (`PR_SET_THP_DISABLE`). Read by faults.
    pub(crate) thp_disable: Word,
    /// 1: a mapping may show pages of a pool. Sticky.
    pub(crate) has_pools: Word,
}

pub(crate) const RSS_OFFSET: usize = 2048;
const _: () = assert!(size_of::<SpaceData>() <= RSS_OFFSET);
const _: () = assert!(core::mem::offset_of!(SpaceData, family) == FAMILY_OFFSET);

/// A program's memory. Dropping it frees everything.
///
/// # Panics
///
/// Dropping it panics, before anything is freed, if a CPU is
/// [active](AddressSpace::activate) in it, and in a callback ([`Machine`]).
pub struct AddressSpace<'vm, M: Machine> {
    pub(crate) vm: &'vm Vm<M>,
    pub(crate) frame: Pfn,
    pub(crate) root: Pfn,
    pub(crate) id: u64,
    pub(crate) data: &'vm SpaceData,
    /// Lines of the first CPUs: see `rss`.
    pub(crate) rss: FrameArray<RssLine>,
    /// Frame of the family's founder.
    pub(crate) family: u64,
}

impl<M: Machine> Vm<M> {
    /// An empty address space.
    ///
    /// # Errors
    ///
    /// [`OutOfFrames`]; nothing is kept then.
    pub fn new_space(&self) -> Result<AddressSpace<'_, M>, OutOfFrames> {
        self.call();
        let space = self.with_reclaim(&mut || self.new_space_parts(None))?;
        // Release: a CPU that sees the mark sees a frame that was zeroed.
        self.frames.desc(space.frame).index.store(MetaUse::Founder as u64, Ordering::Release);
        self.enlist(space.frame, space.founder());
        Ok(space)
    }

    /// Creates a space in `family`, or in a family of its own. It is not a member of it yet.
    pub(crate) fn new_space_parts(&self, family: Option<u64>) -> Result<AddressSpace<'_, M>, OutOfFrames> {
        // Held until the space has them: if the second frame is refused, the first one is freed.
        let ((frame, root), _held) = self.obtain_all(&mut |source| self.space_frames(source))?;
        let id = self.next_space_id.fetch_add(1, Ordering::Relaxed);
        self.frames.desc(frame).assign(FrameKind::Meta, 0, id, MetaUse::Space as u64);
        self.frames.desc(root).assign(FrameKind::Table, 0, u64::from(frame.0), u64::from(M::Format::LEVELS - 1));
        let data: &SpaceData = mem::view(&self.machine, frame, 0);
        let family = family.unwrap_or(u64::from(frame.0));
        let rss = AddressSpace::<M>::inline_lines(&self.machine, frame);
        data.family.founder.set(family);
        data.id.set(id);
        data.root.set(u64::from(root.0));
        data.rss_shared.share();
        data.generation.set(1);
        data.limits.limit_stack.set(self.tunables.stack_limit_bytes.saturating_add(1));
        Ok(AddressSpace { vm: self, frame, root, id, data, rss, family })
    }

    /// The frames of the space and of its root table; both or none.
    fn space_frames(&self, source: &Source<'_, M>) -> Result<(Pfn, Pfn), OutOfFrames> {
        let frame = source.frame(Fill::Fixed)?;
        let root = source.frame(Fill::Fixed).inspect_err(|_| self.give_back(frame, Fill::Fixed))?;
        Ok((frame, root))
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The `Vm` that it belongs to.
    pub fn vm(&self) -> &'vm Vm<M> {
        self.vm
    }

    /// The tag that the machine needs.
    pub fn tag(&self) -> SpaceTag {
        SpaceTag { id: self.id, root: self.root }
    }

    /// Frame of the founder of its family.
    pub(crate) fn founder(&self) -> Pfn {
        Pfn(self.family as u32)
    }

    /// Pages of the user part.
    pub(crate) fn user_range() -> PageRange {
        PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES))
    }

    /// Pages up to the end of the last table of the user part: if the user part ends a page
    /// earlier, that page is in no hole, but in the tables.
    pub(crate) fn table_range() -> PageRange {
        let span = span_of::<M::Format>(M::Format::LEVELS - 1);
        PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES.next_multiple_of(span)))
    }
}
