//! Growth of a `MAP_GROWSDOWN` mapping by a touch below it.

use super::AddressSpace;
use super::lock::Writer;
use super::placement::STACK_GUARD_GAP_PAGES;
use super::vma::{Vma, VmaFlags};
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfFrames;
use crate::machine::Machine;

impl<M: Machine> AddressSpace<'_, M> {
    /// Grows the mapping above `vpn` to include it; returns whether it did. Called outside
    /// sections.
    #[cold]
    pub(crate) fn grow_stack(&self, vpn: Vpn) -> bool {
        self.vm.with_reclaim(&mut || self.grow_once(vpn)).unwrap_or(false)
    }

    fn grow_once(&self, vpn: Vpn) -> Result<bool, OutOfFrames> {
        if vpn >= Self::user_range().end {
            return Ok(false);
        }
        let writer = &self.write_lock();
        let Some(vma) = self.tree(writer).next(vpn).map(|f| f.vma) else { return Ok(false) };
        if vma.range.contains(vpn) {
            return Ok(true); // another thread was here first
        }
        let nr_more = vma.range.start.0 - vpn.0;
        let nr_total = vma.range.nr_pages() + nr_more;
        // Page indices may not wrap around; a mapping that was moved up has few indices left below.
        let Some(index) = vma.index.checked_sub(nr_more) else { return Ok(false) };
        if !vma.flags.contains(VmaFlags::GROWSDOWN)
            || !self.fits_stack(nr_total)
            || vpn < self.min_page()
            || !self.gap_below(writer, vpn)
            || self.excess(writer, vma.flags, nr_more, 0).is_some()
            || !self.may_lock(writer, vma.flags, nr_more)
        {
            return Ok(false);
        }
        let grown = PageRange::new(vpn, vma.range.start);
        let below = Vma { range: grown, index, ..vma };
        let edit = self.prepare(writer, &mut |nodes| {
            let mut edit = self.edit(writer);
            edit.with(nodes).place(below)?;
            Ok::<_, OutOfFrames>(edit)
        })?;
        let retired = edit.publish();
        self.data.limits.nr_mapped_pages.add_owned(nr_more);
        self.free_retired(writer, retired);
        Ok(true)
    }

    fn gap_below(&self, writer: &Writer<'_, M>, vpn: Vpn) -> bool {
        self.assert_writer(writer);
        match self.tree(writer).prev(vpn).map(|f| f.vma) {
            None => true,
            Some(prev) if prev.flags.rights().is_empty() || prev.flags.contains(VmaFlags::GROWSDOWN) => true,
            Some(prev) => vpn.0 - prev.range.end.0 >= STACK_GUARD_GAP_PAGES,
        }
    }
}
