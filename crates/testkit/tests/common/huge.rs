//! For tests of huge pages: a machine with knobs, one space, bytes of pages.

use super::{FIXED, Format, Hosted, PRIVATE, RW, Space, check};
use softfault::{Advice, CpuId, Event, HugeKnobs, Tunables, Vm};
use softfault_testkit::formats::Tested;

pub const HUGE: u64 = 2 << 20;
pub const AT: u64 = 0x10_0000_0000;
pub const DONTNEED: Advice = Advice::DontNeed;

pub fn vm(nr_cpus: usize, arena_bytes: u64, thp: HugeKnobs) -> Vm<Hosted> {
    let hosted =
        Hosted::with_format(Format::config().with_nr_cpus(nr_cpus).with_arena_bytes(arena_bytes).with_zeroed(false))
            .unwrap();
    let tunables = Tunables::default().with_thp(thp);
    Vm::new(hosted, tunables).unwrap()
}

/// A machine of 64 MiB with one space; afterwards everything has to be back, but
/// for the huge zero frame.
pub fn with_space(thp: HugeKnobs, test: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let vm = vm(1, 64 << 20, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        let active = space.activate();
        test(&vm, &space);
        check(&vm, &[&space]);
        drop(active);
    }
    check(&vm, &[]);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(&vm), Ok(()));
    let zero = 512 * vm.event(Event::ThpZeroPageAlloc);
    assert_eq!(vm.vmstat().nr_free_pages + zero, before);
}

pub fn map(space: &Space<'_>, at: u64, len: u64) {
    assert_eq!(space.mmap(at, len, RW, PRIVATE | FIXED), Ok(at));
}

pub fn byte(space: &Space<'_>, at: u64) -> u8 {
    let mut b = [0];
    space.read(at, &mut b).unwrap();
    b[0]
}

pub fn huge_pages(space: &Space<'_>) -> u64 {
    space.rss_pages().anon_huge / 512
}
