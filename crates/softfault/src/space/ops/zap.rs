//! Dropping one space's view of pages that an object has lost.

use crate::addr::{ObjectPages, PageRange, Vpn};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma};
use crate::table::take::{Guards, Removal};

impl<M: Machine> AddressSpace<'_, M> {
    /// Takes this space's entries for the pages of the object, by number: the next
    /// access finds what the object has then. Called for each space after
    /// [`discard`](crate::SharedObject::discard) or a smaller
    /// [size](crate::SharedObject::set_size_bytes).
    ///
    /// Any id may be given; one that this space does not map is no error.
    pub fn zap_object(&self, id: ObjectId, object_pages: impl Into<ObjectPages>) {
        if id == ObjectId::NONE {
            return;
        }
        self.vm.call();
        let object_pages = object_pages.into();
        let writer = &self.write_lock();
        let mut at = Vpn(0);
        let mut pace = Pace::new(&self.vm.machine);
        while let Some(vma) = self.tree(writer).next(at).map(|f| f.vma) {
            pace.step();
            at = vma.range.end;
            let part = if vma.object == id { pages_of(&vma, object_pages) } else { None };
            if let Some(range) = part {
                // Tables stay, as for guards: the mapping does, too.
                self.remove_pages(writer, &Removal::keeping_tables(range, Guards::Keep), Why::Discard);
            }
        }
    }
}

/// The part of the VMA that shows these pages of its object.
fn pages_of(vma: &Vma, object_pages: ObjectPages) -> Option<PageRange> {
    let nr_pages = vma.range.nr_pages();
    let first = object_pages.start.saturating_sub(vma.pgoff).min(nr_pages);
    let end = object_pages.end.saturating_sub(vma.pgoff).min(nr_pages);
    (first < end).then(|| PageRange::new(Vpn(vma.range.start.0 + first), Vpn(vma.range.start.0 + end)))
}
