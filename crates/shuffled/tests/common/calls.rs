//! The calls that several of these tests make.

use super::{FIXED_PRIVATE, RW, Shuffled};
use softfault_shuffled::addr::{Access, Pfn};
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Advice, Term, Tunables, Vm};

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
    _ = vm.check(&[], &mut []);
}
