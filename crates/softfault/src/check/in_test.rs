//! The checkers for unit tests and models, which call them at rest.
#![allow(unsafe_code)]

use super::Broken;
use crate::machine::Machine;
use crate::space::{AddressSpace, Vm};

impl<M: Machine> Vm<M> {
    /// [`check`](Vm::check).
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check_in_test(&self, spaces: &[&AddressSpace<'_, M>], counts: &mut [u32]) -> Result<(), Broken> {
        // SAFETY: I64: a test calls it when its threads have ended or wait.
        unsafe { self.check(spaces, counts) }
    }

    /// [`check_free_is_zero`](Vm::check_free_is_zero).
    ///
    /// # Errors
    ///
    /// The first frame that is not zero.
    pub fn check_free_in_test(&self) -> Result<(), Broken> {
        // SAFETY: I64: as above.
        unsafe { self.check_free_is_zero() }
    }
}
