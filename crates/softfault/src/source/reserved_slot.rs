//! Words of missing pages to which the object has a claim: see `reserved.rs`.
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | FILLING, RESERVED | a reservation, under `reserving` | nothing |
//! | RESERVED, or nothing | the CPU that has made it that | FILLING, RESERVED |
//! | FILLING | a fault or a writer, in a section, which has the reservation then | RESERVED, or nothing |
//! | FILLING, RESERVED | a smaller size; the end of the object: under `reserving` | RESERVED |
//!
//! Only words above level 0 have the mark: pages of a pool are one word each. The words are translated: in some nodes 0 says
//! RESERVED (`node.rs`).
//!
//! Locks on entry: see the table.

use super::node::{FILLING, Node, RESERVED};
use super::slot::{LostFill, PageSlot};
use crate::addr::Pfn;
use crate::frame::Claim;
use crate::sync::Ordering;

/// Whether the object has a claim to the page, which is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reserving {
    No,
    UnderWay,
    Done,
}

impl PageSlot<'_> {
    fn change_reserved(self, from: u64, to: u64) -> bool {
        let [from, to] = [from, to].map(|word| self.translate(word));
        self.word().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn reserving(self) -> Reserving {
        match self.translate(self.word().load(Ordering::Acquire)) {
            RESERVED => Reserving::Done,
            word if word == RESERVED | FILLING => Reserving::UnderWay,
            _ => Reserving::No,
        }
    }

    /// Begins to reserve the word, unless a page is there, or it is reserved: then it is not written. `false` while a page is being
    /// filled in: the pool may have none for it, and the word is empty again.
    pub(super) fn begin_reserving(self) -> bool {
        let nothing = self.translate(0);
        let mut seen = self.word().load(Ordering::Acquire);
        if seen == nothing {
            let begun = FILLING | RESERVED;
            match self.word().compare_exchange(nothing, begun, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        seen != FILLING
    }

    /// Puts a node in this place, which is empty unless another CPU was first, and begins to reserve pages of it.
    pub(super) fn begin_reserving_node(self, node: Pfn) -> Result<(), LostFill> {
        let under_way = Node::word_under_way(node);
        let done = self.word().compare_exchange(0, under_way, Ordering::AcqRel, Ordering::Acquire);
        done.map(|_| ()).map_err(|_| LostFill)
    }

    /// The node of which pages are being reserved, if this is its word.
    pub(super) fn node_under_way(self) -> Option<Pfn> {
        Node::under_way(self.word().load(Ordering::Acquire))
    }

    /// Ends that. Whoever finds the word waits for this store.
    pub(super) fn end_reserving_node(self, node: Node) {
        self.word().store(node.to_word(), Ordering::Release);
    }

    /// Ends a reservation that was begun. Other words are not written: each has a line that some CPU uses.
    pub(super) fn end_reserving(self, claim: Claim) {
        if self.reserving() == Reserving::UnderWay {
            self.change_reserved(FILLING | RESERVED, word_of(claim));
        }
    }

    /// Begins to end the reservation of the page. Returns whether it had one.
    pub(super) fn begin_unreserving(self) -> bool {
        self.reserving() == Reserving::Done && self.change_reserved(RESERVED, FILLING | RESERVED)
    }

    /// Claims the place of a page that is one word. The caller has the object's reservation for it.
    pub(super) fn claim_reserved(self) -> Result<Claim, LostFill> {
        if self.change_reserved(RESERVED, FILLING) {
            return Ok(Claim::Reserved);
        }
        if self.change_reserved(0, FILLING) { Ok(Claim::Nothing) } else { Err(LostFill) }
    }

    /// Gives the place back, with the reservation that it had.
    pub(super) fn unclaim(self, claim: Claim) {
        self.word().store(self.translate(word_of(claim)), Ordering::Release);
    }
}

/// The word of a missing page.
fn word_of(claim: Claim) -> u64 {
    match claim {
        Claim::Reserved => RESERVED,
        Claim::Nothing => 0,
    }
}
