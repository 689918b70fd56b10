//! Calls on pins, subscriptions, walkers and guards.

use super::*;
use softfault::{LookupRefused, Miss};

/// Offsets within a page; others panic, as documented.
const OFFSETS: [usize; 5] = [0, 1, 7, 4095, 4096];

#[test]
fn pins() {
    with_others(|w| {
        let space = w.space;
        for term in [Term::Short, Term::Long] {
            each("AddressSpace::pin_page", |addr| _ = space.pin_page(addr, term));
            each("AddressSpace::pin_page_mut", |addr| _ = space.pin_page_mut(addr, term));
            each("AddressSpace::pin_range", |addr| _ = space.pin_range(addr, term, &mut [const { None }; 6]));
            each("AddressSpace::pin_range_mut", |addr| _ = space.pin_range_mut(addr, term, &mut [const { None }; 6]));
        }
        let pin = space.pin_page_mut(BASE, Term::Short).unwrap();
        for offset in OFFSETS {
            let len = 4096 - offset;
            call("PinMut::write", || pin.write(offset, &vec![7; len]));
            call("Pin::read", || pin.read(offset, &mut vec![0; len]));
            // What is not on this machine's CPUs may be read: the pin has its own machine.
            w.others.pin.read(offset, &mut vec![0; len]);
        }
        for offset in [1, 4096, 4097, usize::MAX - 3, usize::MAX] {
            assert!(panics(|| pin.read(offset, &mut [0; 4096])).contains("I6"));
            assert!(panics(|| pin.write(offset, &[0; 4096])).contains("I6"));
        }
        call("Pin::pfn", || assert_eq!(pin.pfn(), frame_of(space, BASE)));
        call("Pin::order", || assert_eq!(pin.order(), Order::BASE));
        call("Pin::term", || assert_eq!(pin.term(), Term::Short));
    });
}

#[test]
fn subscriptions() {
    with_others(|w| {
        let (space, others) = (w.space, &*w.others);
        let own = call("AddressSpace::subscribe", || space.subscribe());
        each("Subscription::lookup", |addr| {
            _ = own.lookup(space, addr);
            assert_eq!(own.lookup(&others.space, addr), Err(LookupRefused::OtherSpace));
        });
        // Its refusal is counted on a CPU of its own machine, which this thread is not.
        assert!(panics(|| _ = others.subscription.lookup(space, BASE)).contains("not a CPU of this machine"));
        call("Subscription::is_current", || {
            assert!(!own.is_current(space, &others.lookup) && !own.is_current(&others.space, &others.lookup));
            assert!(!others.subscription.is_current(space, &others.lookup));
        });
        let elsewhere = w.vm.new_space().unwrap();
        let own = call("AddressSpace::unsubscribe", || elsewhere.unsubscribe(own).unwrap_err());
        space.unsubscribe(own).unwrap();
    });
}

#[test]
fn walkers() {
    with_others(|w| {
        let space = w.space;
        let active = call("AddressSpace::activate", || space.activate());
        let walker = call("Active::walker", || active.walker());
        call("Walker::space", || assert!(std::ptr::eq(walker.space(), space)));
        each("Walker::translate", |addr| {
            _ = (walker.translate(addr, Access::Exec), walker.translate(addr, Access::Write))
        });
        let own = walker.translate(BASE, Access::Write).unwrap();
        let other = &w.others.walked;
        call("Walker::stamp", || assert_eq!(walker.stamp(), own.stamp()));
        call("Walked::stamp", || assert_ne!(walker.stamp(), other.stamp()));
        call("Walked::translation", || assert_eq!(own.translation().pfn, frame_of(space, BASE)));
        call("Walker::is_current", || assert!(walker.is_current(&own) && !walker.is_current(other)));
        for offset in OFFSETS {
            let mut bytes = vec![7; 4096 - offset];
            let stale = Err(Miss::Stale);
            call("Walker::store_through", || assert_eq!(walker.store_through(&own, offset, &bytes), Ok(())));
            assert_eq!(walker.store_through(other, offset, &bytes), stale);
            call("Walker::load_through", || assert_eq!(walker.load_through(&own, offset, &mut bytes), Ok(())));
            assert_eq!(walker.load_through(other, offset, &mut bytes), stale);
            call("Walker::fetch_through", || walker.fetch_through(&own, offset, &mut bytes).unwrap_err());
            assert!(walker.fetch_through(other, offset, &mut bytes).is_err());
        }
        for offset in [4097, usize::MAX - 3, usize::MAX] {
            assert!(panics(|| _ = walker.load_through(&own, offset, &mut [0; 8])).contains("I6"));
        }
    });
}
