//! The holder's side of a pin: the frame's number and its bytes.
//!
//! The type tells the purpose of the pin. A [`Pin`] of a page that the program may only read cannot
//! write.
//!
//! Locks on entry: none.

use super::Term;
use crate::account::Event;
use crate::addr::{Order, Pfn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::program;
use crate::space::Vm;
use core::fmt;
use core::ops::Deref;

/// A frame that stays where it is until this is dropped, whatever becomes of the
/// page and its space. Forgotten, it stays for ever.
///
/// It was asked for to be read, and cannot be written through:
///
/// ```compile_fail,E0599
/// fn store<M: softfault::Machine>(pin: &softfault::Pin<'_, M>) {
///     pin.write(0, &[1]);
/// }
/// ```
#[must_use]
pub struct Pin<'vm, M: Machine> {
    pub(super) vm: &'vm Vm<M>,
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    pub(super) term: Term,
    /// The holder may store.
    pub(super) is_mut: bool,
}

impl<M: Machine> Pin<'_, M> {
    /// The frame of the 4 KiB page.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }
    /// Size of the mapping that it was found in.
    pub fn order(&self) -> Order {
        self.order
    }
    /// Returns the term for which it was asked.
    pub fn term(&self) -> Term {
        self.term
    }
    /// Copies bytes of the frame, from `offset`.
    ///
    /// # Panics
    ///
    /// If they do not lie in one page.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        program::read(&self.vm.machine, self.pfn, offset, into);
    }
}

impl<M: Machine> Pin<'_, M> {
    /// Stores through it are not in the page's file, though the page may have been written back meanwhile.
    fn note_stores(&self) {
        if self.is_mut {
            let desc = self.vm.frames.desc(self.vm.frames.head(self.pfn));
            if desc.state().kind() == FrameKind::Shared {
                desc.note_written_now();
            }
        }
    }
}

impl<M: Machine> Drop for Pin<'_, M> {
    /// Frees the frame if the page has gone. From any CPU, outside sections.
    fn drop(&mut self) {
        // A folio that is pinned stays one. Its tails may have no descriptors.
        let head = self.vm.frames.head(self.pfn);
        self.note_stores();
        let is_last = self.vm.frames.desc(head).pin_drop();
        self.vm.count(Event::PinReleased, 1);
        if is_last {
            self.vm.give_back_page(head);
        }
    }
}

impl<M: Machine> fmt::Debug for Pin<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({:?}, {:?})", self.pfn, self.term)
    }
}

/// A [`Pin`] that was asked for to be written, too:
///
/// ```
/// fn store<M: softfault::Machine>(pin: &softfault::PinMut<'_, M>) {
///     pin.write(0, &[1]);
///     pin.read(0, &mut [0]);
/// }
/// ```
///
/// The pinned frame stays the parent's when the space forks. The child gets a copy
/// that is made while the holder may write. Stores that were over before the fork
/// began are in it, stores that begin when it has returned are not. Of a store that
/// races with the fork each byte is in it or not; the bytes of an aligned word of
/// eight that is stored whole are in it together or not at all.
#[must_use]
pub struct PinMut<'vm, M: Machine>(pub(super) Pin<'vm, M>);

impl<M: Machine> PinMut<'_, M> {
    /// Writes bytes of the frame, from `offset`.
    ///
    /// # Panics
    ///
    /// As [`read`](Pin::read).
    pub fn write(&self, offset: usize, from: &[u8]) {
        program::write(&self.0.vm.machine, self.0.pfn, offset, from);
    }
}

impl<'vm, M: Machine> Deref for PinMut<'vm, M> {
    type Target = Pin<'vm, M>;
    fn deref(&self) -> &Pin<'vm, M> {
        &self.0
    }
}

impl<'vm, M: Machine> From<PinMut<'vm, M>> for Pin<'vm, M> {
    /// Gives up the right to write.
    fn from(pin: PinMut<'vm, M>) -> Pin<'vm, M> {
        let PinMut(mut pin) = pin;
        pin.note_stores();
        pin.is_mut = false;
        pin
    }
}

impl<M: Machine> fmt::Debug for PinMut<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinMut({:?}, {:?})", self.0.pfn, self.0.term)
    }
}
