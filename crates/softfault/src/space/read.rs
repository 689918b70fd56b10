//! Reads of the VMA tree and the tables of a space, by holders of a token.
//!
//! The tree is read under the writer lock or in a section, tables likewise. Each
//! function takes the token: `&Writer`, [`InSection`], or either of them as
//! [`KeepsTables`]. Debug builds check that it is of this space.
//!
//! ```text
//! writer lock   tree(writer)      any version, edits; 'vm
//! section       tree_in(inside)   the version published last; ends with the section
//! either        walk(kept, vpn)   an entry; Busy keeps it longer
//! ```

use super::lock::Writer;
use super::tree::{Snapshot, Tree};
use super::{AddressSpace, SpaceData};
use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::section::{InSection, KeepsTables};
use crate::sync::Ordering;
use crate::table::walk::{self, Mapped, Walk};

impl SpaceData {
    /// The last published version of the tree.
    #[inline(always)]
    pub(crate) fn tree_in<'s, M: Machine>(&'s self, machine: &'s M, inside: InSection<'s>) -> Snapshot<'s, M> {
        inside.assert_of(&self.cpus);
        Tree::new(machine, &self.tree).snapshot()
    }

    /// Frame of the root table. The caller keeps the tables.
    pub(crate) fn root_in(&self, kept: impl KeepsTables) -> Pfn {
        kept.assert_of(&self.cpus);
        Pfn(self.root.load(Ordering::Relaxed) as u32)
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The tree, for the holder of the writer lock.
    #[inline(always)]
    pub(crate) fn tree(&self, writer: &Writer<'_, M>) -> Tree<'vm, M> {
        self.assert_writer(writer);
        Tree::new(&self.vm.machine, &self.data.tree)
    }

    /// The last published version of the tree, for a CPU in a section of the space.
    #[inline(always)]
    pub(crate) fn tree_in<'s>(&'s self, inside: InSection<'s>) -> Snapshot<'s, M> {
        self.data.tree_in(&self.vm.machine, inside)
    }

    /// Walks to the entry of a page.
    #[inline(always)]
    pub(crate) fn walk(&self, kept: impl KeepsTables, vpn: Vpn) -> Walk<'vm, M::Format> {
        kept.assert_of(&self.data.cpus);
        walk::walk(&self.vm.machine, self.root, vpn, kept)
    }

    /// The mapping of a page, at any level; `None` for anything else.
    #[inline]
    pub(crate) fn mapped(&self, kept: impl KeepsTables, vpn: Vpn) -> Option<Mapped<'vm, M::Format>> {
        kept.assert_of(&self.data.cpus);
        walk::mapped(&self.vm.machine, self.root, vpn, kept)
    }
}
