//! Large pages of ours: frames of a hosted machine's arena, cleared and copied by
//! the core. No `Vm` is made over it, so that the frames are nobody's (L3).

use super::span::Span;
use super::{HUGE_BYTES, NR_SUBPAGES};
use crate::error::LabError;
use softfault::clear::{ClearOrder, Scratch};
use softfault::machine::Machine;
use softfault::{Order, Pfn};
use softfault_host::{Hosted, HostedConfig};
use std::cell::RefCell;

/// Some large pages, warm in the sense that the host has given memory for all.
pub struct Folios {
    /// Spans are raw: one thread has them all.
    scratch: RefCell<Scratch<'static, Hosted>>,
    nr: u64,
}

impl Folios {
    /// `nr` of them. Their machine is never given back: a process has one.
    pub fn new(nr: u64) -> Result<Folios, LabError> {
        let config = HostedConfig::default().with_arena_bytes(nr * HUGE_BYTES).with_huge(true);
        let hosted = Hosted::new(config).map_err(|e| LabError::host("the hosted machine", e))?;
        let hosted = Box::leak(Box::new(hosted));
        let range = hosted.frames()[0];
        let scratch = RefCell::new(Scratch::new(hosted, range).expect("frames of the machine"));
        let folios = Folios { scratch, nr };
        (0..nr).for_each(|i| folios.span(i).soil());
        Ok(folios)
    }

    fn first(&self, i: u64) -> u64 {
        i % self.nr * NR_SUBPAGES
    }

    /// The bytes of the `i`th; counted round and round.
    pub fn span(&self, i: u64) -> Span<'_> {
        let scratch = self.scratch.borrow();
        let pfn = Pfn(scratch.range().first.0 + self.first(i) as u32);
        // SAFETY: L3: frames of the arena, which lives for ever; L2: only the
        // thread that has it clears or touches them.
        unsafe { Span::new(scratch.machine().frame_ptr(pfn)) }
    }

    /// Clears the `i`th as a fault on sub-page `target` would without a calibration: orders are compared by the
    /// same instructions on each CPU.
    pub fn clear(&self, i: u64, target: u64, how: ClearOrder) {
        self.scratch.borrow_mut().clear(self.first(i), Order::PMD, Some(target), how);
    }

    /// Copies the `from`th to the `to`th as a write to sub-page `target` would;
    /// gives the bytes read and written.
    pub fn copy(&self, to: u64, from: u64, target: u64, how: ClearOrder) -> u64 {
        self.copied(self.first(to), self.first(from), Order::PMD, target, how)
    }

    /// Copies sub-page `target` alone; gives the bytes read and written.
    pub fn copy_subpage(&self, to: u64, from: u64, target: u64) -> u64 {
        let at = |i: u64| self.first(i) + target;
        self.copied(at(to), at(from), Order::BASE, 0, ClearOrder::Forward)
    }

    fn copied(&self, to: u64, from: u64, order: Order, target: u64, how: ClearOrder) -> u64 {
        let mut nr = 0;
        let copied = self.scratch.borrow_mut().copy(to, from, order, Some(target), how, &mut |_| {
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
