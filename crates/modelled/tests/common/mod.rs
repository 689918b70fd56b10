//! A machine for the model checker: sixteen pages of address space, a few dozen
//! frames, CPUs that are loom's threads.
#![allow(missing_docs, reason = "for tests alone")]

pub mod calls;
pub mod files;
mod machine;
pub mod objects;
pub mod pager;
mod schedules;

pub use machine::{
    Modelled, NR_CPUS, NR_FRAMES, SECTION, arena_frames, device_store, let_copies_fail,
    let_others_run_in_shootdowns_of, let_parks_block, let_reads_fail, let_shootdowns_wait, let_sleep, on_notice,
    read_ahead, small_pages_on, use_blocks, use_cpus, use_section, use_swap, use_three_whole_blocks, use_whole_block,
};
pub use schedules::{be, explore, run};

use softfault_modelled::addr::Access;
use softfault_modelled::machine::Machine;
use softfault_modelled::policy::around::FaultAround;
use softfault_modelled::policy::huge::Enabled;
use softfault_modelled::{AddressSpace, FaultLocking, HugeKnobs, MapFlags, Prot, Tunables, Vm};

/// The state that threads share. Leaked, since loom's threads ask for `'static`, and
/// taken back by the next execution.
#[derive(Clone, Copy)]
pub struct World {
    pub vm: &'static Vm<Modelled>,
    pub space: &'static AddressSpace<'static, Modelled>,
}

pub const RW: Prot = Prot::READ.union(Prot::WRITE);
pub const READ: Prot = Prot::READ;
pub const FIXED_PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);

impl World {
    /// A fresh machine with one space of which `pages` are mapped, in plain
    /// memory. Frame caches are filled so that a fault need not refill.
    pub fn new(fault_locking: FaultLocking, start: u64, nr_pages: u64) -> World {
        World::with(fault_locking, Enabled::Never, start, nr_pages)
    }

    /// The same with huge pages, which are of four pages here. Of the machine's one
    /// block only one folio can be made at a time, so that of two huge faults one
    /// falls back.
    pub fn huge(start: u64, nr_pages: u64) -> World {
        World::with(FaultLocking::Lockfree, Enabled::Always, start, nr_pages)
    }

    /// As [`new`](World::new), with the lock-free fault-locking mode. An operation that leaves
    /// `max` retired tree nodes waits for a grace period and frees them.
    pub fn deferring_at_most(max: u64, start: u64, nr_pages: u64) -> World {
        let tunables = Tunables::default().with_deferred_nodes_max(max);
        World::tuned(FaultLocking::Lockfree, Enabled::Never, tunables, start, nr_pages)
    }

    fn with(fault_locking: FaultLocking, enabled: Enabled, start: u64, nr_pages: u64) -> World {
        World::tuned(fault_locking, enabled, Tunables::default(), start, nr_pages)
    }

    fn tuned(fault_locking: FaultLocking, enabled: Enabled, tunables: Tunables, start: u64, nr_pages: u64) -> World {
        machine::reset();
        files::reset();
        let thp = HugeKnobs::DEFAULT.with_enabled(enabled);
        let tunables =
            tunables.with_fault_locking(fault_locking).with_mmap_min_addr(0).with_zero_batch(4).with_thp(thp);
        // Has models of its own.
        let tunables = tunables.with_fault_around(FaultAround::OFF).with_readahead_bytes(machine::ahead_bytes());
        let place = machine::place();
        // SAFETY: I1: the place is this system thread's, leaked, and the thread that had
        // it in the execution before is gone.
        let vm: &'static Vm<Modelled> = unsafe {
            place.write(Vm::new(Modelled, tunables).unwrap());
            &*place
        };
        let space: &'static _ = Box::leak(Box::new(vm.new_space().unwrap()));
        let world = World { vm, space };
        world.map(start, nr_pages);
        pager::set_world(world);
        world
    }

    /// With two pages, of which the first is there.
    pub fn written() -> World {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        w
    }

    pub fn map(&self, start: u64, nr_pages: u64) {
        self.space.mmap(start * 4096, nr_pages * 4096, RW, FIXED_PRIVATE).unwrap();
    }

    /// Touches a page and takes it away again, so that tables and frame caches are there.
    pub fn touch(&self, page: u64) {
        self.space.handle_fault(page * 4096, Access::Write).unwrap();
    }

    pub fn check(&self, others: &[&AddressSpace<'static, Modelled>]) {
        let mut spaces = vec![self.space];
        spaces.extend(others);
        let mut counts = vec![0; self.vm.nr_frames() as usize + self.vm.machine().nr_swap_slots() as usize];
        if let Err(broken) = self.vm.check_in_test(&spaces, &mut counts) {
            pager::is_broken();
            panic!("{broken:?}");
        }
    }
}
