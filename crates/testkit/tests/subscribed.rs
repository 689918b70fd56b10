//! I24, I27: private pages of spaces with subscribers move, or go out of use, and the
//! subscribers are told. What a mirror sees meanwhile: `notify.rs`.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::machine::SpaceTag;
use softfault::{
    CompactRefusal, CpuId, Event, MigrateRefusal, Notice, PageRange, Pfn, PoisonRefusal, Subscription, Term, Vm, Vpn,
    Why,
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ARENA: u64 = 16 << 20;

fn range(addr: u64, nr_pages: u64) -> PageRange {
    PageRange::sized(Vpn::of(addr), nr_pages).unwrap()
}

/// Start and end of one change in one space.
fn told(space: &Space<'_>, addr: u64, why: Why) -> [(SpaceTag, Notice); 2] {
    let range = range(addr, 1);
    [(space.tag(), Notice::Start { range, why }), (space.tag(), Notice::End { range, why })]
}

/// Everything that is told, in its order.
struct Log(Arc<Mutex<Vec<(SpaceTag, Notice)>>>);

impl Log {
    fn of(vm: &Vm<Hosted>) -> Log {
        let log = Log(Arc::default());
        let to = log.0.clone();
        let push = move |tag, notice: &Notice| {
            to.lock().unwrap().push((tag, *notice));
            false
        };
        assert!(vm.machine().on_notice(Box::new(push)).is_ok(), "one subscriber a machine");
        log
    }
    fn take(&self) -> Vec<(SpaceTag, Notice)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

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

/// A page that stays was told of in vain, and both notices come all the same.
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
        let refused = w.vm.compact_step(&patient().with_moves_subscribed(false));
        assert_eq!(refused, Err(CompactRefusal::InTheWay(MigrateRefusal::Subscribed)));
        assert!(w.vm.event(Event::MigrateRefusedSubscribed) > 0 && log.take().is_empty());
        assert_eq!(kept.iter().map(|at| frame_of(w.space, *at)).collect::<Vec<_>>(), before);
        assert_eq!((w.vm.event(Event::PgmigrateSuccess), w.vm.compact_step(&patient())), (0, Ok(())));
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
        assert_eq!(w.vm.compact_step(&patient()), Ok(()));
        let moved = moved_of(w, &kept, &before);
        let notices = log.take();
        assert!(moved.len() >= 8, "{} pages have moved", moved.len());
        assert_told(&notices, w.space.tag(), &moved);
        assert!(notices.len() <= moved.len() / 2, "{} notices of {} pages", notices.len(), moved.len());
        w.space.unsubscribe(subscription).unwrap();
    });
}

/// Stops a mover at each of its notices, and the end of a space, so that another CPU can do
/// something.
struct Stops {
    notices: Receiver<(SpaceTag, Notice)>,
    go_on: Sender<()>,
}

impl Stops {
    fn of(vm: &Vm<Hosted>) -> Stops {
        let (notice_to, notices) = channel();
        let (go_on, gone_on) = channel();
        let ends = Mutex::new((notice_to, gone_on));
        let stop = move |tag, notice: &Notice| {
            let is_awaited = match *notice {
                Notice::Start { why, .. } | Notice::End { why, .. } => why == Why::Migrate,
                _ => *notice == Notice::Release,
            };
            if !is_awaited {
                return false;
            }
            let ends = ends.lock().unwrap();
            ends.0.send((tag, *notice)).unwrap();
            ends.1.recv().unwrap();
            false
        };
        assert!(vm.machine().on_notice(Box::new(stop)).is_ok());
        Stops { notices, go_on }
    }

    fn next(&self) -> (SpaceTag, Notice) {
        self.notices.recv_timeout(Duration::from_secs(15)).unwrap()
    }
}

/// The page at `BASE` moves on CPU 1. At the start of this, of which `subscribed` is told,
/// `at_start` runs; gives what came of the move, and what was told of it.
fn move_while(
    w: &World<'_>,
    subscribed: &Space<'_>,
    at_start: impl FnOnce(),
) -> (Result<Pfn, MigrateRefusal>, Vec<(SpaceTag, Notice)>) {
    let stops = Stops::of(w.vm);
    let before = frame_of(w.space, BASE);
    let moved = Mutex::new(None);
    let mover = |_: &Running<'_>, _: &AtomicBool| *moved.lock().unwrap() = Some(w.vm.migrate_frame(before));
    let mut notices = Vec::new();
    w.race(&[&mover], |_| {
        notices.push(stops.next());
        assert_eq!(notices[0], told(subscribed, BASE, Why::Migrate)[0]);
        at_start();
        stops.go_on.send(()).unwrap();
        while moved.lock().unwrap().is_none() {
            if let Ok(notice) = stops.notices.recv_timeout(Duration::from_millis(1)) {
                notices.push(notice);
                stops.go_on.send(()).unwrap();
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
        let stops = Stops::of(w.vm);
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
                stops.go_on.send(()).unwrap();
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
        let (before, stops, seen): (Vec<_>, _, _) = (frames(), Stops::of(w.vm), Mutex::new(Vec::<Vec<_>>::new()));
        let made = Mutex::new(None);
        let mover = |_: &Running<'_>, _: &AtomicBool| *made.lock().unwrap() = Some(w.vm.compact_step(&patient()));
        w.race(&[&mover], |_| {
            while made.lock().unwrap().is_none() {
                if stops.notices.recv_timeout(Duration::from_millis(1)).is_ok() {
                    seen.lock().unwrap().push(frames());
                    stops.go_on.send(()).unwrap();
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
        let stops = Stops::of(w.vm);
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
            // As long as a subscriber may take.
            thread::sleep(Duration::from_millis(50));
            assert!(!has_ended.load(SeqCst), "the space has ended while it is told of a move");
            stops.go_on.send(()).unwrap();
            assert_eq!(stops.next(), end);
            thread::sleep(Duration::from_millis(50));
            assert!(!has_ended.load(SeqCst), "the space has ended while it is told the end");
            stops.go_on.send(()).unwrap();
            assert_eq!(stops.next(), (tag, Notice::Release));
            stops.go_on.send(()).unwrap();
            wait_until(|| has_ended.load(SeqCst));
        });
    });
}
