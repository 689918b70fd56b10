//! The calls that several of these tests make.

use super::{FIXED_PRIVATE, RW, Shuffled, Space, access};
use softfault_shuffled::addr::{Access, Pfn};
use softfault_shuffled::machine::{CpuSet, Flush, Machine};
use softfault_shuffled::table::format::{Format, X86_64};
use softfault_shuffled::{AddressSpace, Advice, FaultError, Term, Tunables, Vm};

/// Never called. The core's generic code for these calls is compiled here, once, rather than in each test binary
/// that makes them.
pub fn compiled_once(vm: &'static Vm<Shuffled<X86_64>>, space: &AddressSpace<'static, Shuffled<X86_64>>) {
    _ = super::vm::<X86_64>(1, 1, Tunables::default());
    _ = super::access(space, vm, 0, None);
    _ = vm.new_space();
    _ = space.mmap(0, 0, RW, FIXED_PRIVATE);
    _ = space.munmap(0, 0);
    _ = space.mprotect(0, 0, RW);
    _ = space.madvise(0, 0, Advice::DontNeed);
    _ = space.handle_fault(0, Access::Write);
    _ = space.fork();
    _ = space.activate();
    _ = space.pin_page_mut(0, Term::Short);
    _ = vm.migrate_frame(Pfn(0));
    _ = vm.check_in_test(&[], &mut []);
}

/// One access by a CPU that runs the space for that long, and has no translation of it afterwards.
///
/// # Errors
///
/// As [`access`].
pub fn access_once<F: Format>(
    vm: &Vm<Shuffled<F>>,
    space: &Space<F>,
    addr: u64,
    store: Option<u64>,
) -> Result<u64, FaultError> {
    let active = space.activate();
    let done = access(space, vm, addr, store);
    let mut here = CpuSet::EMPTY;
    here.insert(vm.machine().this_cpu());
    vm.machine().shootdown(space.tag(), &here, Flush::Space);
    drop(active);
    done
}
