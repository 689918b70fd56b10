//! Which space and which time a lookup of a subscriber belongs to.
#![forbid(unsafe_code)]

mod common;

use common::*;
use softfault::{CpuId, Lookup, Vm};
use softfault_host::Hosted;
use std::thread;

/// A space with one page, which was written.
fn space(vm: &Vm<Hosted>) -> Space<'_> {
    let space = vm.new_space().unwrap();
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    space
}

#[test]
fn a_lookup_is_of_one_space() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (space(&vm), space(&vm));
    let (to_a, to_b) = (a.subscribe(), b.subscribe());
    let (of_a, of_b) = (to_a.lookup(&a, BASE).unwrap(), to_b.lookup(&b, BASE).unwrap());
    assert!(to_a.is_current(&a, &of_a) && to_b.is_current(&b, &of_b));
    assert!(!to_b.is_current(&b, &of_a) && !to_a.is_current(&a, &of_b), "of another space");
    let second = a.subscribe();
    assert!(second.is_current(&a, &of_a) && to_a.is_current(&a, &of_a), "whoever subscribed");
    // Ids of spaces begin anew.
    let other = Setup::PLAIN.vm(1, 8 << 20);
    let theirs: Lookup<'_> = thread::scope(|threads| {
        let look = || {
            let _cpu = other.machine().bind(CpuId(0)).unwrap();
            let space = space(&other);
            assert_eq!(space.tag().id, a.tag().id);
            space.subscribe().lookup(&space, BASE).unwrap()
        };
        threads.spawn(look).join().unwrap()
    });
    assert!(!to_a.is_current(&a, &theirs), "of another Vm");
}

/// Without a subscription no change is counted.
#[test]
fn a_lookup_ends_with_the_last_subscription() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let a = space(&vm);
    let (first, second) = (a.subscribe(), a.subscribe());
    let before = first.lookup(&a, BASE).unwrap();
    a.unsubscribe(first).unwrap();
    let third = a.subscribe();
    assert!(second.is_current(&a, &before) && third.is_current(&a, &before), "one was in force all the time");
    a.unsubscribe(second).unwrap();
    a.unsubscribe(third).unwrap();
    a.madvise(BASE, PAGE, DONTNEED).unwrap();
    let again = a.subscribe();
    assert!(!again.is_current(&a, &before), "nobody was told that the page went");
    a.write(BASE, &[2]).unwrap();
    let now = again.lookup(&a, BASE).unwrap();
    assert!(again.is_current(&a, &now) && !again.is_current(&a, &before));
}
