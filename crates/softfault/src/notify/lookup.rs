//! The subscribers' side: lookup of a page without a reference.

use super::tell::is_under_way;
use crate::account::Event;
use crate::addr::{PageRange, Vpn};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::ops::Translation;
use crate::sync::{self, Ordering};
use crate::table::format::{Leaf, order_of};
use core::marker::PhantomData;

/// The right to look pages up in one space. Given back by
/// [`unsubscribe`](AddressSpace::unsubscribe); merely dropped, it stays in force until the space
/// ends, which costs only time.
#[must_use]
pub struct Subscription<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    space_id: u64,
}

impl<M: Machine> core::fmt::Debug for Subscription<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Subscription(space {})", self.space_id)
    }
}

/// A page as it was; good while it [is current](Subscription::is_current).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lookup<'vm> {
    /// Frame, rights and size of the mapping.
    pub translation: Translation,
    /// The address of the `Vm` and the id of the space.
    of: (usize, u64),
    /// Changes that were over then; none was in progress.
    changes: u64,
    /// Another `Vm` may have the same address later, and spaces of the same ids.
    vm: PhantomData<&'vm ()>,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LookupRefused {
    /// The subscription is to another space.
    OtherSpace,
    /// Entries of the space are being changed: try again.
    UnderWay,
    /// A touch would fault: handle the fault first.
    Absent,
}

impl LookupRefused {
    fn event(self) -> Event {
        match self {
            LookupRefused::OtherSpace => Event::LookupOtherSpace,
            LookupRefused::UnderWay => Event::LookupUnderWay,
            LookupRefused::Absent => Event::LookupAbsent,
        }
    }
}

impl core::fmt::Display for LookupRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LookupRefused::OtherSpace => "space: should be the one that the subscription is to",
            LookupRefused::UnderWay => "entries of the space are being changed",
            LookupRefused::Absent => "addr: a touch would fault",
        })
    }
}
impl core::error::Error for LookupRefused {}

impl<'vm, M: Machine> Subscription<'vm, M> {
    /// For [`subscribe`](AddressSpace::subscribe), which has counted it.
    pub(crate) fn to(space: &AddressSpace<'vm, M>) -> Self {
        Subscription { vm: space.vm, space_id: space.id }
    }

    pub(crate) fn is_to(&self, space: &AddressSpace<'vm, M>) -> bool {
        core::ptr::eq(self.vm, space.vm) && self.space_id == space.id
    }

    /// The identity of the space. Ids begin anew with each `Vm`.
    fn of(&self) -> (usize, u64) {
        (core::ptr::from_ref(self.vm).addr(), self.space_id)
    }

    /// Returns the translation of the address, without a reference to the frame: to be
    /// mapped only while it [is current](Self::is_current), and dropped with the
    /// next `Start` that names it. May be called while a notice is received.
    ///
    /// # Errors
    ///
    /// [`LookupRefused`].
    pub fn lookup(&self, space: &AddressSpace<'vm, M>, addr: u64) -> Result<Lookup<'vm>, LookupRefused> {
        self.try_lookup(space, addr).inspect_err(|refused| self.vm.count(refused.event(), 1))
    }

    fn try_lookup(&self, space: &AddressSpace<'vm, M>, addr: u64) -> Result<Lookup<'vm>, LookupRefused> {
        if !self.is_to(space) {
            return Err(LookupRefused::OtherSpace);
        }
        // Before the entry is read: what changes it later changes this first.
        let changes = space.data.notify.changes.load(Ordering::Acquire);
        if is_under_way(changes) {
            return Err(LookupRefused::UnderWay);
        }
        let translation = space.translation(addr).ok_or(LookupRefused::Absent)?;
        Ok(Lookup { translation, of: self.of(), changes, vm: PhantomData })
    }

    /// Whether no entry of the space has been changed since, and none is being
    /// changed. Asked under the lock that the subscriber also takes to obey a
    /// notice, or after the page was mapped, to undo it if not. A lookup of another
    /// space is not current, nor one from before a time without subscriptions, in
    /// which changes are not counted.
    pub fn is_current(&self, space: &AddressSpace<'vm, M>, lookup: &Lookup<'_>) -> bool {
        sync::fence();
        let is_same = self.is_to(space) && lookup.of == self.of();
        is_same && space.data.notify.changes.load(Ordering::Acquire) == lookup.changes
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Returns the translation that the entry has at this moment; `None` where a touch would fault.
    pub(crate) fn translation(&self, addr: u64) -> Option<Translation> {
        let vpn = Vpn::of(addr);
        if !PageRange::contains(&Self::user_range(), vpn) {
            return None;
        }
        let section = self.section();
        let mapped = self.mapped(section.inside(), vpn)?;
        let Leaf { pfn, rights, .. } = mapped.leaf;
        let order = order_of::<M::Format>(mapped.slot.level);
        (!rights.is_empty()).then_some(Translation { pfn, rights, order })
    }
}
