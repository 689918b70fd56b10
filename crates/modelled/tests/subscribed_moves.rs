//! I24, I27: a private page moves, or its memory fails, in a space with subscribers. A subscriber never uses
//! a former frame of the page, and gets no notice of a space that has ended.

use common::pager::{self, Pager};
use common::{Modelled, World, device_store, explore, models, on_notice, run};
use loom::sync::Mutex;
use softfault_modelled::{AddressSpace, FaultLocking, Notice, Pfn, Subscription, Vpn, Why};
use std::sync::Arc;

type Space = AddressSpace<'static, Modelled>;

/// The subscriber's table of page 0. It uses what it finds there under this lock.
type Mirror = Arc<Mutex<Option<Pfn>>>;

fn written() -> World {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.space.write(0, &[7; 8]).unwrap();
    w
}

fn frame(space: &Space) -> Pfn {
    space.translate_at_rest(0).unwrap().pfn
}

fn mirror() -> Mirror {
    let mirror = Mirror::default();
    let obeys = mirror.clone();
    on_notice(move |notice| {
        if let Notice::Start { range, .. } = notice
            && range.contains(Vpn(0))
        {
            *obeys.lock().unwrap() = None;
        }
    });
    mirror
}

/// As a subscriber does it.
fn map(space: &'static Space, by: &Subscription<'static, Modelled>, mirror: &Mirror) {
    if let Ok(found) = by.lookup(space, 0) {
        let mut page = mirror.lock().unwrap();
        if by.is_current(space, &found) {
            *page = Some(found.translation.pfn);
        }
    }
}

/// A store through the mirror, as of a device. Whether it had the page.
fn store(mirror: &Mirror) -> bool {
    let page = mirror.lock().unwrap();
    page.iter().for_each(|pfn| device_store(*pfn, u64::from_ne_bytes([9; 8])));
    page.is_some()
}

fn migrate(w: World, pfn: Pfn) {
    let _ = w.vm.migrate_frame(pfn);
}

/// A subscriber maps the page and stores through its mirror, while `change` makes something of
/// its frame. The store is in the page, or there was none.
fn mirror_against(subscribes_before: bool, change: impl Fn(World, Pfn) + Sync + Send + Copy + 'static, stays: bool) {
    explore(2, move || {
        let w = written();
        let pfn = frame(w.space);
        let mirror = mirror();
        let before = subscribes_before.then(|| w.space.subscribe());
        let (mine, stored) = (mirror.clone(), Arc::new(Mutex::new(false)));
        let has_stored = stored.clone();
        let guest = move || {
            let by = before.unwrap_or_else(|| w.space.subscribe());
            map(w.space, &by, &mine);
            let is_stored = store(&mine);
            *has_stored.lock().unwrap() = is_stored;
        };
        run(vec![Box::new(guest), Box::new(move || change(w, pfn))]);
        w.check(&[]);
        let there = w.space.translate_at_rest(0).map(|there| there.pfn);
        let mapped = *mirror.lock().unwrap();
        assert!(mapped.is_none() || mapped == there, "I24: the mirror has {mapped:?}, the space {there:?}");
        assert!(there.is_some() || !stays || pager::has_lost(0));
        if there.is_some() {
            let mut word = [0; 8];
            w.space.read(0, &mut word).unwrap();
            let expected = if *stored.lock().unwrap() { [9; 8] } else { [7; 8] };
            assert_eq!(word, expected, "I27: a store of the subscriber is lost");
        }
    });
}

#[test]
fn a_mirror_against_a_move() {
    mirror_against(true, migrate, true);
}

/// The subscription comes while the page moves: it is told, or finds the new frame.
#[test]
fn a_subscription_against_a_move() {
    mirror_against(false, migrate, true);
}

#[test]
fn a_mirror_against_memory_that_fails() {
    mirror_against(true, |w, pfn| _ = w.vm.poison_frame(pfn), false);
}

/// The last subscription goes while the page moves: nothing is received afterwards.
#[test]
fn the_end_of_a_subscription_against_a_move() {
    explore(2, || {
        let w = written();
        let pfn = frame(w.space);
        let gone = Arc::new(Mutex::new(false));
        let seen = gone.clone();
        on_notice(move |notice| {
            // As it begins, and as it ends.
            for _ in 0..2 {
                assert!(!*seen.lock().unwrap(), "{notice:?} is received after the last subscription");
            }
        });
        let by = w.space.subscribe();
        let unsubscribe = move || {
            w.space.unsubscribe(by).unwrap();
            *gone.lock().unwrap() = true;
        };
        run(vec![Box::new(unsubscribe), Box::new(move || migrate(w, pfn))]);
        w.check(&[]);
    });
}

/// The space ends while its subscriber is told of the move: it is told the end before.
#[test]
fn the_end_of_a_space_against_a_move() {
    explore(1, || {
        let w = written();
        let child = w.space.fork().unwrap();
        let pfn = frame(w.space);
        let under_way = Arc::new(Mutex::new(Some(0)));
        let seen = under_way.clone();
        on_notice(move |notice| {
            let mut nr = seen.lock().unwrap();
            let now = nr.unwrap_or_else(|| panic!("{notice:?} is received after the end"));
            *nr = match notice {
                Notice::Start { why: Why::Migrate, .. } => Some(now + 1),
                Notice::End { why: Why::Migrate, .. } => Some(now - 1),
                Notice::Release => {
                    assert_eq!(now, 0, "I44: a space that is visited stays");
                    None
                }
                other => panic!("{other:?}"),
            };
        });
        drop(child.subscribe());
        run(vec![Box::new(move || migrate(w, pfn)), Box::new(move || drop(child))]);
        w.check(&[]);
        assert_eq!(*under_way.lock().unwrap(), None);
    });
}

/// Those that have pages of the world's space.
const WITH_PAGES: &[(&str, fn())] = models![
    a_mirror_against_a_move,
    a_subscription_against_a_move,
    a_mirror_against_memory_that_fails,
    the_end_of_a_subscription_against_a_move
];

#[test]
fn beside_a_pager() {
    // `the_end_of_a_space_against_a_move` counts notices.
    pager::beside_a_pager(Pager::SwapsOut, WITH_PAGES);
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(Pager::Fails, WITH_PAGES);
}
