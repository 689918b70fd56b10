//! The core's checkers, for tests: nobody else calls the core meanwhile.
#![allow(unsafe_code)]

use softfault::check::Broken;
use softfault::{AddressSpace, Machine, Vm};

/// [`Vm::check`].
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check<M: Machine>(vm: &Vm<M>, spaces: &[&AddressSpace<'_, M>], counts: &mut [u32]) -> Result<(), Broken> {
    // SAFETY: I64: tests call it when their threads have ended or wait, which is what they test.
    unsafe { vm.check(spaces, counts) }
}

/// [`Vm::check_free_is_zero`].
///
/// # Errors
///
/// The first frame that is not zero.
pub fn check_free_is_zero<M: Machine>(vm: &Vm<M>) -> Result<(), Broken> {
    // SAFETY: I64: as above.
    unsafe { vm.check_free_is_zero() }
}
