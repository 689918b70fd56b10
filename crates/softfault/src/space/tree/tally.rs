//! Counts of a version of the tree, so that limits cost no walk.
//!
//! Each edit of a transaction updates them; they are published with the version. Locks on entry:
//! the writer lock.

use super::layout::{TallyWords, TreeRoot};
use crate::space::vma::{Vma, VmaFlags};

/// Counts over all VMAs of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// VMAs.
    pub nr_vmas: u64,
    /// Pages of data (`VmData`): see [`VmaFlags::is_data`].
    pub nr_data_pages: u64,
    /// Pages of locked VMAs (`VmLck`).
    pub nr_locked_pages: u64,
}

impl Tally {
    /// Returns the tally of one VMA.
    fn of(vma: &Vma) -> Tally {
        let nr_pages = vma.range.nr_pages();
        let nr_if = |yes: bool| if yes { nr_pages } else { 0 };
        Tally {
            nr_vmas: 1,
            nr_data_pages: nr_if(vma.flags.is_data()),
            nr_locked_pages: nr_if(vma.flags.contains(VmaFlags::LOCKED)),
        }
    }

    /// Adds a VMA.
    pub(super) fn add(&mut self, vma: &Vma) {
        let more = Tally::of(vma);
        self.nr_vmas += more.nr_vmas;
        self.nr_data_pages += more.nr_data_pages;
        self.nr_locked_pages += more.nr_locked_pages;
    }

    /// Subtracts a VMA that was counted.
    pub(super) fn subtract(&mut self, vma: &Vma) {
        let less = Tally::of(vma);
        self.nr_vmas -= less.nr_vmas;
        self.nr_data_pages -= less.nr_data_pages;
        self.nr_locked_pages -= less.nr_locked_pages;
    }
}

impl TreeRoot {
    /// The counts of the version published last. Read without a lock, one word after the other.
    pub(crate) fn tally(&self) -> Tally {
        self.tally.get()
    }
}

impl TallyWords {
    pub(super) fn get(&self) -> Tally {
        Tally {
            nr_vmas: self.nr_vmas.get(),
            nr_data_pages: self.nr_data_pages.get(),
            nr_locked_pages: self.nr_locked_pages.get(),
        }
    }

    pub(super) fn set(&self, tally: Tally) {
        self.nr_vmas.set(tally.nr_vmas);
        self.nr_data_pages.set(tally.nr_data_pages);
        self.nr_locked_pages.set(tally.nr_locked_pages);
    }
}
