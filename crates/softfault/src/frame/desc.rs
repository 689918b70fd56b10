//! The descriptor of one frame: 32 bytes.
//!
//! ```text
//! state  kind 0..4 | ORPHAN 4 | MAPPED 5 | REFERENCED 6 | DIRTY 7 | maps 8..44 | pins 44..64
//!        of an object's page: order 8..13 in place of maps | UPTODATE 13 | LOCKED 14 | WAITERS 15 |
//!        WRITEBACK 16: see `folio_lock.rs` | TOUCHED 17 | ASKING 18 | AWAITED 19 | calls 20..36: see `write_back.rs`
//! owner  private: frame of the fork family's founder; shared: of the object;
//!        table: frame of the space it belongs to
//! index  page index 0..52 in the owner | generation 52..64
//! link   free for the owner of the moment: the lock of a leaf table
//! ```
//! A page of an object counts no maps: the object's slot owns its frame. MAPPED, REFERENCED and
//! DIRTY are sticky: an entry was made, used, or written through. A folio's head has them for the
//! whole folio: see `object_folio.rs`.
//!
//! There is no untyped reference count: each reference is a map or a pin, and short readers use a
//! section. So there are no references of unknown origin.
//!
//! All zeroes is a free frame, so zeroed memory needs no initialisation.

use crate::addr::{Access, Order};
use crate::machine::MAX_CPUS;
use crate::sync::{Ordering, Word};
use crate::table::format::Leaf;

const MAPS_SHIFT: u32 = 8;
/// The order of an object's folio is in the bits of the map count, which its pages do not have.
pub(super) const ORDER_SHIFT: u32 = MAPS_SHIFT;
const ORDER_MASK: u64 = 31;
const PINS_SHIFT: u32 = 44;
pub(crate) const MAP_ONE: u64 = 1 << MAPS_SHIFT;
const MAPS_MAX: u64 = (1 << (PINS_SHIFT - MAPS_SHIFT)) - 1;
/// Limit of the map count of a frame, or of huge mappings of a folio, for raises by one.
pub(super) const MAPS_LIMIT: u64 = 1 << 35;
const PIN_ONE: u64 = 1 << PINS_SHIFT;
const PINS_MAX: u64 = (1 << (64 - PINS_SHIFT)) - 1;
/// A page that its object has given up while it was pinned.
pub(super) const ORPHAN: u64 = 1 << 4;
/// Of a page of an object: an entry has named it.
pub(super) const MAPPED: u64 = 1 << 5;
/// An entry of it was accessed.
pub(super) const REFERENCED: u64 = 1 << 6;
/// An entry of it was dirty, or it was written through a handle or a pin.
pub(super) const DIRTY: u64 = 1 << 7;
/// Of a page of an object: its frame has the content.
pub(super) const UPTODATE: u64 = 1 << 13;
/// The content is being read or written.
pub(super) const LOCKED: u64 = 1 << 14;
/// Somebody waits until it is not.
pub(super) const WAITERS: u64 = 1 << 15;
/// The content is being written: with LOCKED to the swap area, without to the file.
pub(super) const WRITEBACK: u64 = 1 << 16;
/// Of a page of an object: it was used since the last mark. Set with REFERENCED and DIRTY, and cleared by a mark alone.
pub(super) const TOUCHED: u64 = 1 << 17;
/// Of a folio of a file: a CPU asks the machine to write it.
pub(super) const ASKING: u64 = 1 << 18;
/// It was taken out of its object during that call, by a CPU that waits for the end of the call.
pub(super) const AWAITED: u64 = 1 << 19;

// The map count never overflows into the pins. Up to MAX_CPUS raises can be between test and
// addition. A split adds without a test: one for each leaf table, and there are fewer tables than
// frame numbers.
const _: () = assert!(MAPS_LIMIT + MAX_CPUS as u64 + (1 << u32::BITS) <= MAPS_MAX);

/// The use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// In no use: its bit in the block is clear, or it is in a frame cache or a spare.
    Free = 0,
    /// Not for allocation: a hole, or metadata.
    Reserved = 1,
    /// A page table.
    Table = 2,
    /// Spaces, tree nodes, objects.
    Meta = 3,
    /// A page of private memory.
    Anon = 4,
    /// A page of a shared object.
    Shared = 5,
    /// The zero frame.
    Zero = 6,
    /// A swapped-out page that is not written yet. Its slot, which `owner` names, owns it.
    Swap = 7,
}

impl FrameKind {
    pub(super) const fn of(bits: u64) -> FrameKind {
        match bits & 15 {
            0 => FrameKind::Free,
            2 => FrameKind::Table,
            3 => FrameKind::Meta,
            4 => FrameKind::Anon,
            5 => FrameKind::Shared,
            6 => FrameKind::Zero,
            7 => FrameKind::Swap,
            _ => FrameKind::Reserved,
        }
    }
}

/// The content of a frame of kind `Meta`: the `index` of its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MetaUse {
    /// A space that is no founder.
    Space = 1,
    Rss = 2,
    Tree = 3,
    ObjectNode = 4,
    /// A founder's frame without members, or the header of an object that has ended: about to be
    /// freed.
    Former = 5,
    /// Set aside for the reaction to pressure.
    Reserve = 6,
    /// Members of objects: see `source/members.rs`.
    Members = 7,
    /// A subpool of a pool of huge pages.
    Subpool = 8,
    /// The header of an object that is there. As for founders, no page has that index.
    Object = -2,
    /// A founder's frame that has references. No page has that index: a frame with it is or was a
    /// founder's, whatever else is read of its descriptor.
    Founder = -1,
}

/// The map count would overflow; refused while a refusal is still possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapsFull;

/// The count of pins would overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinsFull;

/// The first word, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameState(pub u64);

impl FrameState {
    /// The frame's use.
    pub fn kind(self) -> FrameKind {
        FrameKind::of(self.0)
    }
    /// Number of table entries that name it; means nothing of an object's page.
    pub fn nr_maps(self) -> u64 {
        (self.0 >> MAPS_SHIFT) & MAPS_MAX
    }
    /// log2 of the frames of the object's folio that it is the head of.
    pub fn order(self) -> Order {
        Order((self.0 >> ORDER_SHIFT & ORDER_MASK) as u8)
    }
    /// Number of pins.
    pub fn pins(self) -> u64 {
        self.0 >> PINS_SHIFT
    }
    /// Whether an entry has ever named the object's page.
    pub fn was_mapped(self) -> bool {
        self.0 & MAPPED != 0
    }
    /// Whether the object's page was used since the last look.
    pub fn was_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }
    /// Whether the object's page was used since the last mark, as far as is known without a look at entries.
    pub fn was_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }
    /// Whether the object's page was written since it came to the object, or, of a file, since it was written back.
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
    /// Whether it is a folio of an object that is up to date and clean, and that nothing pins.
    pub fn is_clean_folio(self) -> bool {
        self.kind() == FrameKind::Shared && self.is_at_rest() && self.0 & (DIRTY | ORPHAN) == 0 && self.pins() == 0
    }
    /// Whether it is a folio of an object that is up to date and dirty, without pins, and not being written.
    pub(crate) fn is_dirty_folio(self) -> bool {
        self.kind() == FrameKind::Shared && self.is_at_rest() && self.0 & (DIRTY | ORPHAN) == DIRTY && self.pins() == 0
    }
    /// Whether it has left its object: the last pin that goes frees it.
    pub fn is_orphan(self) -> bool {
        self.0 & ORPHAN != 0
    }
    /// Whether an object's page is at rest: its content is valid, and no CPU reads or writes it.
    pub fn is_at_rest(self) -> bool {
        self.0 & (UPTODATE | LOCKED | WAITERS | WRITEBACK | ASKING) == UPTODATE
    }
    /// Whether the folio's content is on its way to its file. The folio may be mapped and stored to meanwhile.
    pub fn is_being_written(self) -> bool {
        self.kind() == FrameKind::Shared && self.0 & LOCKED == 0 && self.0 & (WRITEBACK | ASKING) != 0
    }
    /// Whether pins, a write to its file, or a CPU that waits for the call of one, keep the frames of an object's page in use.
    pub fn is_held(self) -> bool {
        let bits = self.0 & (LOCKED | WRITEBACK | ASKING | AWAITED);
        self.pins() > 0 || self.kind() == FrameKind::Shared && bits & LOCKED == 0 && bits != 0
    }
    /// Whether the content of the object's page is on its way into the frame.
    pub fn is_being_read(self) -> bool {
        self.0 & (UPTODATE | LOCKED | WRITEBACK) == LOCKED
    }
    /// Whether nothing uses the frame: of a private page, which has no order, or of an object's, which has no maps.
    pub(super) fn is_unused(self) -> bool {
        // Of a private page both counts are tested at once: fork and exit ask for each page.
        if self.kind() == FrameKind::Shared { !self.is_held() } else { self.0 >> MAPS_SHIFT == 0 }
    }
}

/// Descriptor of a frame. See the module.
#[repr(C)]
pub struct FrameDesc {
    pub(crate) state: Word,
    pub(crate) owner: Word,
    pub(crate) index: Word,
    pub(crate) link: Word,
}

impl FrameDesc {
    /// The first word.
    #[inline(always)]
    pub fn state(&self) -> FrameState {
        FrameState(self.state.load(Ordering::Acquire))
    }

    /// Gives a frame that the caller owns alone a kind and an owner. The entry that names it
    /// publishes this: its store releases.
    #[inline(always)]
    pub(crate) fn assign(&self, kind: FrameKind, maps: u64, owner: u64, index: u64) {
        self.owner.set(owner);
        self.index.set(index);
        self.state.set(kind as u64 | (maps * MAP_ONE));
    }

    /// Initialises the head of a folio of an object that replaces the equally large folio `from`, which no entry names any
    /// more. The caller owns the frames alone, and no entry names them yet.
    pub(super) fn assign_moved(&self, from: &FrameDesc) {
        self.owner.set(from.owner.get());
        self.index.set(from.index.get());
        let kept = REFERENCED | TOUCHED | DIRTY | UPTODATE | ORDER_MASK << ORDER_SHIFT;
        self.state.set(FrameKind::Shared as u64 | from.state().0 & kept);
    }

    /// Initialises the head of a folio of an object. The caller owns the frames alone; they have
    /// the content.
    pub(crate) fn assign_folio(&self, order: Order, object: u64, index: u64) {
        self.owner.set(object);
        self.index.set(index);
        self.state.set(FrameKind::Shared as u64 | UPTODATE | u64::from(order.0) << ORDER_SHIFT);
    }

    /// Initialises the head of a part of a folio that was cut, with the same flags. The caller owns
    /// the frames alone, and no entry names them yet.
    pub(crate) fn note_as(&self, old: FrameState) {
        self.note(old.0 & (REFERENCED | TOUCHED | DIRTY));
    }

    /// Resets it to free. The caller owns the frame alone.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.state.set(FrameKind::Free as u64);
    }

    /// Raises the map count. The caller owns the lock bit of an entry that names the frame already,
    /// or the slot of the object that has it, so the count cannot be zero or become zero meanwhile.
    /// Returns the state as it was at that moment; a pin changes it by a read-modify-write, too
    /// (I23).
    #[inline]
    pub(crate) fn map_raise(&self) -> Result<FrameState, MapsFull> {
        if self.state().nr_maps() >= MAPS_LIMIT {
            return Err(MapsFull);
        }
        Ok(FrameState(self.state.fetch_add(MAP_ONE, Ordering::AcqRel)))
    }

    /// Raises the map count for the split of a huge entry, which counts for the frame already:
    /// cannot fail.
    pub(super) fn map_raise_split(&self) {
        self.state.fetch_add(MAP_ONE, Ordering::AcqRel);
    }

    /// Lowers the map count. Returns whether it was the last map and there is no pin, so that the
    /// caller now owns the frame alone.
    #[inline(always)]
    pub(crate) fn map_drop(&self) -> bool {
        // All other bits of a private frame are zero.
        if self.state().0 == FrameKind::Anon as u64 | MAP_ONE {
            // Only an entry or a pin can raise the count, and the caller has the last entry: no
            // other CPU can reach the frame.
            return true;
        }
        let after = FrameState(self.state.fetch_sub(MAP_ONE, Ordering::AcqRel).wrapping_sub(MAP_ONE));
        after.is_unused()
    }

    /// Sets MAPPED, and the flags of the access, before an entry names a page of an object. In the
    /// section in which the object's slot was read. Does not write if they are set.
    #[inline]
    pub(crate) fn note_mapped(&self, access: Access) {
        self.note(MAPPED | REFERENCED | TOUCHED | if access == Access::Write { DIRTY } else { 0 });
    }

    /// Sets the mapped flag for an entry that a fault on a neighbour makes: nobody has used the page.
    pub(crate) fn note_mapped_around(&self) {
        self.note(MAPPED);
    }

    /// Sets the flags for the accessed and dirty bits of an entry that is being removed. Before the
    /// page can leave its object.
    #[inline]
    pub(crate) fn note_use(&self, leaf: &Leaf) {
        self.note(if leaf.accessed { REFERENCED | TOUCHED } else { 0 } | if leaf.dirty { DIRTY } else { 0 });
    }

    /// Sets TOUCHED of an object's page, for an accessed bit that is about to be cleared. In the section in which the entry was
    /// read. Other pages have their count of maps in that place.
    pub(crate) fn note_accessed(&self) {
        if self.state().kind() == FrameKind::Shared {
            self.note(TOUCHED);
        }
    }

    /// Sets DIRTY, for a write that was not made through an entry. In the section in which the page was found.
    pub(crate) fn note_written(&self) {
        self.note(DIRTY | TOUCHED);
    }

    /// Sets REFERENCED, for a read that was not made through an entry.
    #[inline]
    pub(crate) fn note_referenced(&self) {
        self.note(REFERENCED | TOUCHED);
    }

    /// Clears REFERENCED of a clean folio, which was `seen` so and may be anything by now.
    pub(crate) fn forget_use(&self, seen: FrameState) {
        if seen.0 & REFERENCED != 0 && seen.is_clean_folio() {
            // A hint: where the state has changed the folio counts as used.
            let _ = self.state.compare_exchange(seen.0, seen.0 & !REFERENCED, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Clears MAPPED and REFERENCED of a folio without entries, which the caller has marked as moving: no CPU can make one.
    pub(crate) fn forget_mapped(&self) {
        self.state.fetch_and(!(MAPPED | REFERENCED), Ordering::AcqRel);
    }

    /// Clears TOUCHED. In a section in which the object's word names the page.
    pub(crate) fn forget_touch(&self) {
        self.state.fetch_and(!TOUCHED, Ordering::AcqRel);
    }

    #[inline]
    fn note(&self, bits: u64) {
        if self.state.load(Ordering::Relaxed) & bits != bits {
            self.state.fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Makes the page an orphan: it has left its object, and no entry names it. Returns whether
    /// nothing pins it, so that the caller now owns the frame alone.
    pub(crate) fn orphan(&self) -> bool {
        FrameState(self.state.fetch_or(ORPHAN, Ordering::AcqRel)).is_unused()
    }

    /// Raises the pin count. The caller is in the section in which it read an entry that names the
    /// frame, so the frame is not reused meanwhile. Returns the state as it was at that moment.
    #[inline]
    pub(crate) fn pin_raise(&self) -> Result<FrameState, PinsFull> {
        // As for mappings.
        if self.state().pins() >= PINS_MAX - MAX_CPUS as u64 {
            return Err(PinsFull);
        }
        Ok(FrameState(self.state.fetch_add(PIN_ONE, Ordering::AcqRel)))
    }

    /// Whether it is pinned, read by a read-modify-write that changes nothing: a pin that this does
    /// not see will see what the caller did before.
    pub(crate) fn has_pins_now(&self) -> bool {
        FrameState(self.state.fetch_or(0, Ordering::AcqRel)).pins() > 0
    }

    /// Lowers the pin count. Returns whether nothing else holds the frame, so that the caller now
    /// owns it alone. An object owns its page until that is an orphan.
    pub(crate) fn pin_drop(&self) -> bool {
        let after = FrameState(self.state.fetch_sub(PIN_ONE, Ordering::AcqRel).wrapping_sub(PIN_ONE));
        let is_ours = match after.kind() {
            FrameKind::Anon => true,
            FrameKind::Shared => after.is_orphan(),
            _ => false,
        };
        is_ours && after.is_unused()
    }

    /// Whether exactly one entry names it. Pins do not matter: a private frame is exclusive when it
    /// is pinned, and fork copies it instead of sharing it (I23).
    pub(crate) fn is_exclusive(&self) -> bool {
        self.state().nr_maps() == 1
    }
}

#[cfg(test)]
#[path = "desc_tests.rs"]
mod tests;
