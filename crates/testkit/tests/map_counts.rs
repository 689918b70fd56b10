//! A private page with as many mappings as can be counted: fork copies it, and nothing else
//! changes. No memory has room for so many entries, so the count is set by hand.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, byte, huge_pages, map, with_space};
use common::{FIXED, PAGE, PRIVATE, RW, check, frame_of};
use softfault::policy::huge::Enabled;
use softfault::{Access, Event, FaultDone, HugeKnobs, MapFlags, Order, Pfn, Vm};
use softfault_host::Hosted;

const FULL: i64 = Vm::<Hosted>::MAX_MAPPINGS as i64;

/// Adds to the count of mappings of a page, and takes the same back later.
#[allow(unsafe_code)]
fn pretend(vm: &Vm<Hosted>, pfn: Pfn, nr: i64) {
    // SAFETY: I13, I14: the page has an entry meanwhile, and each test takes back what
    // it added before it drops a space.
    unsafe { vm.pretend_mappings(pfn, nr) }
}

fn knobs(enabled: Enabled) -> HugeKnobs {
    HugeKnobs::DEFAULT.with_enabled(enabled)
}

#[test]
fn fork_copies_a_page_that_is_mapped_too_often() {
    with_space(knobs(Enabled::Never), |vm, space| {
        map(space, AT, 2 * PAGE);
        space.write(AT, &[1]).unwrap();
        space.write(AT + PAGE, &[2]).unwrap();
        let (full, nearly) = (frame_of(space, AT), frame_of(space, AT + PAGE));
        // Its own entry counts, too.
        pretend(vm, full, FULL - 1);
        pretend(vm, nearly, FULL - 2);
        let child = space.fork().unwrap();
        assert_eq!((vm.event(Event::ForkMapsFull), vm.event(Event::ForkPinned)), (1, 0));
        assert!(frame_of(&child, AT) != full, "it is shared all the same");
        assert_eq!(frame_of(&child, AT + PAGE), nearly, "one more had room");
        pretend(vm, full, 1 - FULL);
        pretend(vm, nearly, 2 - FULL);
        check(vm, &[space, &child]);
        space.write(AT, &[3, 3]).unwrap();
        space.write(AT + PAGE, &[4]).unwrap();
        assert_eq!((byte(&child, AT), byte(&child, AT + PAGE)), (1, 2));
        child.write(AT, &[5]).unwrap();
        assert_eq!((byte(space, AT), byte(space, AT + PAGE)), (3, 4));
        check(vm, &[space, &child]);
    });
}

#[test]
fn fork_splits_a_huge_page_that_is_mapped_too_often() {
    with_space(knobs(Enabled::Always), |vm, space| {
        map(space, AT, HUGE);
        assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Huge));
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8, 9]).unwrap());
        let first = frame_of(space, AT);
        let other = space.fork().unwrap();
        pretend(vm, first, FULL - 2);
        let child = space.fork().unwrap();
        assert_eq!((huge_pages(space), huge_pages(&child), huge_pages(&other)), (0, 0, 1));
        pretend(vm, first, 2 - FULL);
        check(vm, &[space, &other, &child]);
        space.write(AT + PAGE, &[77]).unwrap();
        (0..512).for_each(|page| assert_eq!(byte(&child, AT + page * PAGE), page as u8));
        assert_eq!(byte(space, AT + PAGE), 77);
    });
}

#[test]
fn fork_copies_a_page_of_a_pool_that_is_mapped_too_often() {
    with_space(knobs(Enabled::Never), |vm, space| {
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        assert_eq!(space.mmap(AT, HUGE, RW, PRIVATE | FIXED | MapFlags::HUGETLB), Ok(AT));
        space.write(AT, &[1]).unwrap();
        let first = frame_of(space, AT);
        pretend(vm, first, FULL - 1);
        let child = space.fork().unwrap();
        pretend(vm, first, 1 - FULL);
        assert_eq!((vm.event(Event::ForkMapsFull), vm.event(Event::ForkNoHugePage)), (1, 0));
        assert!(frame_of(&child, AT) != first, "it is shared all the same");
        check(vm, &[space, &child]);
        space.write(AT, &[3]).unwrap();
        assert_eq!((byte(&child, AT), byte(space, AT)), (1, 3));
        child.munmap(AT, HUGE).unwrap();
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    });
}
