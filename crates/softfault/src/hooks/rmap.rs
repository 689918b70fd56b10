//! The entries that map one frame, found through its family.

use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::pace::Steps;
use crate::rmap::{Cursor, Member};
use crate::section::InSection;
use crate::space::Vm;
use crate::table::walk;
use core::ops::ControlFlow;

/// One entry that maps a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Id of the address space.
    pub space: u64,
    /// The page.
    pub vpn: Vpn,
}

impl<M: Machine> Vm<M> {
    /// Counts the entries that map the private frame `pfn`, and writes as many of them
    /// as there is room for to `into`. Complete at rest; under races an entry that
    /// comes or goes may be missed or named.
    ///
    /// Locks: takes the family's.
    pub fn rmap_anon(&self, pfn: Pfn, into: &mut [Mapping]) -> usize {
        self.assert_outside();
        self.call();
        let mut nr = 0;
        let _ = self.for_each_member(pfn, None, &mut Steps::unbounded(), &mut |frame, index, walk| {
            let member = self.member(frame);
            let mut at = Cursor::Home;
            while at != Cursor::End {
                walk.step()?;
                let section = self.space_section(&member.data.cpus, member.data.id.get());
                let place = self.next_place(section.inside(), member, index, &mut at).map(|(_, vpn)| vpn);
                let found = place.filter(|vpn| self.maps_frame(section.inside(), member, *vpn, pfn));
                drop(section);
                let Some(vpn) = found else { continue };
                if let Some(place) = into.get_mut(nr) {
                    *place = Mapping { space: member.data.id.get(), vpn };
                }
                nr += 1;
            }
            ControlFlow::Continue(())
        });
        nr
    }

    fn maps_frame(&self, inside: InSection<'_>, member: Member<'_>, vpn: Vpn, pfn: Pfn) -> bool {
        walk::mapped(&self.machine, member.data.root_in(inside), vpn, inside)
            .is_some_and(|mapped| mapped.leaf.pfn == pfn)
    }
}
