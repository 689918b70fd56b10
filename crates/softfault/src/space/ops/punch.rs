//! `MADV_REMOVE`: holes in the objects that are mapped in a range.
//!
//! ```text
//! VMA of an object, shared    section: may the program store there? the object is kept
//! outside                     Machine::punch_hole: storage ─▶ ObjectHole::discard ─▶ pages leave the object and all mappings
//! ```
//! Private copies stay, as on Linux, but those of pages of a pool (`pool_hole.rs`). Nothing is held while the machine is
//! asked: what another thread has mapped meanwhile at the same place keeps its pages, since the hole is in the object that was found.
//!
//! Locks on entry: none, no section.

use super::MadviseError;
use crate::account::Event;
use crate::addr::{ObjectPages, PageRange};
use crate::machine::{HoleRefused, Machine, ObjectHole, ask};
use crate::pace::Pace;
use crate::source::keep::KeptObject;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma, VmaFlags};

/// The pages of one VMA, and their object.
struct Part<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    pages: ObjectPages,
    places: PageRange,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes holes, VMA by VMA, up to the first that refuses.
    pub(super) fn punch_holes(&self, range: PageRange) -> Result<(), MadviseError> {
        self.vm.assert_outside();
        let (mut at, mut has_gap) = (range.start, false);
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.search();
            let part = self.part_to_punch(PageRange::new(at, range.end))?;
            has_gap |= part.places.start > at;
            at = part.places.end;
            self.punch(&part)?;
        }
        if has_gap { Err(MadviseError::NotMapped) } else { Ok(()) }
    }

    /// The first VMA with a page of the range.
    fn part_to_punch(&self, range: PageRange) -> Result<Part<'vm, M>, MadviseError> {
        let section = self.section();
        let found = self.tree_in(section.inside()).next(range.start).map(|found| found.vma);
        let vma = found.filter(|vma| vma.range.start < range.end).ok_or(MadviseError::NotMapped)?;
        self.may_be_punched(&vma)?;
        let places = vma.range.intersect(&range);
        let start = vma.pgoff_of(places.start);
        let pages = ObjectPages { start, end: start + places.nr_pages() };
        Ok(Part { object: self.vm.object_keep_found(section.inside(), vma.object), pages, places })
    }

    fn may_be_punched(&self, vma: &Vma) -> Result<(), MadviseError> {
        match vma.flags {
            flags if flags.contains(VmaFlags::LOCKED) => Err(MadviseError::WrongMapping),
            flags if flags.intersects(VmaFlags::FILE | VmaFlags::NEVERWRITE) => Err(MadviseError::NotShared),
            flags if !flags.contains(VmaFlags::SHARED) || vma.object == ObjectId::NONE => {
                Err(MadviseError::WrongMapping)
            }
            // The embedder that installs its pages makes its holes.
            _ if self.vm.is_explicit(vma.object) => Err(MadviseError::NoHoles),
            _ => Ok(()),
        }
    }

    fn punch(&self, part: &Part<'vm, M>) -> Result<(), MadviseError> {
        let (vm, Part { object, pages, .. }) = (self.vm, part);
        let discard = &mut || vm.object_discard(object.id, *pages);
        let hole = ObjectHole { object: object.id, file: vm.object_file(object.id), pages: *pages, discard };
        ask::punch_hole(&vm.machine, hole).map_err(|refused| match refused {
            HoleRefused::Unsupported => MadviseError::NoHoles,
            HoleRefused::Sealed => MadviseError::Sealed,
            HoleRefused::NotWritten => MadviseError::NotWritten,
        })?;
        vm.count(Event::ObjectHole, part.places.nr_pages());
        Ok(())
    }
}
