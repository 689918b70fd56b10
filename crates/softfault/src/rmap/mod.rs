//! Module `rmap`: from a frame to the entries that map it.
//!
//! Spaces that descend from one another by fork form a *family*, named by the
//! frame of its founder. A private frame's descriptor names the family and the
//! page index, which mremap(2) does not change; so the entries that may map it
//! are, in each member, those of VMAs in which the index falls. Most VMAs lie
//! where they were first mapped, and there the index is the page number.
//!
//! Compared with Linux's trees of `anon_vma`: a first write allocates nothing, and fork copies
//! nothing but one list link. But a walk visits all members of the family, including those that
//! never had the page, which is slow in families of thousands. In each member it looks up the page
//! at the index, and searches the VMAs that mremap(2) has displaced (`space/tree/displaced.rs`):
//! log(VMAs) each, as long as the moves have kept the order of what they moved.
//!
//! Locks: the family's, and under it nothing but sections. There is no lock of all families:
//! references keep a family's data alive (`family`). `take` makes the entries of a frame `Busy`,
//! for operations that change what they map.

mod copies;
pub(crate) mod family;
mod object;
mod pool_copies;
mod pool_owner;
mod take;

pub(crate) use pool_owner::MayTake;
pub(crate) use take::{TakeEnded, TakenEntry, TakenHuge};

use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::section::InSection;
use crate::space::SpaceData;
use crate::space::Vm;
use crate::space::tree::Displaced;
use crate::space::vma::Vma;
use crate::table::format::Format;

/// A space, as a walk meets it: in place as long as the family's lock is held.
#[derive(Clone, Copy)]
pub(crate) struct Member<'vm> {
    frame: Pfn,
    pub(crate) data: &'vm SpaceData,
}

/// How far the search for the places of an index in one member is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// At the page whose number is the index: where most pages are.
    Home,
    /// At the displaced VMAs that end after this page.
    Displaced(Vpn),
    End,
}

impl<M: Machine> Vm<M> {
    pub(crate) fn member(&self, frame: Pfn) -> Member<'_> {
        Member { frame, data: crate::mem::view(&self.machine, frame, 0) }
    }

    /// Makes one step of the search: finds the next VMA that has the page of that index,
    /// and its place; `None` may mean that the cursor has only gone on. In a new section of the
    /// member for each step: a tree may be large, and a section short.
    pub(crate) fn next_place(
        &self,
        inside: InSection<'_>,
        member: Member<'_>,
        index: u64,
        at: &mut Cursor,
    ) -> Option<(Vma, Vpn)> {
        let tree = member.data.tree_in(&self.machine, inside);
        match *at {
            Cursor::Home => {
                *at = Cursor::Displaced(Vpn(0));
                let home = Some(Vpn(index)).filter(|vpn| vpn.0 < M::Format::USER_PAGES)?;
                let found = tree.lookup(home)?.vma;
                (found.page_at(index) == Some(home)).then_some((found, home))
            }
            Cursor::Displaced(from) => match tree.next_displaced(from, index) {
                Displaced::Found(vma) => {
                    *at = Cursor::Displaced(vma.range.end);
                    vma.page_at(index).map(|vpn| (vma, vpn))
                }
                Displaced::Cut(from) => {
                    *at = Cursor::Displaced(from);
                    None
                }
                Displaced::End => {
                    *at = Cursor::End;
                    None
                }
            },
            Cursor::End => None,
        }
    }
}
