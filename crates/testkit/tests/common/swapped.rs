//! For tests of swap: a machine with a swap area, and three pages to write there.

use super::{BASE, Format, Hosted, PAGE, World, check};
use softfault::policy::huge::Enabled;
use softfault::{CpuId, HugeKnobs, Tunables, Vm};
use softfault_testkit::formats::Tested;

pub const AWAY: u64 = BASE + (1 << 32);
pub const NR_PAGES: u64 = 3;
pub const BYTES: u64 = NR_PAGES * PAGE;
pub const MIDDLE: u64 = BASE + PAGE;

/// A machine of 32 MiB with so many slots.
pub fn vm_with_slots(nr_cpus: usize, nr_slots: u64) -> Vm<Hosted> {
    let config = Format::config()
        .with_nr_cpus(nr_cpus)
        .with_arena_bytes(32 << 20)
        .with_swap_bytes(nr_slots * PAGE)
        .with_strict_bbm(true);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
    Vm::new(Hosted::with_format(config).unwrap(), Tunables::default().with_thp(thp)).unwrap()
}

/// Runs a test on such a machine of two CPUs, with one space. Afterwards everything has to be whole and back.
pub fn with_slots(nr_slots: u64, test: impl Fn(&World<'_>)) {
    let vm = vm_with_slots(2, nr_slots);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        test(&World { vm: &vm, cpu: &cpu, space: &space });
        check(&vm, &[&space]);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(&vm), Ok(()));
    assert_eq!(vm.machine().violations(), (0, None));
}

/// Fills the pages that are mapped at `BASE`: page i with bytes 7 + i.
pub fn fill(w: &World<'_>) {
    for page in 0..NR_PAGES {
        w.space.write(BASE + page * PAGE, &[7 + page as u8; PAGE as usize]).unwrap();
    }
}
