//! Hardware that makes no entry accessed or dirty, but faults (RISC-V with Svade): a
//! fault that finds nothing else to do does it, or the access would fault for ever.

mod common;

use common::huge::{AT, HUGE, map};
use common::{FREE, Hosted, PAGE, PRIVATE, READ, RW, RWX, Running, SHARED, Space, check};
use softfault::policy::huge::{Enabled, SizeEnabled};
use softfault::{Access, CpuId, FaultDone, HugeKnobs, Order, Tunables, Vm};
use softfault_host::HostedConfig;

/// The VMAs of a test lie here, a huge page each.
const SMALL: u64 = AT;
const LARGE: u64 = AT + 2 * HUGE;

fn with_program(enabled: Enabled, test: impl Fn(&Running<'_>)) {
    on_machine(true, enabled, test);
}

fn on_machine(software_ad_bits: bool, enabled: Enabled, test: impl Fn(&Running<'_>)) {
    let config = HostedConfig::default().with_arena_bytes(32 << 20).with_software_ad_bits(software_ad_bits);
    let thp = HugeKnobs::DEFAULT.with_enabled(enabled);
    let vm = Vm::new(Hosted::with_format(config).unwrap(), Tunables::default().with_thp(thp)).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    test(&cpu.enter(&space).unwrap());
    check(&vm, &[&space]);
}

/// The results of the faults of one access, until it succeeded. No access is refused for
/// more than two reasons: the page, and the marks.
fn faults(program: &Running<'_>, at: u64, access: Access) -> Vec<FaultDone> {
    let mut done = Vec::new();
    loop {
        let tried = match access {
            Access::Read => program.try_load(at, &mut [0]),
            Access::Write => program.try_store(at, &[1]),
            Access::Exec => program.try_fetch(at).map(drop),
        };
        let Err(fault) = tried else { return done };
        assert!(done.len() < 2, "{access:?} faults for ever: {done:?}");
        done.push(program.space().handle_fault(fault.addr, fault.access).unwrap());
    }
}

fn all_sizes() -> HugeKnobs {
    let mut knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
    knobs.sizes.fill(SizeEnabled::Always);
    knobs
}

/// Pages that are accessed, and that are dirty.
fn marks(space: &Space<'_>) -> (u64, u64) {
    let (mut nr_accessed, mut nr_dirty) = (0, 0);
    space.smaps(&mut |entry| {
        nr_accessed += entry.referenced_pages;
        nr_dirty += entry.dirty_pages;
    });
    (nr_accessed, nr_dirty)
}

/// A page that is there and has no marks: each access faults once.
fn accesses_to_an_old_page(program: &Running<'_>, at: u64, nr_pages: u64) {
    let space = program.space();
    assert_eq!(marks(space), (0, 0));
    assert_eq!(faults(program, at, Access::Read), [FaultDone::Marked]);
    assert_eq!(marks(space), (nr_pages, 0), "a load leaves it clean");
    assert_eq!(faults(program, at, Access::Read), []);
    assert_eq!(faults(program, at, Access::Write), [FaultDone::Marked]);
    assert_eq!(marks(space), (nr_pages, nr_pages));
    assert_eq!(faults(program, at, Access::Write), []);
    assert_eq!(space.test_and_clear_young(at, PAGE), nr_pages);
    assert_eq!(marks(space), (0, nr_pages), "old, and still dirty");
    assert_eq!(faults(program, at, Access::Write), [FaultDone::Marked]);
    assert_eq!(marks(space), (nr_pages, nr_pages));
}

#[test]
fn a_private_page() {
    with_program(Enabled::Never, |program| {
        map(program.space(), SMALL, PAGE);
        assert_eq!(faults(program, SMALL, Access::Write), [FaultDone::Installed], "with its marks");
        program.space().madvise(SMALL, PAGE, FREE).unwrap();
        accesses_to_an_old_page(program, SMALL, 1);
    });
}

#[test]
fn a_huge_page() {
    with_program(Enabled::Always, |program| {
        map(program.space(), LARGE, HUGE);
        assert_eq!(faults(program, LARGE + 7 * PAGE, Access::Write), [FaultDone::Huge]);
        program.space().madvise(LARGE, HUGE, FREE).unwrap();
        accesses_to_an_old_page(program, LARGE + 9 * PAGE, 512);
    });
}

/// Neighbours that hardware would have to mark come old and clean; others come marked, as
/// on Linux, since each would cost a fault otherwise.
#[test]
fn a_page_with_neighbours() {
    for software_ad_bits in [false, true] {
        on_machine(software_ad_bits, Enabled::Never, |program| {
            let space = program.space();
            space.vm().set_huge_knobs(&all_sizes()).unwrap();
            map(space, SMALL, 16 * PAGE);
            let done = faults(program, SMALL + 5 * PAGE, Access::Write);
            assert_eq!(done, [FaultDone::Folio(Order(4))]);
            assert_eq!(marks(space), if software_ad_bits { (16, 16) } else { (1, 1) });
            (0..16).for_each(|page| assert_eq!(faults(program, SMALL + page * PAGE, Access::Write), []));
            assert_eq!(marks(space), (16, 16));
        });
    }
}

#[test]
fn a_page_of_an_object() {
    with_program(Enabled::Never, |program| {
        let space = program.space();
        let at = space.mmap(0, PAGE, RW, SHARED).unwrap();
        // A missing page is put into the object first; that is a turn, and no fault.
        assert_eq!(faults(program, at, Access::Read), [FaultDone::Shared]);
        assert_eq!(marks(space), (1, 0));
        assert_eq!(space.test_and_clear_young(at, PAGE), 1);
        accesses_to_an_old_page(program, at, 1);
    });
}

#[test]
fn the_zero_pages() {
    for (enabled, at, done, copied) in [
        (Enabled::Never, SMALL, FaultDone::ZeroFrame, FaultDone::Installed),
        (Enabled::Always, LARGE, FaultDone::HugeZero, FaultDone::Huge),
    ] {
        with_program(enabled, |program| {
            map(program.space(), at, HUGE);
            assert_eq!(faults(program, at, Access::Read), [done]);
            assert!(program.space().test_and_clear_young(at, PAGE) > 0);
            assert_eq!(faults(program, at, Access::Read), [FaultDone::Marked]);
            assert_eq!(faults(program, at, Access::Write), [copied]);
            assert_eq!(faults(program, at, Access::Write), []);
        });
    }
}

/// More rights and the marks of the access that asked for them come together.
#[test]
fn a_page_that_gets_rights() {
    with_program(Enabled::Never, |program| {
        let space = program.space();
        let at = space.mmap(0, PAGE, READ, SHARED).unwrap();
        assert_eq!(faults(program, at, Access::Read), [FaultDone::Shared]);
        assert_eq!(space.test_and_clear_young(at, PAGE), 1);
        space.mprotect(at, PAGE, RW).unwrap();
        assert_eq!(faults(program, at, Access::Write), [FaultDone::Widened]);
        assert_eq!(marks(space), (1, 1));
        space.munmap(at, PAGE).unwrap();
    });
}

/// A page that was shared with a child is the parent's alone again.
#[test]
fn a_page_that_is_used_again() {
    with_program(Enabled::Never, |program| {
        let space = program.space();
        let at = space.mmap(0, PAGE, RWX, PRIVATE).unwrap();
        assert_eq!(faults(program, at, Access::Write), [FaultDone::Installed]);
        space.madvise(at, PAGE, FREE).unwrap();
        drop(space.fork().unwrap());
        assert_eq!(faults(program, at, Access::Exec), [FaultDone::Marked]);
        assert_eq!(faults(program, at, Access::Write), [FaultDone::Reused]);
        assert_eq!(marks(space), (1, 1));
        let child = space.fork().unwrap();
        assert_eq!(faults(program, at, Access::Write), [FaultDone::Copied]);
        assert_eq!(marks(space), (1, 1));
        drop(child);
    });
}

/// Accesses that the core makes for the program leave their marks, too.
#[test]
fn accesses_of_the_cores() {
    with_program(Enabled::Never, |program| {
        let space = program.space();
        map(space, SMALL, PAGE);
        space.write(SMALL, &[1]).unwrap();
        space.madvise(SMALL, PAGE, FREE).unwrap();
        space.read(SMALL, &mut [0]).unwrap();
        assert_eq!(marks(space), (1, 0));
        assert_eq!(faults(program, SMALL, Access::Read), []);
        space.write(SMALL, &[2]).unwrap();
        assert_eq!(marks(space), (1, 1));
        assert_eq!(faults(program, SMALL, Access::Write), []);
    });
}
