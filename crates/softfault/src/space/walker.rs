//! Walks for software that translates addresses: emulators, interpreters, device models.
//!
//! A [`Walker`] is the page-table walker of such a CPU. The TLB is the embedder's: it contains
//! [`Walked`] values. Each one has the space's count of shootdowns from before the entry was read.
//! The core raises the count after it has changed entries and before it waits for the CPUs of the
//! space (I39).
//!
//! It uses `fault` where the entry does not allow the access, and `cpus.rs` for the count. Locks on
//! entry: none, no section.

use super::{Active, AddressSpace};
use crate::addr::{Access, Pfn, Rights, Vpn};
use crate::fault::{FaultDone, FaultError, Request, Want};
use crate::machine::Machine;
use crate::program;
use crate::space::ops::Translation;
use crate::table::format::order_of;
use crate::table::walk::{self, Mapped};
use core::fmt;
use core::marker::PhantomData;

/// Walks the tables of the space that the CPU runs.
///
/// It borrows the guard of [`activate`](AddressSpace::activate) and so stays on its CPU:
/// while a walker exists, shootdowns of the space reach this CPU.
///
/// ```
/// # use softfault::{Access, Active, FaultError, Machine, Miss, Walked};
/// /// A load of one byte through a TLB of one page.
/// fn load<'vm, M: Machine>(
///     active: &Active<'_, 'vm, M>,
///     tlb: &mut Option<(u64, Walked<'vm>)>,
///     addr: u64,
/// ) -> Result<u8, FaultError> {
///     let walker = active.walker();
///     let mut byte = [0];
///     loop {
///         if let Some((page, walked)) = tlb
///             && *page == addr >> 12
///             && walker.load_through(walked, addr as usize % 4096, &mut byte).is_ok()
///         {
///             return Ok(byte[0]);
///         }
///         *tlb = Some((addr >> 12, walker.translate(addr, Access::Read)?));
///     }
/// }
/// ```
///
/// It does not outlive the guard, without which shootdowns would skip the CPU:
///
/// ```compile_fail,E0505
/// fn late<M: softfault::Machine>(active: softfault::Active<'_, '_, M>) {
///     let walker = active.walker();
///     drop(active);
///     walker.stamp();
/// }
/// ```
pub struct Walker<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    /// As in [`Active`].
    stays: PhantomData<*const ()>,
}

/// A point in time of a space. Two stamps are equal if no translation of the space was invalidated
/// between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp<'vm> {
    /// The address of the `Vm` and the id of the space.
    of: (usize, u64),
    count: u64,
    /// Another `Vm` may have the same address later.
    vm: PhantomData<&'vm ()>,
}

/// A translation for a TLB, valid while it [is current](Walker::is_current).
///
/// Only a walker makes one, because stores go through it without another read of the tables:
///
/// ```compile_fail,E0616
/// fn forge(walked: &mut softfault::Walked<'_>) {
///     walked.translation.pfn = softfault::Pfn(1);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked<'vm> {
    translation: Translation,
    stamp: Stamp<'vm>,
}

impl<'vm> Walked<'vm> {
    /// Frame of the 4 KiB page, size of the mapping, and the rights that may be kept. `WRITE` is
    /// among them only if the entry is dirty: the first store to a clean page has to walk, which
    /// makes it dirty.
    pub fn translation(&self) -> Translation {
        self.translation
    }
    /// The stamp from before the entry was read.
    pub fn stamp(&self) -> Stamp<'vm> {
        self.stamp
    }
}

/// Why an access could not be made through a [`Walked`]. The caller has to walk again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Miss {
    /// It is not among the rights that may be kept.
    NoRights,
    /// Translations of the space were invalidated since, or it belongs to another space.
    Stale,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Miss::NoRights => "walked: does not have the right that the access needs",
            Miss::Stale => "walked: is not current",
        })
    }
}
impl core::error::Error for Miss {}

impl<'vm, M: Machine> Active<'_, 'vm, M> {
    /// Makes a walker of the space's tables for this CPU. The first walker of a space turns on its
    /// count of shootdowns, for the rest of the space's life.
    pub fn walker(&self) -> Walker<'_, 'vm, M> {
        self.space.vm.call();
        self.space.data.shot.begin_to_count();
        Walker { space: self.space, stays: PhantomData }
    }
}

impl<'vm, M: Machine> Walker<'_, 'vm, M> {
    /// The address space.
    pub fn space(&self) -> &AddressSpace<'vm, M> {
        self.space
    }

    /// Translates for one access, as hardware does: sets the entry's accessed bit, and the dirty
    /// bit for a store. Handles the fault first if the entry does not allow the access.
    ///
    /// An entry that allows it costs one walk. After a fault the walk begins at the
    /// leaf table that the fault used.
    ///
    /// # Errors
    ///
    /// [`FaultError`], as of [`handle_fault`](AddressSpace::handle_fault).
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn translate(&self, addr: u64, access: Access) -> Result<Walked<'vm>, FaultError> {
        self.space.vm.call();
        let vpn = Vpn::of(addr);
        if vpn >= AddressSpace::<M>::user_range().end {
            return Err(FaultError::NotMapped);
        }
        if let Some(walked) = self.look(vpn, access) {
            return Ok(walked);
        }
        loop {
            let done = self.space.fault(Request { vpn, want: Want::Access(access) })?;
            if let Some(walked) = self.look_after_fault(vpn, access) {
                return Ok(walked);
            }
            if done == FaultDone::Spurious {
                // An operation changed the entry after the fault. Let it continue.
                self.space.vm.machine.relax();
            }
        }
    }

    /// One walk from the root.
    fn look(&self, vpn: Vpn, access: Access) -> Option<Walked<'vm>> {
        let section = self.space.section();
        let stamp = self.stamp();
        self.walked(self.space.mapped(section.inside(), vpn)?, access, stamp)
    }

    /// Like `walk`, with one load of an entry if the CPU's hint has the leaf table.
    fn look_after_fault(&self, vpn: Vpn, access: Access) -> Option<Walked<'vm>> {
        let section = self.space.section();
        let stamp = self.stamp();
        self.space.find_vma(section.inside(), section.cpu(), vpn)?;
        let mapped = match self.space.leaf_by_hint(section.inside(), section.cpu(), vpn) {
            Some(slot) => walk::mapped_at(slot, 0)?,
            None => self.space.mapped(section.inside(), vpn)?,
        };
        self.walked(mapped, access, stamp)
    }

    /// Makes the translation, in the section in which the entry was read. The stamp was read
    /// before. Like hardware, it uses an entry with the lock bit, too (I33).
    fn walked(&self, mapped: Mapped<'_, M::Format>, access: Access, stamp: Stamp<'vm>) -> Option<Walked<'vm>> {
        let Mapped { slot, seen, leaf, .. } = mapped;
        if !leaf.rights.contains(access.needs()) || slot.mark(seen, access).is_err() {
            return None;
        }
        let is_dirty = leaf.dirty || access == Access::Write;
        let rights = if is_dirty { leaf.rights } else { leaf.rights - Rights::WRITE };
        let order = order_of::<M::Format>(slot.level);
        Some(Walked { translation: Translation { pfn: leaf.pfn, rights, order }, stamp })
    }

    /// The current stamp. A TLB with one stamp for all of its entries compares it with this, and
    /// flushes itself when they differ.
    #[inline]
    pub fn stamp(&self) -> Stamp<'vm> {
        let of = (core::ptr::from_ref(self.space.vm).addr(), self.space.id);
        Stamp { of, count: self.space.data.shot.count(), vm: PhantomData }
    }

    /// Whether no translation of the space was invalidated since the walk.
    ///
    /// The answer may be outdated at once: a shootdown may follow. A caller that uses the frame
    /// through [`frame_ptr`](Machine::frame_ptr) promises that [`shootdown`](Machine::shootdown)
    /// does not return before the access is over (M7). [`load_through`](Self::load_through) and
    /// [`store_through`](Self::store_through) need no such promise.
    #[inline]
    pub fn is_current(&self, walked: &Walked<'vm>) -> bool {
        walked.stamp == self.stamp()
    }

    /// Copies bytes of the page, from `offset`.
    ///
    /// # Errors
    ///
    /// [`Miss`]; nothing was copied then.
    ///
    /// # Panics
    ///
    /// If the bytes do not lie in one page; in a callback ([`Machine`]).
    #[inline]
    pub fn load_through(&self, walked: &Walked<'vm>, offset: usize, into: &mut [u8]) -> Result<(), Miss> {
        self.through(walked, Access::Read, |pfn| program::read(&self.space.vm.machine, pfn, offset, into))
    }

    /// The same for an instruction.
    ///
    /// # Errors
    ///
    /// As [`load_through`](Self::load_through).
    ///
    /// # Panics
    ///
    /// As [`load_through`](Self::load_through).
    #[inline]
    pub fn fetch_through(&self, walked: &Walked<'vm>, offset: usize, into: &mut [u8]) -> Result<(), Miss> {
        self.through(walked, Access::Exec, |pfn| program::read(&self.space.vm.machine, pfn, offset, into))
    }

    /// Copies bytes into the page, from `offset`.
    ///
    /// # Errors
    ///
    /// [`Miss`]; nothing was copied then.
    ///
    /// # Panics
    ///
    /// As [`load_through`](Self::load_through).
    #[inline]
    pub fn store_through(&self, walked: &Walked<'vm>, offset: usize, from: &[u8]) -> Result<(), Miss> {
        self.through(walked, Access::Write, |pfn| program::write(&self.space.vm.machine, pfn, offset, from))
    }

    /// Calls `f` with the frame in a section in which the translation is current: the frame is not
    /// freed, nor copied from, before the section ends (I39).
    #[inline]
    fn through(&self, walked: &Walked<'vm>, access: Access, f: impl FnOnce(Pfn)) -> Result<(), Miss> {
        self.space.vm.call();
        if !walked.translation.rights.contains(access.needs()) {
            return Err(Miss::NoRights);
        }
        let _section = self.space.section();
        if !self.is_current(walked) {
            return Err(Miss::Stale);
        }
        f(walked.translation.pfn);
        Ok(())
    }
}

impl<M: Machine> fmt::Debug for Walker<'_, '_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Walker(space {})", self.space.id)
    }
}

#[cfg(test)]
#[path = "walker_tests.rs"]
mod tests;
