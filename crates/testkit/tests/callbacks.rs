//! Hooks and subscribers cannot unbind the thread that calls them, nor break it by a panic.
#![forbid(unsafe_code)]

mod common;

use common::*;
use softfault::{CpuId, Machine, Notice, Vm};
use softfault_host::{BindError, CpuGuard, Hosted};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::thread;

std::thread_local! {
    static GUARD: RefCell<Option<CpuGuard<'static>>> = const { RefCell::new(None) };
    static IS_ARMED: Cell<bool> = const { Cell::new(false) };
}

fn drop_the_guard() {
    let guard = GUARD.take();
    drop(guard);
}

/// The thread is CPU 0, and no other thread can be.
fn is_still_cpu_0(vm: &'static Vm<Hosted>) {
    assert_eq!(vm.machine().this_cpu(), CpuId(0));
    assert_eq!(vm.machine().bind(CpuId(1)).err(), Some(BindError::Bound));
    let other = thread::spawn(|| vm.machine().bind(CpuId(0)).err());
    assert_eq!(other.join().unwrap(), Some(BindError::Taken(CpuId(0))), "two threads would be one CPU");
}

/// A hook may reach the thread's guard, but not end it: the core goes on as this CPU.
#[test]
fn a_hook_cannot_unbind_its_thread() {
    for panics_itself in [false, true] {
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(2, 8 << 20)));
        let hook = move || {
            let _dropped_by_the_panic = if panics_itself { GUARD.take() } else { None };
            assert!(!panics_itself, "the hook's own");
            drop_the_guard();
        };
        assert!(vm.machine().on_wait(Box::new(hook)).is_ok());
        thread::spawn(move || {
            GUARD.set(Some(vm.machine().bind(CpuId(0)).unwrap()));
            let text = panics(|| vm.machine().relax());
            let expected = if panics_itself { "the hook's own" } else { "E3: the guard of CpuId(0) is dropped" };
            assert!(text.contains(expected), "{text}");
            is_still_cpu_0(vm);
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_subscriber_cannot_unbind_its_thread() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(2, 8 << 20)));
    let tell = |_, _: &Notice| {
        drop_the_guard();
        false
    };
    assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
    GUARD.set(Some(vm.machine().bind(CpuId(0)).unwrap()));
    let space = vm.new_space().unwrap();
    let subscription = space.subscribe();
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    space.munmap(BASE, PAGE).unwrap();
    assert_eq!(vm.machine().notices_lost(), 1);
    is_still_cpu_0(vm);
    space.unsubscribe(subscription).unwrap();
    check(vm, &[&space]);
}

/// The value with which a subscriber panics may panic again when it is dropped.
#[test]
fn no_panic_of_a_subscriber_gets_through() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    assert!(vm.machine().on_notice(Box::new(|_, _: &Notice| std::panic::panic_any(Again))).is_ok());
    let space = vm.new_space().unwrap();
    let subscription = space.subscribe();
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    space.munmap(BASE, PAGE).unwrap();
    assert_eq!(vm.machine().notices_lost(), 2, "start and end");
    space.unsubscribe(subscription).unwrap();
    check(&vm, &[&space]);
}

/// A hook fails its test with its own text. The machine is given up: nobody calls the
/// core on it again.
#[test]
fn the_panic_of_a_hook_reaches_its_test() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(2, 8 << 20)));
    let other = Setup::PLAIN.vm(1, 8 << 20);
    let hook = || assert!(!IS_ARMED.get(), "what the test looks for");
    assert!(vm.machine().on_wait(Box::new(hook)).is_ok());
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = ManuallyDrop::new(vm.new_space().unwrap());
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    let _active = ManuallyDrop::new(space.activate());
    IS_ARMED.set(true);
    assert_eq!(panics(|| space.munmap(BASE, PAGE).unwrap()), "what the test looks for");
    IS_ARMED.set(false);
    // The thread is what it was, and can be a CPU of another machine.
    assert_eq!(vm.machine().this_cpu(), CpuId(0));
    drop(cpu);
    let _cpu = other.machine().bind(CpuId(0)).unwrap();
    drop(other.new_space().unwrap());
}
