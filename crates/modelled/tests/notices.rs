//! I24: a subscriber that maps a frame from a lookup never keeps it after the page has changed.

use common::{Modelled, World, beside_pagers, explore, on_notice, run};
use loom::sync::Mutex;
use softfault_modelled::{
    Access, AddressSpace, FaultLocking, MapFlags, Notice, ObjectPart, Pfn, SharedObject, Subscription,
};
use std::sync::Arc;

/// The subscriber's table: page 0.
type Mirror = Arc<Mutex<Option<Pfn>>>;

fn mirror() -> Mirror {
    let mirror = Mirror::default();
    let obeys = mirror.clone();
    on_notice(move |notice| {
        if let Notice::Start { range, .. } = notice
            && range.contains(softfault_modelled::Vpn(0))
        {
            *obeys.lock().unwrap() = None;
        }
    });
    mirror
}

/// Once, as a subscriber does it: what it could not map it will ask for again.
fn map(w: World, by: &Subscription<'static, Modelled>, mirror: &Mirror) {
    if let Ok(found) = by.lookup(w.space, 0) {
        let mut page = mirror.lock().unwrap();
        if by.is_current(w.space, &found) {
            *page = Some(found.translation.pfn);
        }
    }
}

fn check(w: World, mirror: &Mirror, others: &[&AddressSpace<'static, Modelled>]) {
    w.check(others);
    let there = w.space.translate_at_rest(0).map(|t| t.pfn);
    let mapped = *mirror.lock().unwrap();
    assert!(mapped.is_none() || mapped == there, "I24: the subscriber maps {mapped:?}, the space {there:?}");
}

/// A lookup, and the mapping of what it found, against a change of the page.
fn lookup_against(change: impl Fn(World) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        let child = w.space.fork().unwrap();
        let mirror = mirror();
        let by = w.space.subscribe();
        let mine = mirror.clone();
        run(vec![Box::new(move || map(w, &by, &mine)), Box::new(move || change(w))]);
        check(w, &mirror, &[&child]);
    });
}

#[test]
fn t14_lookup_against_a_copy() {
    lookup_against(|w| _ = w.space.handle_fault(0, Access::Write).unwrap());
}

#[test]
fn t14_lookup_against_munmap() {
    lookup_against(|w| w.space.munmap(0, 4096).unwrap());
}

/// The subscription comes while a fault copies: it is told, or finds the new page.
#[test]
fn t14_subscription_against_a_copy() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        let child = w.space.fork().unwrap();
        let mirror = mirror();
        let mine = mirror.clone();
        let subscribe = move || {
            let by = w.space.subscribe();
            map(w, &by, &mine);
        };
        let write = move || {
            let active = w.space.activate();
            w.space.handle_fault(0, Access::Write).unwrap();
            drop(active);
        };
        run(vec![Box::new(subscribe), Box::new(write)]);
        check(w, &mirror, &[&child]);
    });
}

/// Subscribes, and gives what ends the subscription. The subscriber asserts that it receives
/// nothing afterwards.
fn last_subscription(w: World) -> impl FnOnce() + Send + 'static {
    let gone = Arc::new(Mutex::new(false));
    let seen = gone.clone();
    on_notice(move |notice| {
        // As it begins, and as it ends.
        for _ in 0..2 {
            assert!(!*seen.lock().unwrap(), "{notice:?} is received after the last subscription");
        }
    });
    let by = w.space.subscribe();
    move || {
        w.space.unsubscribe(by).unwrap();
        *gone.lock().unwrap() = true;
    }
}

/// The subscription goes while a fault copies: afterwards nothing is received, and
/// nothing comes.
#[test]
fn t14_end_of_a_subscription_against_a_copy() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        let child = w.space.fork().unwrap();
        let unsubscribe = last_subscription(w);
        let write = move || _ = w.space.handle_fault(0, Access::Write).unwrap();
        run(vec![Box::new(unsubscribe), Box::new(write)]);
        w.check(&[&child]);
    });
}

/// An object whose page is mapped at page 0, and touched.
fn object_with_a_page(w: World) -> &'static SharedObject<'static, Modelled> {
    let object: &'static _ = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(0, 4096, common::RW, flags, ObjectPart::new(object)).unwrap();
    w.touch(0);
    object
}

/// The subscription comes while the object loses the page.
#[test]
fn t14_subscription_against_a_discard() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 1, 1);
        let object = object_with_a_page(w);
        let mirror = mirror();
        let mine = mirror.clone();
        let subscribe = move || {
            let by = w.space.subscribe();
            map(w, &by, &mine);
        };
        run(vec![Box::new(subscribe), Box::new(move || object.discard(0..1))]);
        check(w, &mirror, &[]);
    });
}

/// It goes meanwhile.
#[test]
fn t14_end_of_a_subscription_against_a_discard() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 1, 1);
        let object = object_with_a_page(w);
        let unsubscribe = last_subscription(w);
        run(vec![Box::new(unsubscribe), Box::new(move || object.discard(0..1))]);
        w.check(&[]);
    });
}

beside_pagers![
    t14_lookup_against_a_copy,
    t14_lookup_against_munmap,
    t14_subscription_against_a_copy,
    t14_end_of_a_subscription_against_a_copy,
    t14_subscription_against_a_discard,
    t14_end_of_a_subscription_against_a_discard
];
