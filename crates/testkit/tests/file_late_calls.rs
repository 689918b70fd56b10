//! A second removal of what is being written, and zeroes in a folio that stays: each returns when the machine is not in the call any more.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, orders};
use common::plain::{EndsKept, GoesOn, OLD, Plain, REMOVALS, REMOVED, Remove, plain, plain_of};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Advice, CpuId, Event, Vm};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

const ALL: Range<u64> = 0..u64::MAX;

fn on_cpu<T>(vm: &Vm<Hosted>, cpu: u16, act: impl FnOnce() -> T) -> T {
    let _cpu = vm.machine().bind(CpuId(cpu)).unwrap();
    act()
}

/// Removals that end, or begin, within the page.
const OF_A_PART: [Remove; 2] =
    [|_, _, object| object.set_size_bytes(START + 100), |_, _, object| object.zero(START + 100..START + 200).unwrap()];

/// The first removal waits for the call. The second finds no page, and waits, too; one of other pages does not, nor does a larger size.
#[test]
fn a_second_removal_waits_for_the_call() {
    let seconds = || REMOVALS.into_iter().chain(OF_A_PART).enumerate();
    let pairs = REMOVALS.into_iter().enumerate().flat_map(|first| seconds().map(move |second| (first, second)));
    // Beyond a smaller size `zero` has nothing to do, and a part of the page is a larger size.
    let pairs = pairs.filter(|((i, _), (j, _))| *i > 0 || [0, 1, 3].contains(j));
    for ((_, first), (_, second)) in pairs {
        in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
            let (space, (storage, object)) = (w.space, plain(w, REMOVED));
            let nr_waits = || w.vm.event(Event::Waited);
            thread::scope(|scope| {
                let _goes_on = GoesOn(&storage);
                let writer = scope.spawn(|| on_cpu(w.vm, 1, || object.write_back(ALL)));
                wait_until(|| storage.is_in_call.load(SeqCst));
                let remover = scope.spawn(|| on_cpu(w.vm, 2, || first(space, &storage, &object)));
                wait_until(|| nr_waits() > 0);
                let before = nr_waits();
                let another = scope.spawn(|| on_cpu(w.vm, 3, || second(space, &storage, &object)));
                wait_until(|| nr_waits() > before || another.is_finished());
                assert!(!another.is_finished(), "the machine is in the call");
                object.discard(2..4);
                object.set_size_bytes(5 * PAGE);
                storage.may_go_on.store(true, SeqCst);
                assert_eq!(writer.join().unwrap(), Ok(()));
                remover.join().unwrap();
                another.join().unwrap();
            });
            check(w.vm, &[w.space]);
        });
    }
}

/// Zeroes a part of the folio of page [`REMOVED`], which stays. Which bytes are zero, and of which size the folios are at least.
struct Zeroes {
    zero: fn(&Space<'_>, &Object<'_>),
    bytes: Range<u64>,
    least: u8,
}

const START: u64 = REMOVED * PAGE;
const END: u64 = START + PAGE;

const ZEROES: [Zeroes; 6] = [
    Zeroes { zero: |_, object| object.set_size_bytes(START + 100), bytes: START + 100..END, least: 0 },
    Zeroes { zero: |_, object| object.set_size_bytes(START), bytes: START..END, least: 2 },
    Zeroes {
        zero: |_, object| object.zero(START + 100..START + 200).unwrap(),
        bytes: START + 100..START + 200,
        least: 0,
    },
    Zeroes { zero: |_, object| object.zero(START..END).unwrap(), bytes: START..END, least: 1 },
    Zeroes { zero: |_, object| object.discard(REMOVED..REMOVED + 1), bytes: START..END, least: 2 },
    Zeroes { zero: |space, _| space.madvise(BASE + START, PAGE, Advice::Remove).unwrap(), bytes: START..END, least: 1 },
];

/// While the machine is in the call for the page, after which the write goes on or not. `meanwhile` may let it return.
fn zeroes_during_the_call(zeroes: &Zeroes, goes_on: bool, meanwhile: impl Fn(&World<'_>, &Plain, &dyn Fn() -> bool)) {
    in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
        let sizes = if zeroes.least == 0 { FolioOrders::BASE } else { orders(zeroes.least, 2) };
        let slow_page = if zeroes.least == 0 { REMOVED } else { 0 };
        let (space, (storage, object)) = (w.space, plain_of(w, slow_page, sizes));
        w.space.write(BASE + START, &[OLD; PAGE as usize]).unwrap();
        storage.keeps.store(goes_on, SeqCst);
        thread::scope(|scope| {
            let _goes_on = GoesOn(&storage);
            let writer = scope.spawn(|| on_cpu(w.vm, 1, || object.write_back(ALL)));
            wait_until(|| storage.is_in_call.load(SeqCst));
            let zero = scope.spawn(|| on_cpu(w.vm, 2, || (zeroes.zero)(space, &object)));
            wait_until(|| w.vm.event(Event::Waited) > 0 || zero.is_finished());
            meanwhile(w, &storage, &|| zero.is_finished());
            storage.may_go_on.store(true, SeqCst);
            assert_eq!(writer.join().unwrap(), Ok(()));
            zero.join().unwrap();
        });
        // The call may have brought old bytes; nothing comes after it.
        storage.zero(zeroes.bytes.clone());
        assert_eq!(object.write_back(ALL), Ok(()));
        assert_eq!([zeroes.bytes.start, zeroes.bytes.end - 1].map(|at| storage.byte_at(at)), [0; 2]);
        assert_eq!(storage.byte_at(0), OLD);
        check(w.vm, &[w.space]);
    });
}

/// A storage that answers each call when it has stored the bytes needs no care after the zeroes.
#[test]
fn zeroes_wait_for_the_call_that_writes_their_page() {
    for zeroes in &ZEROES {
        zeroes_during_the_call(zeroes, false, |w, _, has_returned| {
            assert!(!has_returned(), "the machine is in the call");
            // Nothing is held, and the page is stored to as before.
            w.space.write(BASE, &[OLD]).unwrap();
        });
    }
}

/// Another removal takes out the folio of which a part was zeroed. Both wait for the call.
#[test]
fn zeroes_wait_though_their_folio_leaves() {
    in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
        let (storage, object) = plain(w, REMOVED);
        let nr_waits = || w.vm.event(Event::Waited);
        thread::scope(|scope| {
            let _goes_on = GoesOn(&storage);
            scope.spawn(|| on_cpu(w.vm, 1, || object.write_back(ALL)));
            wait_until(|| storage.is_in_call.load(SeqCst));
            let zero = scope.spawn(|| on_cpu(w.vm, 2, || object.zero(START..START + 100)));
            wait_until(|| nr_waits() > 0);
            let removal = scope.spawn(|| on_cpu(w.vm, 3, || object.discard(REMOVED..REMOVED + 1)));
            // It waits, and has woken the other one, which waits again.
            wait_until(|| nr_waits() >= 3 || zero.is_finished());
            assert!(!zero.is_finished() && !removal.is_finished(), "the machine is in the call");
        });
        check(w.vm, &[w.space]);
    });
}

/// The call ends, and the write goes on: nobody waits for that.
#[test]
fn zeroes_do_not_wait_for_a_write_that_goes_on() {
    for zeroes in &ZEROES {
        zeroes_during_the_call(zeroes, true, |w, storage, has_returned| {
            let _ends = EndsKept(w.vm, storage);
            storage.may_go_on.store(true, SeqCst);
            wait_until(has_returned);
        });
    }
}
