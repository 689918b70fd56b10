//! Binds a thread to a CPU of a machine, and unbinds it (E3).

use super::{BOUND, BindError, CALLBACKS, CpuState, bound};
use crate::hosted::Hosted;
use crate::ticks;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Release};
use softfault::machine::CpuId;
use softfault::table::format::{Format, X86_64};

impl<F: Format> Hosted<F> {
    /// Binds the calling thread to `cpu` until the guard is dropped.
    pub fn bind(&self, cpu: CpuId) -> Result<CpuGuard<'_, F>, BindError> {
        CpuGuard::new(self, cpu)
    }
}

/// The calling thread is bound to a CPU until this is dropped.
///
/// Every call into the core and every access needs it. Dropping it panics in a hook of
/// [`Hosted::on_wait`] and in a subscriber of [`Hosted::on_notice`], which the core calls
/// in the middle of an operation of this CPU. The thread then stays bound for ever.
pub struct CpuGuard<'m, F: Format = X86_64> {
    pub(crate) machine: &'m Hosted<F>,
    cpu: CpuId,
    /// The cell belongs to the thread, so the guard must not leave the thread.
    stays: PhantomData<*const ()>,
}

impl<'m, F: Format> CpuGuard<'m, F> {
    fn new(machine: &'m Hosted<F>, cpu: CpuId) -> Result<CpuGuard<'m, F>, BindError> {
        let state = machine.cpus.get(cpu.0 as usize).ok_or(BindError::Unknown(cpu))?;
        if bound() != 0 {
            return Err(BindError::Bound);
        }
        // Acquire: what the CPU's last thread did is before all that this one
        // will do.
        if state.taken.swap(true, Acquire) {
            return Err(BindError::Taken(cpu));
        }
        BOUND.set(machine.tag | u64::from(cpu.0));
        ticks::entered(None);
        Ok(CpuGuard { machine, cpu, stays: PhantomData })
    }

    /// The CPU.
    pub fn id(&self) -> CpuId {
        self.cpu
    }

    /// The machine that the CPU belongs to.
    pub fn machine(&self) -> &'m Hosted<F> {
        self.machine
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &'m CpuState {
        &self.machine.cpus[self.cpu.0 as usize]
    }
}

impl<F: Format> Drop for CpuGuard<'_, F> {
    /// # Panics
    ///
    /// In a hook or a subscriber that is not already panicking.
    fn drop(&mut self) {
        if CALLBACKS.get() > 0 {
            // The operation that called goes on as this CPU, so no other thread may become it.
            assert!(std::thread::panicking(), "E3: the guard of {:?} is dropped in a callback of the core", self.cpu);
            return;
        }
        BOUND.set(0);
        self.state().taken.store(false, Release);
    }
}
