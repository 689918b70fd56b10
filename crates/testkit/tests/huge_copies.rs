//! A fault that wants to copy a huge page gets a frame, tells the subscriber, and then
//! finds that it copies nothing. The frame was used before, and goes back as such (I20).
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, byte, huge_pages, map};
use common::{Format, Hosted, PATIENCE, Space, check};
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{CpuId, Event, HugeKnobs, Notice, Tunables, Vm, Why};
use softfault_testkit::formats::Tested;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const COPY: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(CowHuge::Copy);

/// Two CPUs, and memory in which no frame is zero.
fn used_memory() -> Vm<Hosted> {
    let config = Format::config().with_nr_cpus(2).with_arena_bytes(32 << 20);
    let mut hosted = Hosted::with_format(config).unwrap();
    hosted.soil(0x5ec7e7);
    Vm::new(hosted, Tunables::default().with_thp(COPY)).unwrap()
}

/// The first copy that is told of: says so, and goes on after the answer.
fn stop_at_first_copy(vm: &Vm<Hosted>) -> (Receiver<()>, Sender<()>) {
    let (telling, told) = channel();
    let (go_on, gone_on) = channel();
    let ends = Mutex::new(Some((telling, gone_on)));
    let stop = move |_, notice: &Notice| {
        if matches!(notice, Notice::Start { why: Why::Copy, .. })
            && let Some((telling, gone_on)) = { ends.lock().unwrap().take() }
        {
            telling.send(()).unwrap();
            gone_on.recv().unwrap();
        }
        false
    };
    assert!(vm.machine().on_notice(Box::new(stop)).is_ok());
    (told, go_on)
}

/// CPU 0 writes to a huge page that a child maps, too. CPU 1 does `meanwhile` when CPU 0
/// has a frame for the copy and has told that it begins.
fn copy_interrupted_by(meanwhile: impl Fn(&Vm<Hosted>, &Space<'_>) + Sync, look: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let vm = used_memory();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let active = space.activate();
    map(&space, AT, HUGE);
    space.write(AT, &[1]).unwrap();
    let child = space.fork().unwrap();
    let (told, go_on) = stop_at_first_copy(&vm);
    let subscription = space.subscribe();
    thread::scope(|scope| {
        let (vm, space, meanwhile) = (&vm, &space, &meanwhile);
        scope.spawn(move || {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            let active = space.activate();
            told.recv_timeout(PATIENCE).unwrap();
            meanwhile(vm, space);
            drop(active);
            go_on.send(()).unwrap();
        });
        space.write(AT, &[2]).unwrap();
    });
    space.unsubscribe(subscription).unwrap();
    assert_eq!((byte(&space, AT), byte(&child, AT)), (2, 1));
    look(&vm, &space);
    check(&vm, &[&space, &child]);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(&vm), Ok(()));
    // The frame that was given back is among these.
    let nr_free = vm.vmstat().nr_free_pages / 512;
    map(&space, AT + HUGE, nr_free * HUGE);
    for at in (AT + HUGE..).step_by(HUGE as usize).take(nr_free as usize) {
        space.write(at + 1, &[1]).unwrap();
        assert!((0..HUGE).step_by(4096).all(|page| byte(&space, at + page) == 0), "{at:#x} shows what was there");
    }
    drop((child, active));
}

/// The copy is not wanted any more: the page is split, and 4 KiB are copied.
#[test]
fn a_frame_goes_back_as_it_came_when_the_page_is_split() {
    let split = |vm: &Vm<Hosted>, _: &Space<'_>| {
        vm.set_huge_knobs(&COPY.with_cow(CowHuge::Split)).unwrap();
    };
    copy_interrupted_by(split, |vm, space| {
        assert_eq!((vm.event(Event::ThpSplitPmd), huge_pages(space)), (1, 0));
    });
}

/// The other CPU's copy comes first.
#[test]
fn a_frame_goes_back_as_it_came_when_another_copies_first() {
    let copy = |_: &Vm<Hosted>, space: &Space<'_>| space.write(AT + HUGE - 1, &[3]).unwrap();
    copy_interrupted_by(copy, |vm, space| {
        assert_eq!((vm.event(Event::ThpSplitPmd), huge_pages(space)), (0, 1));
        assert_eq!(byte(space, AT + HUGE - 1), 3);
    });
}
