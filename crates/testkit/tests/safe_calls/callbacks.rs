//! Subscribers and hooks that call the core, and who outlives a space.

use super::*;

/// A subscriber that calls back is stopped by a panic, which ends there: the
/// operation that told it is done as a whole.
#[test]
fn a_subscriber_that_calls_back_is_stopped() {
    type Call = fn(&Space<'_>);
    let calls: [(&str, Call); 8] = [
        ("munmap", |s| _ = s.munmap(BASE + 9 * PAGE, PAGE)),
        ("a fault that is refused", |s| _ = s.handle_fault(BASE + 8 * PAGE, Access::Exec)),
        ("subscribe", |s| _ = s.subscribe()),
        ("maps", |s| s.maps(&mut |_| ())),
        ("the end of a space", |s| drop(s.vm().new_space().unwrap())),
        ("activate", |s| drop(s.activate())),
        ("rmap", |s| _ = s.vm().rmap_anon(Pfn(9), &mut [])),
        ("split", |s| s.vm().split_folio(Pfn(9))),
    ];
    for (name, call) in calls {
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
        let tell = move |_, notice: &Notice| {
            if matches!(notice, Notice::Start { .. }) {
                call(space);
            }
            false
        };
        assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
        space.mmap(BASE, 16 * PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE, &[1]).unwrap();
        let subscription = space.subscribe();
        space.munmap(BASE, PAGE).unwrap();
        assert_eq!(vm.machine().notices_lost(), 1, "{name}: called back");
        assert!(space.page_state(BASE).is_none());
        // Nothing stays marked: lookups, operations and the end of the subscription.
        space.write(BASE + PAGE, &[1]).unwrap();
        subscription.lookup(space, BASE + PAGE).unwrap();
        space.unsubscribe(subscription).unwrap();
        space.munmap(BASE, 16 * PAGE).unwrap();
        // The space whose end was stopped is still there, and nobody can name it.
        if name != "the end of a space" {
            check(vm, &[space]);
        }
        drop(cpu);
    }
}

/// The calls that a subscriber may make: lookups, and questions that wait for nothing.
#[test]
fn a_subscriber_may_look_pages_up() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    let subscription: &'static _ = Box::leak(Box::new(space.subscribe()));
    let tell = move |_, _: &Notice| {
        assert!(subscription.lookup(space, BASE + PAGE).is_err() == space.page_state(BASE).is_some());
        _ = (space.rss_pages(), vm.vmstat());
        false
    };
    assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
    space.mmap(BASE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1; 2 * PAGE as usize]).unwrap();
    space.munmap(BASE, PAGE).unwrap();
    assert_eq!(vm.machine().notices_lost(), 0);
}

/// In a wait of the core the thread is no CPU.
#[test]
fn a_hook_that_calls_the_core_is_stopped() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    let call = || {
        assert_eq!(vm.machine().bind(CpuId(0)).err(), Some(BindError::Bound));
        let text = panics(|| _ = space.munmap(BASE, PAGE));
        assert!(text.contains("not a CPU of this machine"), "{text}");
    };
    assert!(vm.machine().on_wait(Box::new(call)).is_ok());
    let _active = space.activate();
    space.munmap(BASE, PAGE).unwrap();
}

/// Pins and subscriptions outlive their space; a subscription may never be given back.
#[test]
fn pins_and_subscriptions_outlive_their_space() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[7]).unwrap();
    let pin = space.pin_page(BASE, softfault::Term::Long).unwrap();
    let subscription = space.subscribe();
    drop(space);
    let mut byte = [0];
    pin.read(0, &mut byte);
    assert_eq!(byte, [7]);
    assert!(subscription.lookup(&other, BASE).is_err());
    let subscription = other.unsubscribe(subscription).expect_err("it is to another space");
    drop((subscription, other));
    assert_eq!(vm.vmstat().nr_free_pages, before - 1);
    drop(pin);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}
