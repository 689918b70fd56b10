//! The memory layout of the tree: root words, and nodes of 1 KiB, four per frame.
//!
//! One of the few modules with `unsafe`, for the promise that these types consist of words. A
//! search reads the header and the ends, which follow it. The rest that a fault needs of its VMA is
//! in one cache line. Reference counts are in other lines, because the fault-locking mode that uses
//! them writes them on every fault.
//!
//! ```text
//! byte  0      32            192                          832        992
//! leaf  header ends[20]      records[20]: start, kind,    refs[20]   spare
//!                            pgoff, index (32 bytes)
//! inner header last_end[24]  first_start[24]  max_gap[24]  displaced[24]  child[24]  spare
//!              32            224              416          608            800        992
//! ```
#![allow(unsafe_code)]

use crate::addr::PAGE_SIZE;
use crate::mem::Words;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::sync::Word;

/// Bytes of a node.
pub(super) const NODE_BYTES: usize = 1024;
/// Nodes of a frame.
pub(super) const NODES_PER_FRAME: u64 = PAGE_SIZE / NODE_BYTES as u64;
/// Most VMAs in a leaf.
pub(super) const LEAF_MAX: usize = 20;
/// Fewest, except in the root. A third and not a half, so that a mapping that is made and removed
/// again and again does not split and join a node each time.
pub(super) const LEAF_MIN: usize = LEAF_MAX / 3;
/// Most children of an inner node.
pub(super) const INNER_MAX: usize = 24;
/// Fewest, but for the root, which has two.
pub(super) const INNER_MIN: usize = INNER_MAX / 3;
/// Most levels: they hold 25 million VMAs with every node as empty as it may be.
/// Bounds the recursion of the edits.
pub(super) const HEIGHT_MAX: u8 = 9;

/// The root words of a tree, part of the address space's words. All zeroes is the empty tree.
#[repr(C)]
#[derive(Default, Debug)]
pub struct TreeRoot {
    /// The root node of the version published last, 0 for none.
    pub(super) root: Word,
    /// The counts of that version.
    pub(super) tally: TallyWords,
    /// The number of the transaction begun last.
    pub(super) txn_serial: Word,
    /// Where nodes come from.
    pub(super) pool: PoolHead,
}

/// The counts of a version; see `Tally`.
#[repr(C)]
#[derive(Default, Debug)]
pub(super) struct TallyWords {
    pub(super) nr_vmas: Word,
    pub(super) nr_data_pages: Word,
    pub(super) nr_locked_pages: Word,
}

/// The free nodes, and the frames of all nodes.
#[repr(C)]
#[derive(Default, Debug)]
pub(super) struct PoolHead {
    /// First free node. Anyone pushes, only the holder of the writer lock pops.
    pub(super) free: Word,
    /// The frame that was added last, 0 for none.
    pub(super) frames: Word,
    /// Free nodes; never more than there are.
    pub(super) nr_free: Word,
    /// Frames.
    pub(super) nr_frames: Word,
    /// Retired nodes that are deferred to the next grace period: first, last, number. Under the
    /// writer lock.
    pub(super) deferred_first: Word,
    pub(super) deferred_last: Word,
    pub(super) nr_deferred: Word,
}

/// The first 32 bytes of each node.
#[repr(C)]
pub(super) struct Header {
    /// Level (bits 8 to 15, 0 is a leaf) and number of entries (bits 0 to 7).
    pub(super) head: Word,
    /// The transaction that made the node. Only it may change the node, until it ends.
    pub(super) stamp: Word,
    /// State (bits 62 and 63) and the next node in that state's list.
    pub(super) link: Word,
    /// In the first node of a frame: the next frame of the pool.
    pub(super) frame_link: Word,
}

/// The part of a VMA that a fault needs.
#[repr(C)]
pub(super) struct Record {
    pub(super) start: Word,
    /// Flags (bits 0 to 31) and the object (bits 32 to 63).
    pub(super) kind: Word,
    pub(super) pgoff: Word,
    pub(super) index: Word,
}

impl Record {
    #[inline(always)]
    pub(super) fn flags(&self) -> VmaFlags {
        VmaFlags::from_bits_retain(self.kind.get() & u64::from(u32::MAX))
    }
    #[inline(always)]
    pub(super) fn object(&self) -> ObjectId {
        ObjectId(self.kind.get() >> 32)
    }
    /// An object's id is the number of a frame, and both are below 2^32.
    pub(super) fn set_kind(&self, flags: VmaFlags, object: ObjectId) {
        debug_assert!(flags.bits() >> 32 == 0 && object.0 >> 32 == 0);
        self.kind.set(object.0 << 32 | flags.bits());
    }
}

/// A node of VMAs.
#[repr(C)]
pub(super) struct Leaf {
    pub(super) header: Header,
    pub(super) ends: [Word; LEAF_MAX],
    pub(super) records: [Record; LEAF_MAX],
    pub(super) refs: [Word; LEAF_MAX],
    spare: [Word; 4],
}

/// A node of nodes.
#[repr(C)]
pub(super) struct Inner {
    pub(super) header: Header,
    /// End of the last VMA below the child.
    pub(super) last_end: [Word; INNER_MAX],
    /// Start of the first VMA below the child.
    pub(super) first_start: [Word; INNER_MAX],
    /// The largest hole between two VMAs below the child, pages.
    pub(super) max_gap: [Word; INNER_MAX],
    /// The interval of the indices of displaced VMAs below the child.
    pub(super) displaced: [Word; INNER_MAX],
    /// The child, tagged: see `NodeId::to_child_word`.
    pub(super) child: [Word; INNER_MAX],
    spare: [Word; 4],
}

// SAFETY: I5: repr(C), words alone.
unsafe impl Words for PoolHead {}
// SAFETY: I5: repr(C), words alone.
unsafe impl Words for TallyWords {}
// SAFETY: I5: repr(C), words, TallyWords and a PoolHead.
unsafe impl Words for TreeRoot {}
// SAFETY: I5: repr(C), words alone.
unsafe impl Words for Header {}
// SAFETY: I5: repr(C), words alone.
unsafe impl Words for Record {}
// SAFETY: I5: repr(C), a Header, Records and words.
unsafe impl Words for Leaf {}
// SAFETY: I5: repr(C), a Header and words.
unsafe impl Words for Inner {}

const _: () = assert!(size_of::<Leaf>() == NODE_BYTES && size_of::<Inner>() == NODE_BYTES);
const _: () = assert!(core::mem::offset_of!(Leaf, records).is_multiple_of(64));
