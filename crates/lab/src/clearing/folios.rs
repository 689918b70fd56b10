//! Large pages of ours: frames of a hosted machine's arena, cleared and copied by
//! the core. No `Vm` is made over it, so that the frames are nobody's (L3).

use super::span::Span;
use super::{HUGE_BYTES, NR_SUBPAGES};
use crate::error::LabError;
use softfault::clear::{ClearOrder, clear_folio, copy_folio};
use softfault::machine::Machine;
use softfault::{Order, Pfn};
use softfault_host::{Hosted, HostedConfig};
use std::marker::PhantomData;

/// Some large pages, warm in the sense that the host has given memory for all.
pub struct Folios {
    hosted: Hosted,
    nr: u64,
    /// Spans are raw: one thread has them all.
    one_thread: PhantomData<*const ()>,
}

impl Folios {
    /// `nr` of them.
    pub fn new(nr: u64) -> Result<Folios, LabError> {
        let config = HostedConfig { arena_bytes: nr * HUGE_BYTES, huge: true, ..HostedConfig::default() };
        let hosted = Hosted::new(config).map_err(|e| LabError::host("the hosted machine", e))?;
        let folios = Folios { hosted, nr, one_thread: PhantomData };
        (0..nr).for_each(|i| folios.span(i).soil());
        Ok(folios)
    }

    fn first(&self, i: u64) -> Pfn {
        let first = self.hosted.frames()[0].first;
        Pfn(first.0 + (i % self.nr * NR_SUBPAGES) as u32)
    }

    /// The bytes of the `i`th; counted round and round.
    pub fn span(&self, i: u64) -> Span<'_> {
        // SAFETY: L3: frames of the arena, which lives as long as the borrow; L2:
        // only the thread that has it clears or touches them.
        unsafe { Span::new(self.hosted.frame_ptr(self.first(i))) }
    }

    /// Clears the `i`th as a fault on sub-page `target` would.
    pub fn clear(&self, i: u64, target: u64, how: ClearOrder) {
        clear_folio(&self.hosted, self.first(i), Order::PMD, Some(target), how);
    }

    /// Copies the `from`th to the `to`th as a write to sub-page `target` would;
    /// gives the bytes read and written.
    pub fn copy(&self, to: u64, from: u64, target: u64, how: ClearOrder) -> u64 {
        self.copied(self.first(to), self.first(from), Order::PMD, target, how)
    }

    /// Copies sub-page `target` alone; gives the bytes read and written.
    pub fn copy_subpage(&self, to: u64, from: u64, target: u64) -> u64 {
        let at = |i: u64| Pfn(self.first(i).0 + target as u32);
        self.copied(at(to), at(from), Order::BASE, 0, ClearOrder::Forward)
    }

    fn copied(&self, to: Pfn, from: Pfn, order: Order, target: u64, how: ClearOrder) -> u64 {
        let mut nr = 0;
        let copied = copy_folio(&self.hosted, to, from, order, Some(target), how, &mut |_| {
            nr += 1;
            Ok(())
        });
        copied.expect("the check above finds nothing poisoned");
        // Each is read once and written once.
        2 * nr * super::SUBPAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_and_copied_pages_are_what_they_should_be() {
        let folios = Folios::new(2).unwrap();
        for how in ClearOrder::ALL {
            folios.span(0).soil();
            folios.span(1).soil();
            folios.clear(0, 7, how);
            folios.span(0).evict();
            assert!(folios.span(0).is_clear() && !folios.span(1).is_clear());
            assert_eq!(folios.copy(1, 0, 7, how), 2 * HUGE_BYTES);
            assert!(folios.span(1).is_clear());
        }
        folios.span(0).write_all();
        assert!(!folios.span(0).is_clear());
        assert_eq!(folios.copy_subpage(1, 0, 7), 8192);
        assert!(!folios.span(1).is_clear());
    }
}
