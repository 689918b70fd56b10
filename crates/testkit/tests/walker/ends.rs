//! Changes that end a translation, and changes that do not.

use super::*;

/// Whatever takes the page, its frame or a right away ends the translation.
#[test]
fn a_translation_ends_with_what_it_was_of() {
    type Change = fn(&Space<'_>);
    let changes: [(&str, Change); 9] = [
        ("munmap", |s| s.munmap(BASE, PAGE).unwrap()),
        ("mmap over it", |s| _ = s.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap()),
        ("mprotect", |s| s.mprotect(BASE, PAGE, READ).unwrap()),
        ("mremap", |s| _ = s.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, BASE + 64 * PAGE).unwrap()),
        ("MADV_DONTNEED", |s| s.madvise(BASE, PAGE, DONTNEED).unwrap()),
        ("a guard", |s| s.madvise(BASE, PAGE, GUARD_INSTALL).unwrap()),
        ("fork", |s| drop(s.fork().unwrap())),
        ("migration", |s| _ = s.vm().migrate_frame(s.translate_at_rest(BASE).unwrap().pfn).unwrap()),
        ("the end of all", |s| s.munmap(0, Format::TASK_SIZE).unwrap()),
    ];
    for (name, change) in changes {
        with_walker(|space, walker| {
            let walked = walker.translate(BASE, Access::Write).unwrap();
            let stamp = walker.stamp();
            assert!(walker.is_current(&walked) && walked.stamp() == stamp);
            change(space);
            assert!(!walker.is_current(&walked) && walker.stamp() != stamp, "{name}");
            assert_eq!(walker.store_through(&walked, 0, &[1]), Err(Miss::Stale), "{name}");
            assert_eq!(loaded(walker, &walked), Err(Miss::Stale), "{name}");
        });
    }
}

/// The zero frame, and a page that a child shares: a store gets another frame.
#[test]
fn a_copy_ends_the_translation_of_what_was_copied() {
    with_walker(|space, walker| {
        let zero = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(zero.translation().rights, Rights::READ);
        let written = walker.translate(BASE, Access::Write).unwrap();
        assert!(!walker.is_current(&zero) && zero.translation().pfn != written.translation().pfn);
        let child = space.fork().unwrap();
        let shared = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(shared.translation().rights, Rights::READ, "though the page is dirty");
        let copied = walker.translate(BASE, Access::Write).unwrap();
        assert!(!walker.is_current(&shared) && walker.is_current(&copied));
        walker.store_through(&copied, 0, &[9]).unwrap();
        let mut byte = [1];
        child.read(BASE, &mut byte).unwrap();
        assert_eq!(byte, [0]);
    });
}

/// A change that adds rights or pages ends nothing.
#[test]
fn a_translation_outlives_what_takes_nothing_away() {
    with_walker(|space, walker| {
        let walked = walker.translate(BASE, Access::Write).unwrap();
        space.mmap(BASE + 64 * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE + PAGE, &[1; 8 * PAGE as usize]).unwrap();
        assert!(walker.is_current(&walked));
        assert_eq!(loaded(walker, &walked), Ok(0));
    });
}

/// A page of a huge mapping: its own frame, and the size. Collapse and split end it.
#[test]
fn a_huge_page() {
    let vm = huge::vm(1, 64 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Always));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, HUGE);
    let active = space.activate();
    let walker = active.walker();
    let first = walker.translate(AT, Access::Write).unwrap().translation();
    assert_eq!((first.order, first.rights), (Order::PMD, RIGHTS_RW));
    let walked = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    assert_eq!(walked.translation().pfn.0, first.pfn.0 + 7);
    walker.store_through(&walked, 3, &[7]).unwrap();
    assert_eq!(huge::byte(&space, AT + 7 * PAGE + 3), 7);
    space.mprotect(AT, PAGE, READ).unwrap();
    assert!(!walker.is_current(&walked), "split");
    let small = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    assert_eq!((small.translation().order, small.translation().pfn), (Order::BASE, walked.translation().pfn));
    space.mprotect(AT, PAGE, RW).unwrap();
    let small = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    space.collapse(AT).unwrap();
    assert_eq!(walker.store_through(&small, 3, &[1]), Err(Miss::Stale));
    assert_eq!(walker.translate(AT + 7 * PAGE, Access::Write).unwrap().translation().order, Order::PMD);
    drop(active);
}

/// Translations are of one space of one machine, and changes count also while no CPU
/// has a walker.
#[test]
fn a_translation_is_of_one_space() {
    let (vm, other) = (Setup::PLAIN.vm(1, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let spaces = [vm.new_space().unwrap(), vm.new_space().unwrap()];
    let walk = |space: &Space<'_>, test: &dyn Fn(&Walk<'_, '_>)| test(&space.activate().walker());
    let walked = spaces.each_ref().map(|space| {
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        space.activate().walker().translate(BASE, Access::Write).unwrap()
    });
    for i in [0, 1] {
        walk(&spaces[i], &|walker| {
            assert_eq!(walker.store_through(&walked[i], 0, &[1]), Ok(()), "across activations");
            assert!(!walker.is_current(&walked[1 - i]));
            assert_eq!(walker.store_through(&walked[1 - i], 0, &[1]), Err(Miss::Stale));
        });
    }
    spaces[0].madvise(BASE, PAGE, DONTNEED).unwrap();
    walk(&spaces[0], &|walker| assert_eq!(loaded(walker, &walked[0]), Err(Miss::Stale)));
    drop(cpu);
    thread::scope(|threads| {
        let walked = &walked[1];
        let look = || {
            let _cpu = other.machine().bind(CpuId(0)).unwrap();
            let ids = [other.new_space().unwrap(), other.new_space().unwrap()];
            walk(&ids[1], &|walker| assert!(!walker.is_current(walked), "of another Vm"));
        };
        threads.spawn(look).join().unwrap();
    });
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    drop(spaces);
}

/// A subscriber is called in the middle of an operation.
#[test]
fn a_walker_does_not_walk_in_a_notice() {
    thread_local!(static WALKER: Cell<Option<(&'static Walk<'static, 'static>, Walked<'static>)>> = const { Cell::new(None) });
    let calls: [fn(&Walk<'static, 'static>, Walked<'static>); 2] =
        [|walker, _| _ = walker.translate(BASE, Access::Read), |walker, walked| _ = loaded(walker, &walked)];
    for call in calls {
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
        let active: &'static Active<'static, 'static, Hosted> = Box::leak(Box::new(space.activate()));
        let walker: &'static Walk<'static, 'static> = Box::leak(Box::new(active.walker()));
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        WALKER.set(Some((walker, walker.translate(BASE, Access::Write).unwrap())));
        let tell = move |_, notice: &Notice| {
            let (walker, walked) = WALKER.get().unwrap();
            if matches!(notice, Notice::Start { .. }) {
                call(walker, walked);
            }
            false
        };
        assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
        let _subscription = space.subscribe();
        space.munmap(BASE, PAGE).unwrap();
        assert_eq!(vm.machine().notices_lost(), 1);
        WALKER.set(None);
    }
}
