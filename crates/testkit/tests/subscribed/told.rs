//! Notices of moves and failed memory, and their order.

use super::*;

/// Those who share the page are told if they have subscribers, all before the first of its
/// entries is taken, and after the last one is there again.
#[test]
fn all_who_map_the_page_are_told() {
    in_each_setup(1, ARENA, |w| {
        let log = Log::of(w.vm);
        w.map(BASE, 2, RW);
        w.space.write(BASE, b"here").unwrap();
        w.space.write(BASE + PAGE, b"not").unwrap();
        let children: Vec<Space<'_>> = (0..3).map(|_| w.space.fork().unwrap()).collect();
        children[2].write(BASE, b"a page of its own").unwrap();
        let _subscriptions = [1, 2].map(|i| children[i].subscribe());
        let second = children[0].subscribe();
        children[0].unsubscribe(second).unwrap();
        let before = frame_of(w.space, BASE);
        let now = w.vm.migrate_frame(before).unwrap();
        assert_ne!(before, now);
        assert_eq!([w.space, &children[0], &children[1]].map(|s| frame_of(s, BASE)), [now; 3]);
        assert_eq!(log.take(), told(&children[1], BASE, Why::Migrate), "one of four has a subscriber and the page");
        let _here = w.space.subscribe();
        w.vm.migrate_frame(now).unwrap();
        let [[first, last], [second, third]] =
            [told(&children[1], BASE, Why::Migrate), told(w.space, BASE, Why::Migrate)];
        assert_eq!(log.take(), [first, second, last, third]);
        assert_eq!(w.vm.event(Event::MigrateRefusedSubscribed), 0);
        let mut bytes = [0; 4];
        children[1].read(BASE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"here");
        check(w.vm, &[w.space, &children[0], &children[1], &children[2]]);
    });
}

/// Both notices come also for a page that stays.
#[test]
fn a_pinned_page_stays() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"here").unwrap();
        let subscription = w.space.subscribe();
        let before = frame_of(w.space, BASE);
        let pin = w.space.pin_page_mut(BASE, Term::Short).unwrap();
        assert_eq!(w.vm.migrate_frame(before), Err(MigrateRefusal::Pinned));
        assert_eq!(log.take(), [], "it is seen before anybody is told");
        drop(pin);
        // More entries than are handled at once.
        let children: Vec<Space<'_>> = (0..16).map(|_| w.space.fork().unwrap()).collect();
        log.take();
        assert_eq!(w.vm.migrate_frame(before), Err(MigrateRefusal::TooManyMaps));
        assert_eq!(log.take(), []);
        let others: Vec<Subscription<'_, Hosted>> = children.iter().map(Space::subscribe).collect();
        children[15].munmap(BASE, PAGE).unwrap();
        log.take();
        assert_ne!(w.vm.migrate_frame(before).unwrap(), before);
        assert_eq!(log.take().len(), 2 * 16);
        drop((others, children));
        w.space.unsubscribe(subscription).unwrap();
    });
}

/// A failed page goes out of use, and a guest that maps it lets it go before.
#[test]
fn subscribers_hear_that_memory_has_failed() {
    let vm = Setup::PLAIN.vm(1, ARENA);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let log = Log::of(&vm);
    let space = vm.new_space().unwrap();
    space.mmap(BASE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[7; 2 * PAGE as usize]).unwrap();
    let child = space.fork().unwrap();
    let subscription = space.subscribe();
    let failed = frame_of(&space, BASE);
    assert_eq!(vm.poison_frame(failed), Ok(2));
    assert_eq!(log.take(), told(&space, BASE, Why::Poison));
    assert_eq!(vm.poison_frame(failed), Err(PoisonRefusal::Stays(MigrateRefusal::Reserved)));
    // A page of an object.
    let object = vm.new_shared_object(PAGE).unwrap();
    let shared = BASE + (1 << 32);
    objects::map(&space, shared, 1, &object, 0);
    space.write(shared, b"s").unwrap();
    log.take();
    assert_eq!(vm.poison_frame(frame_of(&space, shared)), Ok(0));
    assert_eq!(log.take(), told(&space, shared, Why::Poison));
    assert_eq!(log.take(), []);
    let found = subscription.lookup(&space, BASE + PAGE).unwrap();
    assert!(subscription.is_current(&space, &found) && subscription.lookup(&space, BASE).is_err());
    check(&vm, &[&space, &child]);
    space.unsubscribe(subscription).unwrap();
}

/// All of memory with the first `nr_kept` pages of each `of` in use; gives their places.
fn fragment(w: &World<'_>, of: u64, nr_kept: u64) -> Vec<u64> {
    let nr_pages = w.vm.vmstat().nr_free_pages / 100 * 90;
    w.map(BASE, nr_pages, RW);
    let places = || (0..nr_pages).map(|page| BASE + page * PAGE);
    places().for_each(|at| w.space.write(at, &at.to_ne_bytes()).unwrap());
    let is_kept = |at: &u64| (at - BASE) / PAGE % of < nr_kept;
    places().filter(|at| !is_kept(at)).for_each(|at| w.space.madvise(at, PAGE, DONTNEED).unwrap());
    places().filter(is_kept).collect()
}

/// Those of the places whose page is in another frame than before.
fn moved_of(w: &World<'_>, places: &[u64], before: &[Pfn]) -> Vec<u64> {
    places.iter().zip(before).filter(|(at, pfn)| frame_of(w.space, **at) != **pfn).map(|(at, _)| *at).collect()
}

/// Of each page that has moved, everybody who shares it was told, start and end.
fn assert_told(notices: &[(SpaceTag, Notice)], tag: SpaceTag, moved: &[u64]) {
    let (mut started, mut ended) = (Vec::new(), Vec::new());
    for (_, notice) in notices.iter().filter(|(of, _)| *of == tag) {
        match *notice {
            Notice::Start { range, why: Why::Migrate } => started.push(range),
            Notice::End { range, why: Why::Migrate } => ended.push(range),
            _ => panic!("{notice:?}"),
        }
    }
    assert_eq!(started.len(), ended.len());
    for at in moved {
        let is_in = |ranges: &[PageRange]| ranges.iter().any(|range| range.contains(Vpn::of(*at)));
        assert!(is_in(&started) && is_in(&ended), "{at:#x} has moved in {tag:?}, which was not told");
    }
}

/// Nine spaces with subscribers and one without share every page: two pages have more places
/// than are told at once.
#[test]
fn compaction_tells_all_who_share_a_block() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let kept = fragment(w, 20, 1);
        let children: Vec<Space<'_>> = (0..9).map(|_| w.space.fork().unwrap()).collect();
        let subscriptions: Vec<_> = children.iter().map(Space::subscribe).collect();
        let log = Log::of(w.vm);
        let before: Vec<Pfn> = kept.iter().map(|at| frame_of(w.space, *at)).collect();
        // A fault may not tell, and does not move them.
        let refused = w.vm.compact_step(&CompactBudget::BACKGROUND.with_moves_subscribed(false));
        assert_eq!(refused, Err(CompactRefusal::InTheWay(MigrateRefusal::Subscribed)));
        assert!(w.vm.event(Event::MigrateRefusedSubscribed) > 0 && log.take().is_empty());
        assert_eq!(kept.iter().map(|at| frame_of(w.space, *at)).collect::<Vec<_>>(), before);
        assert_eq!((w.vm.event(Event::PgmigrateSuccess), w.vm.compact_step(&CompactBudget::BACKGROUND)), (0, Ok(())));
        let moved = moved_of(w, &kept, &before);
        assert_eq!(moved.len() as u64, w.vm.event(Event::PgmigrateSuccess));
        assert!(moved.len() > 5, "{} pages have moved", moved.len());
        let notices = log.take();
        children.iter().for_each(|child| assert_told(&notices, child.tag(), &moved));
        assert!(notices.iter().all(|(tag, _)| *tag != w.space.tag()), "it has no subscriber");
        for at in &kept {
            let mut bytes = [0; 8];
            children[8].read(*at, &mut bytes).unwrap();
            assert_eq!((u64::from_ne_bytes(bytes), frame_of(w.space, *at)), (*at, frame_of(&children[0], *at)));
        }
        let mut all = vec![w.space];
        all.extend(&children);
        check(w.vm, &all);
        drop(subscriptions);
    });
}

/// Pages that follow one another in the space are told of together.
#[test]
fn neighbours_are_told_of_in_one_notice() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let kept = fragment(w, 128, 8);
        let subscription = w.space.subscribe();
        let log = Log::of(w.vm);
        let before: Vec<Pfn> = kept.iter().map(|at| frame_of(w.space, *at)).collect();
        assert_eq!(w.vm.compact_step(&CompactBudget::BACKGROUND), Ok(()));
        let moved = moved_of(w, &kept, &before);
        let notices = log.take();
        assert!(moved.len() >= 8, "{} pages have moved", moved.len());
        assert_told(&notices, w.space.tag(), &moved);
        assert!(notices.len() <= moved.len() / 2, "{} notices of {} pages", notices.len(), moved.len());
        w.space.unsubscribe(subscription).unwrap();
    });
}
