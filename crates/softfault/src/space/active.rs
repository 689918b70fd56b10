//! Which address space a CPU runs.
//!
//! [`activate`](AddressSpace::activate) is for code whose control flow is nested.
//! A kernel's scheduler changes spaces in the middle of a thread and uses the
//! `unsafe` pair. Locks on entry: none; outside sections (I8).
#![allow(unsafe_code)] // the promises are the caller's; nothing here dereferences anything

use super::AddressSpace;
use crate::machine::{CpuId, Machine};
use crate::sync::{self, Ordering};
use core::marker::PhantomData;

/// The calling CPU runs the address space until this is dropped, on the same CPU.
///
/// If it is forgotten instead, the CPU counts as running the space for ever, and
/// dropping the space panics.
#[must_use]
pub struct Active<'a, 'vm, M: Machine> {
    pub(super) space: &'a AddressSpace<'vm, M>,
    cpu: CpuId,
    /// Not `Send`: it has to be dropped on the same CPU.
    stays: PhantomData<*const ()>,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes the calling CPU one that runs the space: shootdowns reach it, and faults need not
    /// announce it. Call it before the root table is loaded, and drop the result after another root
    /// is loaded and there is no translation left. The CPU enters no other space, and not this one
    /// again, until then.
    ///
    /// # Panics
    ///
    /// If the CPU runs a space already, or in a callback ([`Machine`]).
    pub fn activate(&self) -> Active<'_, 'vm, M> {
        self.vm.assert_outside();
        let cpu = self.vm.machine.this_cpu();
        assert!(self.vm.cpu(cpu).active.get() == 0, "I11: {cpu:?} runs an address space already");
        self.set_active(cpu);
        self.vm.cpu(cpu).guarded.set(1);
        Active { space: self, cpu, stays: PhantomData }
    }

    /// As [`activate`](Self::activate), without a guard and from within another
    /// space, which is [deactivated](Self::deactivate_raw) afterwards.
    ///
    /// # Safety
    ///
    /// I11: the CPU calls [`deactivate_raw`](Self::deactivate_raw) on the same space
    /// before the space is dropped. One such call ends all activations of this CPU.
    ///
    /// # Panics
    ///
    /// If the CPU has a guard of [`activate`](Self::activate): the first of the two to
    /// end would hide the CPU from shootdowns. In a callback ([`Machine`]).
    pub unsafe fn activate_raw(&self) {
        self.vm.assert_outside();
        let cpu = self.vm.machine.this_cpu();
        let is_free = self.vm.cpu(cpu).guarded.get() == 0;
        assert!(is_free, "I11: {cpu:?} runs an address space by `activate`; drop that guard first");
        self.set_active(cpu);
    }

    /// Undoes [`activate_raw`](Self::activate_raw).
    ///
    /// # Safety
    ///
    /// I4, I11: the CPU has loaded another root table and holds no translation of
    /// this space any more.
    pub unsafe fn deactivate_raw(&self) {
        self.vm.assert_outside();
        self.set_inactive(self.vm.machine.this_cpu());
    }

    fn set_active(&self, cpu: CpuId) {
        self.data.cpus.words[usize::from(cpu.0) / 64].fetch_or(1 << (cpu.0 % 64), Ordering::SeqCst);
        sync::fence();
        self.vm.cpu(cpu).active.set(self.id);
    }

    fn set_inactive(&self, cpu: CpuId) {
        let active = &self.vm.cpu(cpu).active;
        if active.get() == self.id {
            active.set(0);
        }
        self.data.cpus.words[usize::from(cpu.0) / 64].fetch_and(!(1 << (cpu.0 % 64)), Ordering::SeqCst);
    }

    /// Panics if a CPU runs the space: it could go on using frames that are freed.
    pub(super) fn assert_inactive(&self) {
        for cpu in self.cpus().iter() {
            let runs_it = self.vm.cpu(cpu).active.get() == self.id;
            assert!(!runs_it, "I11: {cpu:?} still runs address space {}, which is being dropped", self.id);
        }
    }
}

impl<M: Machine> Drop for Active<'_, '_, M> {
    /// # Panics
    ///
    /// On another CPU than the one that was activated, or in a callback.
    fn drop(&mut self) {
        self.space.vm.assert_outside();
        let cpu = self.space.vm.machine.this_cpu();
        assert!(cpu == self.cpu, "I11: {:?} was activated, and {cpu:?} ends it", self.cpu);
        self.space.vm.cpu(cpu).guarded.set(0);
        self.space.set_inactive(cpu);
    }
}

#[cfg(test)]
mod tests {
    use crate::addr::Access;
    use crate::machine::CpuId;
    use crate::testing;
    use crate::testing::{FIXED_PRIVATE, RW};
    use crate::tunables::Tunables;

    /// Between `activate` of the next space and `deactivate` of the last one the CPU
    /// may hold translations of both. A visit to the last one must not remove the CPU
    /// from its set: a shootdown would pass the CPU over.
    #[test]
    fn a_visit_leaves_the_bit_of_a_space_that_is_still_active() {
        let vm = testing::vm(256, Tunables::default());
        let (last, next) = (vm.new_space().unwrap(), vm.new_space().unwrap());
        last.mmap(1 << 20, 4096, RW, FIXED_PRIVATE).unwrap();
        // SAFETY: I11: deactivated below, before the space is dropped.
        unsafe { last.activate_raw() };
        // SAFETY: I11: as above.
        unsafe { next.activate_raw() };
        last.handle_fault(1 << 20, Access::Write).unwrap();
        assert!(last.cpus().contains(CpuId(0)), "I11: the CPU has not left the space yet");
        // SAFETY: I4, I11: there are no translations, and `next` is active.
        unsafe { last.deactivate_raw() };
        assert!(last.cpus().is_empty());
        last.read(1 << 20, &mut [0]).unwrap();
        assert!(last.cpus().is_empty(), "a visit ends with its section");
        // SAFETY: I4, I11: there are no translations.
        unsafe { next.deactivate_raw() };
    }
}
