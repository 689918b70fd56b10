//! Ageing: which pages were used, by the space's own tables or a subscriber's.

use super::notice::Notice;
use crate::addr::{PAGE_SIZE, PageRange, Pfn, Vpn};
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Format};
use crate::table::take::{self, Next, Part};

/// One pass over a range.
struct Ageing<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    accessed: Accessed,
    tells: bool,
    nr_young: u64,
    /// The pages that have lost their accessed bit; huge mappings may reach out of the range.
    cleared: Option<PageRange>,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Pages that were used since their accessed bits were last cleared, by any tables: those of
    /// mappings that `addr..addr + len` meets. Of a huge mapping all count, or none.
    pub fn test_young(&self, addr: u64, len: u64) -> u64 {
        self.count_young(addr, len, Accessed::Keep)
    }

    /// The same, and forgets it: a use is counted by this call or by the next one,
    /// never by neither. Every access that begins afterwards is a new one.
    pub fn test_and_clear_young(&self, addr: u64, len: u64) -> u64 {
        self.count_young(addr, len, Accessed::Clear)
    }

    fn count_young(&self, addr: u64, len: u64, accessed: Accessed) -> u64 {
        self.vm.call();
        let end = Vpn(addr.saturating_add(len).div_ceil(PAGE_SIZE));
        let range = PageRange::new(Vpn::of(addr), end.max(Vpn::of(addr))).intersect(&Self::user_range());
        let _writer = self.write_lock();
        let mut ageing = Ageing { space: self, accessed, tells: self.has_subscribers(), nr_young: 0, cleared: None };
        take::for_each_part(&self.vm.machine, self.root, range, &mut |part| match part {
            Part::Table(table, pages) => take::for_each_in_table(&self.vm.machine, table, pages, &mut |vpn, slot| {
                ageing.look(slot, PageRange::new(vpn, Vpn(vpn.0 + 1)))
            }),
            Part::Huge(pmd) => ageing.look(pmd.slot, pmd.span()),
        });
        if let Some(cleared) = ageing.cleared {
            // A CPU sets the bit when it reads the entry, not at each access.
            self.shootdown(Flush::Pages(cleared));
        }
        ageing.nr_young
    }
}

/// The change to accessed bits that are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accessed {
    Keep,
    Clear,
}

/// Use of a mapping, as its entry shows it.
enum Use {
    Young(Pfn),
    Old(Pfn),
    /// There is no mapping, or a table has taken its place.
    Other(Next),
}

impl<M: Machine> Ageing<'_, '_, M> {
    /// One mapping, whole.
    fn look(&mut self, slot: Slot<'_, M::Format>, whole: PageRange) -> Next {
        let (young, pfn) = match self.used(slot, whole.nr_pages()) {
            Use::Other(next) => return next,
            Use::Old(pfn) => (false, pfn),
            Use::Young(pfn) => {
                let before = self.cleared.unwrap_or(whole);
                if self.accessed == Accessed::Clear {
                    self.cleared = Some(PageRange::new(before.start.min(whole.start), before.end.max(whole.end)));
                }
                (true, pfn)
            }
        };
        // Asked in any case: the subscriber has to forget, too.
        let notice = Notice::Young { range: whole, clear: self.accessed == Accessed::Clear };
        let by_others = self.tells && self.space.vm.tell_machine(self.space.tag(), &notice);
        if by_others && self.accessed == Accessed::Clear {
            self.space.vm.note_entry_used(pfn, whole.nr_pages());
        }
        self.nr_young += if young || by_others { whole.nr_pages() } else { 0 };
        Next::GoOn
    }

    fn used(&self, slot: Slot<'_, impl Format>, nr_pages: u64) -> Use {
        loop {
            let seen = slot.observe();
            match seen.entry {
                Entry::Leaf(leaf) if !leaf.accessed => return Use::Old(leaf.pfn),
                Entry::Leaf(leaf) if self.accessed == Accessed::Keep => return Use::Young(leaf.pfn),
                Entry::Leaf(leaf) => {
                    // Before the bit goes: the age tells of the use from now on.
                    self.space.vm.note_entry_used(leaf.pfn, nr_pages);
                    if self.space.forget_accessed(self.space.section().inside(), slot, seen).is_ok() {
                        return Use::Young(leaf.pfn);
                    }
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.space.vm.machine.relax(),
                Entry::Table(_) => return Use::Other(Next::Again),
                Entry::None | Entry::Guard | Entry::Poison | Entry::Swap(_) => return Use::Other(Next::GoOn),
            }
        }
    }
}
