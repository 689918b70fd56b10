//! T14: what a subscriber is told of each operation, and what it may look up.

use super::*;

/// Each operation, and exactly what is told of it.
#[test]
fn t14_what_is_told_of_each_operation() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let s = w.space;
        let expect = |what: &str, notices: &[[Notice; 2]]| assert_eq!(log.take(), notices.concat(), "{what}");
        w.map(BASE, 8, RW);
        s.write(BASE, &[1; 3 * 4096]).unwrap();
        s.munmap(BASE + 7 * PAGE, PAGE).unwrap();
        expect("nobody has subscribed", &[]);
        let subscription = s.subscribe();
        s.write(BASE + 3 * PAGE, b"new").unwrap();
        s.handle_fault(BASE + 4 * PAGE, Access::Read).unwrap();
        expect("an empty entry is filled", &[]);
        s.write(BASE + 4 * PAGE, b"own").unwrap();
        expect("the zero frame gives way", &[told(BASE + 4 * PAGE, 1, Why::Copy)]);
        s.mprotect(BASE, 2 * PAGE, READ).unwrap();
        expect("fewer rights", &[told(BASE, 2, Why::Protect)]);
        s.mprotect(BASE, 2 * PAGE, RW).unwrap();
        s.write(BASE, b"reused").unwrap();
        expect("more rights", &[]);
        s.madvise(BASE, 3 * PAGE, FREE).unwrap();
        expect("free", &[told(BASE, 3, Why::Clean)]);
        s.madvise(BASE + PAGE, PAGE, DONTNEED).unwrap();
        expect("dontneed", &[told(BASE + PAGE, 1, Why::Discard)]);
        w.map(OTHER, 2, RW);
        let child = s.fork().unwrap();
        expect_fork(&log.take(), &[range(BASE, 7), range(OTHER, 2)]);
        s.write(BASE, b"copied").unwrap();
        expect("copy", &[told(BASE, 1, Why::Copy)]);
        child.write(BASE + 2 * PAGE, b"the child's").unwrap();
        child.munmap(BASE, 7 * PAGE).unwrap();
        drop(child);
        expect("another space", &[]);
        s.write(BASE + 2 * PAGE, b"reused").unwrap();
        expect("reuse", &[]);
        s.mremap(BASE, 2 * PAGE, 2 * PAGE, MAYMOVE | MREMAP_FIXED, OTHER + 8 * PAGE).unwrap();
        let moved = told(BASE, 2, Why::Move);
        expect("a move, and what faults may have put there meanwhile", &[moved, moved]);
        s.munmap(BASE + 2 * PAGE, 2 * PAGE).unwrap();
        expect("unmap", &[told(BASE + 2 * PAGE, 2, Why::Unmap)]);
        w.map(OTHER, 1, RW);
        expect("replaced", &[told(OTHER, 1, Why::Unmap)]);
        s.madvise(OTHER, PAGE, GUARD_INSTALL).unwrap();
        expect("a guard in an empty page", &[]);
        s.write(BASE + 4 * PAGE, b"here").unwrap();
        let frame = |addr| s.translate_at_rest(addr).unwrap().pfn;
        let moved = w.vm.migrate_frame(frame(BASE + 4 * PAGE)).unwrap();
        assert_eq!(frame(BASE + 4 * PAGE), moved);
        expect("a move to another frame", &[told(BASE + 4 * PAGE, 1, Why::Migrate)]);
        drop(s.pin_page_mut(BASE + 4 * PAGE, Term::Long).unwrap());
        assert_ne!(frame(BASE + 4 * PAGE), moved);
        expect("set apart by a long-term pin", &[told(BASE + 4 * PAGE, 1, Why::Migrate)]);
        s.unsubscribe(subscription).unwrap();
        s.munmap(BASE, 8 * PAGE).unwrap();
        expect("nobody any more", &[]);
    });
}

fn expect_fork(notices: &[Notice], ranges: &[PageRange]) {
    let start = |&range: &PageRange| Notice::Start { range, why: Why::Fork };
    let end = |&range: &PageRange| Notice::End { range, why: Why::Fork };
    let expected: Vec<Notice> = ranges.iter().map(start).chain(ranges.iter().map(end)).collect();
    assert_eq!(notices, expected);
}

#[test]
fn t14_pages_that_an_object_has_lost() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        let part = softfault::ObjectPart::new(&object).with_offset_bytes(2 * PAGE);
        w.space.mmap_object(BASE, 4 * PAGE, RW, SHARED | FIXED, part).unwrap();
        w.space.write(BASE, &[1; 4 * 4096]).unwrap();
        let _subscription = w.space.subscribe();
        object.discard(3..4);
        assert_eq!(log.take(), told(BASE + PAGE, 1, Why::Discard));
        drop(w.space.fork().unwrap());
        assert_eq!(log.take(), [], "shared memory keeps its rights at a fork");
        w.space.munmap(BASE, 4 * PAGE).unwrap();
    });
}

#[test]
fn t14_release() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let space = w.vm.new_space().unwrap();
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        let _subscription = space.subscribe();
        drop(space);
        assert_eq!(log.take(), [Notice::Release]);
        drop(w.vm.new_space().unwrap());
        assert_eq!(log.take(), [], "a space without a subscription");
    });
}

#[test]
fn refused_lookups_name_the_reason() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        w.map(BASE, 2, RW);
        let other = w.vm.new_space().unwrap();
        let subscription = w.space.subscribe();
        let second = other.subscribe();
        let lookup = |addr| subscription.lookup(w.space, addr).map(|found| found.translation.rights);
        assert_eq!(lookup(BASE), Err(LookupRefused::Absent));
        w.space.write(BASE, b"there").unwrap();
        assert_eq!(lookup(BASE + 17), Ok(Rights::READ | Rights::WRITE));
        for addr in [1 << 47, 1 << 63, u64::MAX] {
            assert_eq!(lookup(addr), Err(LookupRefused::Absent), "{addr:#x}");
        }
        assert_eq!(second.lookup(w.space, BASE).unwrap_err(), LookupRefused::OtherSpace);
        assert_eq!(subscription.lookup(&other, BASE).unwrap_err(), LookupRefused::OtherSpace);
        let before = subscription.lookup(w.space, BASE).unwrap();
        assert!(subscription.is_current(w.space, &before) && !second.is_current(w.space, &before));
        w.space.write(BASE + PAGE, b"elsewhere").unwrap();
        assert!(subscription.is_current(w.space, &before), "nothing has changed");
        w.space.madvise(BASE, PAGE, DONTNEED).unwrap();
        assert!(!subscription.is_current(w.space, &before));
        let events = [Event::LookupAbsent, Event::LookupOtherSpace, Event::LookupUnderWay];
        assert_eq!(events.map(|event| w.vm.event(event)), [4, 2, 0]);
        let second = w.space.unsubscribe(second).unwrap_err();
        other.unsubscribe(second).unwrap();
        w.space.unsubscribe(subscription).unwrap();
        let state = w.space.page_state(BASE + PAGE).unwrap();
        assert_eq!((state.rights, state.order.nr_pages()), (Rights::READ | Rights::WRITE, 1));
    });
}

/// T14 for huge pages: what changes is told whole; what is split is not told.
#[test]
fn t14_what_is_told_of_huge_pages() {
    // The huge zero page stays, so frames are not counted at the end.
    let vm = Setup::PLAIN.vm(1, 48 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    {
        let w = &World { vm: &vm, cpu: &cpu, space: &space };
        let log = Log::of(w.vm);
        let s = w.space;
        let expect = |what: &str, notices: &[[Notice; 2]]| assert_eq!(log.take(), notices.concat(), "{what}");
        enable(w, CowHuge::Copy);
        w.map(AT, 3 * NR_PAGES, RW);
        let subscription = s.subscribe();
        s.handle_fault(AT + 5 * PAGE, Access::Write).unwrap();
        s.handle_fault(AT + HUGE, Access::Read).unwrap();
        expect("huge pages in empty entries", &[]);
        let found = subscription.lookup(s, AT + 7 * PAGE).unwrap();
        let first = subscription.lookup(s, AT).unwrap();
        assert_eq!((found.translation.order, found.translation.pfn.0), (Order::PMD, first.translation.pfn.0 + 7));
        s.handle_fault(AT + HUGE + 9 * PAGE, Access::Write).unwrap();
        expect("the huge zero page gives way", &[told(AT + HUGE, NR_PAGES, Why::Copy)]);
        let child = s.fork().unwrap();
        log.take();
        s.write(AT + 3 * PAGE, b"copied").unwrap();
        expect("all of it is copied", &[told(AT, NR_PAGES, Why::Copy)]);
        enable(w, CowHuge::Split);
        s.write(AT + HUGE + 3 * PAGE, b"copied").unwrap();
        expect("one page is copied", &[told(AT + HUGE + 3 * PAGE, 1, Why::Copy)]);
        drop(child);
        s.mprotect(AT + 2 * PAGE, 3 * PAGE, READ).unwrap();
        assert_eq!(s.page_state(AT).unwrap().order, Order::BASE, "it is split");
        expect("a part loses a right", &[told(AT + 2 * PAGE, 3, Why::Protect)]);
        s.mprotect(AT, HUGE, RW).unwrap();
        s.madvise(AT, HUGE, Advice::Collapse).unwrap();
        expect("collapse", &[told(AT, NR_PAGES, Why::Collapse)]);
        s.madvise(AT + PAGE, PAGE, DONTNEED).unwrap();
        expect("a part goes", &[told(AT + PAGE, 1, Why::Discard)]);
        s.munmap(AT + HUGE, HUGE).unwrap();
        expect("all of it goes", &[told(AT + HUGE, NR_PAGES, Why::Unmap)]);
        s.unsubscribe(subscription).unwrap();
    }
    check(&vm, &[&space]);
}
