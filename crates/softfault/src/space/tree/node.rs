//! Names, headers and searches of nodes.
//!
//! Neighbours: `layout` has the words, `slots` the entries.

use super::layout::{Header, Inner, Leaf, NODE_BYTES, NODES_PER_FRAME};
use crate::addr::Pfn;
use crate::sync::Word;

/// Names a node: frame number * 4 + place in the frame; 0 is none, because
/// frame 0 never holds nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(u64);

/// Tags a word as a child's name. No word of a leaf can have it: page numbers, frame numbers, flags
/// and counts are far smaller. So a stale reader that takes a leaf for the inner node that it was
/// before finds no child in it, and every name that it finds is that of a node of this pool.
const CHILD_TAG: u64 = 0xc41d << 48;
const TAG_MASK: u64 = 0xffff << 48;

impl NodeId {
    pub(super) const NONE: NodeId = NodeId(0);

    pub(super) fn new(pfn: Pfn, slot: u64) -> NodeId {
        NodeId(u64::from(pfn.0) * NODES_PER_FRAME + slot)
    }
    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
    #[inline(always)]
    pub(super) fn pfn(self) -> Pfn {
        Pfn((self.0 / NODES_PER_FRAME) as u32)
    }
    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        (self.0 % NODES_PER_FRAME) as usize * NODE_BYTES
    }
    #[inline(always)]
    pub(super) fn from_root_word(word: u64) -> NodeId {
        NodeId(word)
    }
    pub(super) fn to_root_word(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(super) fn from_child_word(word: u64) -> Option<NodeId> {
        (word & TAG_MASK == CHILD_TAG).then_some(NodeId(word & !TAG_MASK))
    }
    pub(super) fn to_child_word(self) -> u64 {
        self.0 | CHILD_TAG
    }
}

/// The state of a node, in the top bits of its link word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In a version, published or not.
    Live,
    /// On the pool's list.
    Free,
    /// In the published version or one just before it, and not in the next.
    Retired,
    /// None of these.
    Unknown,
}

impl Header {
    /// Level of the node; 0 is a leaf.
    #[inline(always)]
    pub(super) fn level(&self) -> u8 {
        (self.head.get() >> 8) as u8
    }
    /// Level, and number of entries as the word says, in one load.
    #[inline(always)]
    pub(super) fn level_and_len(&self) -> (u8, usize) {
        let head = self.head.get();
        ((head >> 8) as u8, (head & 0xff) as usize)
    }
    /// Number of entries as the word says; a reader has to bound it.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        (self.head.get() & 0xff) as usize
    }
    pub(super) fn set_len(&self, len: usize) {
        self.head.set((self.head.get() & !0xff) | len as u64);
    }
    pub(super) fn set_empty(&self, level: u8) {
        self.head.set(u64::from(level) << 8);
    }
    pub(super) fn state(&self) -> (State, NodeId) {
        let word = self.link.get();
        let state = match word >> 62 {
            0 => State::Live,
            1 => State::Free,
            2 => State::Retired,
            _ => State::Unknown,
        };
        (state, NodeId(word & !(3 << 62)))
    }
    pub(super) fn set_state(&self, state: State, next: NodeId) {
        self.link.set((state as u64) << 62 | next.0);
    }
}

/// A node by its kind.
pub(super) enum NodeRef<'a> {
    Leaf(&'a Leaf),
    Inner(&'a Inner),
}

/// An end beyond all pages. Places without an entry have it, so that a search need not know the
/// number of entries.
pub(super) const NO_END: u64 = u64::MAX;

/// How many of the ascending `words` are at most `vpn`.
///
/// Compares the last word of each stride first, then one stride: 8 or 9 loads of 20 or 24. No
/// branch depends on them: it would be unpredictable, and without it the loads of a cold node
/// overlap.
#[inline(always)]
pub(super) fn nr_up_to<const N: usize>(words: &[Word; N], vpn: u64) -> usize {
    // 20 words: 4, 9 and 14, then five; 24: 5, 11 and 17, then six.
    let stride = N.div_ceil(4);
    let up_to = |i: usize| usize::from(words[i].get() <= vpn);
    let from = stride * (up_to(stride - 1) + up_to(2 * stride - 1) + up_to(3 * stride - 1));
    from + (0..N - 3 * stride).map(|i| up_to(from + i)).sum::<usize>()
}

impl Inner {
    /// The child at `i`, or [`NodeId::NONE`] if the word is no child's name.
    #[inline(always)]
    pub(super) fn child(&self, i: usize) -> NodeId {
        NodeId::from_child_word(self.child[i].get()).unwrap_or(NodeId::NONE)
    }
}
