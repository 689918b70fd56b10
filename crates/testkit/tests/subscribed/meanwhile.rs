//! Subscriptions, mappings and spaces that change while others are told of a move.

use super::*;
use common::stops::Stops;

/// Stops a mover at each of its notices, and the end of a space.
fn stops(vm: &Vm<Hosted>) -> Stops {
    Stops::at(vm, |notice| match *notice {
        Notice::Start { why, .. } | Notice::End { why, .. } => why == Why::Migrate,
        _ => *notice == Notice::Release,
    })
}

/// The page at `BASE` moves on CPU 1. At the start of this, of which `subscribed` is told,
/// `at_start` runs; gives what came of the move, and what was told of it.
fn move_while(
    w: &World<'_>,
    subscribed: &Space<'_>,
    at_start: impl FnOnce(),
) -> (Result<Pfn, MigrateRefusal>, Vec<(SpaceTag, Notice)>) {
    let stops = stops(w.vm);
    let before = frame_of(w.space, BASE);
    let moved = Mutex::new(None);
    let mover = |_: &Running<'_>, _: &AtomicBool| *moved.lock().unwrap() = Some(w.vm.migrate_frame(before));
    let mut notices = Vec::new();
    w.race(&[&mover], |_| {
        notices.push(stops.next());
        assert_eq!(notices[0], told(subscribed, BASE, Why::Migrate)[0]);
        at_start();
        stops.go_on();
        while moved.lock().unwrap().is_none() {
            if let Some(notice) = stops.next_soon() {
                notices.push(notice);
                stops.go_on();
            }
        }
    });
    (moved.into_inner().unwrap().unwrap(), notices)
}

/// Nobody has told the subscriber who comes while another one is told. So the page stays.
#[test]
fn a_subscription_that_comes_meanwhile() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"here").unwrap();
        let child = w.space.fork().unwrap();
        let _subscription = child.subscribe();
        let before = frame_of(w.space, BASE);
        let mut late = None;
        let (moved, notices) = move_while(w, &child, || {
            let subscription = w.space.subscribe();
            let found = subscription.lookup(w.space, BASE).unwrap();
            late = Some((subscription, found));
        });
        assert_eq!((moved, frame_of(w.space, BASE)), (Err(MigrateRefusal::Raced), before));
        assert_eq!(notices, told(&child, BASE, Why::Migrate), "both notices come though the page stays");
        let (subscription, found) = late.unwrap();
        assert!(subscription.is_current(w.space, &found), "nothing has changed");
        check(w.vm, &[w.space, &child]);
        w.space.unsubscribe(subscription).unwrap();
    });
}

/// A space loses its subscriber before it is told, and has another one when its entry is to be
/// taken. Members are told in the order of the family's list, the youngest first.
#[test]
fn a_subscription_that_goes_and_comes_meanwhile() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"here").unwrap();
        let [middle, youngest] = [(); 2].map(|()| w.space.fork().unwrap());
        let before = frame_of(w.space, BASE);
        let _others = [w.space.subscribe(), youngest.subscribe()];
        let mut subscription = Some(middle.subscribe());
        let stops = stops(w.vm);
        let moved = Mutex::new(None);
        let mover = |_: &Running<'_>, _: &AtomicBool| *moved.lock().unwrap() = Some(w.vm.migrate_frame(before));
        w.race(&[&mover], |_| {
            let ([first, last], [second, third]) =
                (told(&youngest, BASE, Why::Migrate), told(w.space, BASE, Why::Migrate));
            for (notice, n) in [first, second, last, third].into_iter().zip(0..) {
                assert_eq!(stops.next(), notice);
                match n {
                    0 => subscription.take().into_iter().for_each(|s| middle.unsubscribe(s).unwrap()),
                    1 => subscription = Some(middle.subscribe()),
                    _ => {}
                }
                stops.go_on();
            }
        });
        assert_eq!((moved.into_inner().unwrap(), frame_of(&middle, BASE)), (Some(Err(MigrateRefusal::Raced)), before));
        check(w.vm, &[w.space, &middle, &youngest]);
    });
}

/// Pages of a space without subscribers lie in the same block. Nobody waits for them while
/// others are told.
#[test]
fn no_entry_is_owned_while_subscribers_are_told() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        let other = w.vm.new_space().unwrap();
        let nr_pages = w.vm.vmstat().nr_free_pages / 100 * 45;
        let places = || (0..nr_pages).map(|page| BASE + page * PAGE);
        w.map(BASE, nr_pages, RW);
        other.mmap(BASE, nr_pages * PAGE, RW, PRIVATE | FIXED).unwrap();
        for at in places() {
            [w.space, &other].iter().for_each(|space| space.write(at, b"here").unwrap());
        }
        let is_kept = |at: &u64| ((at - BASE) / PAGE).is_multiple_of(40);
        for at in places().filter(|at| !is_kept(at)) {
            [w.space, &other].iter().for_each(|space| space.madvise(at, PAGE, DONTNEED).unwrap());
        }
        let _subscription = w.space.subscribe();
        let frames = || places().filter(is_kept).map(|at| other.translate_at_rest(at).map(|there| there.pfn)).collect();
        let (before, stops, seen): (Vec<_>, _, _) = (frames(), stops(w.vm), Mutex::new(Vec::<Vec<_>>::new()));
        let made = Mutex::new(None);
        let mover = |_: &Running<'_>, _: &AtomicBool| {
            *made.lock().unwrap() = Some(w.vm.compact_step(&CompactBudget::BACKGROUND))
        };
        w.race(&[&mover], |_| {
            while made.lock().unwrap().is_none() {
                if stops.next_soon().is_some() {
                    seen.lock().unwrap().push(frames());
                    stops.go_on();
                }
            }
        });
        assert_eq!(made.into_inner().unwrap(), Some(Ok(())));
        let seen = seen.into_inner().unwrap();
        assert!(seen.iter().flatten().all(Option::is_some), "an entry is owned while a subscriber is told");
        assert!(!seen.is_empty() && before != frames(), "both kinds of pages have moved");
        check(w.vm, &[w.space, &other]);
    });
}

/// The page is at another address when its entry is to be taken.
#[test]
fn a_page_that_is_remapped_meanwhile() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"here").unwrap();
        let subscription = w.space.subscribe();
        let (before, away) = (frame_of(w.space, BASE), BASE + (1 << 30));
        let (moved, notices) = move_while(w, w.space, || {
            w.space.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, away).unwrap();
        });
        assert_eq!((moved, frame_of(w.space, away)), (Err(MigrateRefusal::Raced), before));
        assert_eq!(notices, told(w.space, BASE, Why::Migrate), "and not of the page where it is now");
        check(w.vm, &[w.space]);
        w.space.unsubscribe(subscription).unwrap();
    });
}

/// The end of a space that is told of a move waits until it has been told the end.
#[test]
fn the_end_of_a_space_waits_for_the_end_of_the_move() {
    in_setup(Setup::PLAIN, 3, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"here").unwrap();
        let child = w.space.fork().unwrap();
        let _subscription = child.subscribe();
        let (tag, before) = (child.tag(), frame_of(w.space, BASE));
        let [start, end] = told(&child, BASE, Why::Migrate);
        let stops = stops(w.vm);
        let (child, ends) = (Mutex::new(Some(child)), AtomicBool::new(false));
        let has_ended = AtomicBool::new(false);
        let mover = |_: &Running<'_>, _: &AtomicBool| _ = w.vm.migrate_frame(before);
        let ender = |_: &Running<'_>, _: &AtomicBool| {
            wait_until(|| ends.load(SeqCst));
            let child = child.lock().unwrap().take();
            drop(child);
            has_ended.store(true, SeqCst);
        };
        w.race(&[&mover, &ender], |_| {
            assert_eq!(stops.next(), start);
            ends.store(true, SeqCst);
            let_others_run();
            assert!(!has_ended.load(SeqCst), "the space has ended while it is told of a move");
            stops.go_on();
            assert_eq!(stops.next(), end);
            let_others_run();
            assert!(!has_ended.load(SeqCst), "the space has ended while it is told the end");
            stops.go_on();
            assert_eq!(stops.next(), (tag, Notice::Release));
            stops.go_on();
            wait_until(|| has_ended.load(SeqCst));
        });
    });
}
