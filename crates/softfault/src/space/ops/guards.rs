//! `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`: entries that refuse every access. They need tables, which are obtained
//! before anything changes.
//!
//! Locks on entry: the writer lock.

use super::MadviseError;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfFrames;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::edit::{Edit, Nodes};
use crate::space::lock::Writer;
use crate::space::vma::{Vma, VmaFlags};
use crate::table::format::Entry;
use crate::table::place::PmdSlot;
use crate::table::reserve::{self, TableReserve};
use crate::table::take::{self, Guards, Next, Part, Removal};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Marks the VMA, installs a guard in every entry of the part, and removes the pages that were there.
    pub(super) fn install_guards(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        part: PageRange,
    ) -> Result<(), MadviseError> {
        let machine = &self.vm.machine;
        let nr_tables = reserve::tables_for(machine, self.root, part);
        TableReserve::can_ever_be(self.vm, nr_tables)?;
        let (edit, mut reserve) =
            self.prepare(writer, &mut |nodes| self.prepare_guards(writer, vma, nr_tables, nodes))?;
        if let Some(edit) = edit {
            let retired = edit.publish();
            self.free_retired(writer, retired);
        }
        let mut pace = Pace::new(machine);
        for vpn in part.start.0..part.end.0 {
            pace.step();
            let split = &mut |pmd: PmdSlot<'_, M::Format>| self.pmd_split(pmd);
            let Some(slot) = reserve.entry_for(self.root, self.frame, Vpn(vpn), writer, split) else {
                debug_assert!(false, "I15: the reserve covers what was counted");
                return Err(OutOfFrames::Frame.into());
            };
            let mut cleared_rest = false;
            while !matches!(slot.observe().entry, Entry::Guard) && slot.fill(Entry::Guard).is_err() {
                // The entry maps a page: remove it and try again. The first time the rest of the
                // range is removed with it, since most of it is usually present. After that, only
                // a concurrent fault can have filled an entry, and it is removed alone.
                let one = PageRange::new(Vpn(vpn), Vpn(vpn + 1));
                let rest = PageRange::new(Vpn(vpn), part.end);
                let range = if cleared_rest { one } else { rest };
                cleared_rest = true;
                self.remove_pages(writer, &Removal::keeping_tables(range, Guards::Keep), Why::Discard);
            }
        }
        self.charge(Rss::Tables, reserve.nr_used() as i64);
        self.vm.count(Event::TableInstall, reserve.nr_used());
        Ok(())
    }

    /// Prepares the VMA's mark and the tables for the guards.
    fn prepare_guards<'a>(
        &'a self,
        writer: &'a Writer<'_, M>,
        vma: &Vma,
        nr_tables: u64,
        nodes: Nodes<'_, M>,
    ) -> Result<(Option<Edit<'a, 'vm, M>>, TableReserve<'vm, M>), MadviseError> {
        let mut edit = None;
        if !vma.flags.contains(VmaFlags::MAYGUARD) {
            // The whole VMA: a flag on a part of it would split it.
            let edit = edit.insert(self.edit(writer));
            edit.with(nodes).rewrite(vma.range, &mut |v| Vma { flags: v.flags | VmaFlags::MAYGUARD, ..*v })?;
        }
        let mut reserve = TableReserve::new(self.vm);
        if nr_tables > 0 {
            let source = nodes.ok_or(OutOfFrames::Frame)?;
            reserve.add_from(nr_tables, source)?;
        }
        Ok((edit, reserve))
    }

    /// Removes the guards of the part.
    pub(super) fn remove_guards(&self, writer: &Writer<'_, M>, part: PageRange) {
        self.assert_writer(writer);
        take::for_each_part(&self.vm.machine, self.root, part, &mut |found| match found {
            Part::Table(table, pages) => take::for_each_in_table(&self.vm.machine, table, pages, &mut |_, slot| {
                if matches!(slot.observe().entry, Entry::Guard) {
                    // Only the writer changes a guard.
                    slot.publish_locked(Entry::None);
                }
                Next::GoOn
            }),
            // No guard is in a huge mapping.
            Part::Huge(_) => Next::GoOn,
        });
    }
}
