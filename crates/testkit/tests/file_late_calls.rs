//! A second removal of what is being written, and zeroes in a folio that stays: each returns when the machine is not in the call any more.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, orders};
use common::plain::{EndsKept, GoesOn, NEW, OLD, Plain, REMOVALS, REMOVED, Remove, plain, plain_of};
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

/// Zeroes a part of the folio of page [`REMOVED`], which stays, and perhaps pages behind it, which leave. Returns the bytes that the
/// storage has to zero once more.
struct Zeroes {
    zero: fn(&Space<'_>, &Plain, &Object<'_>) -> Range<u64>,
    bytes: Range<u64>,
    /// log2 of the number of pages that the folios have at least.
    least: u8,
    /// The first page of the folio that is being written meanwhile.
    slow_page: u64,
}

const START: u64 = REMOVED * PAGE;
const END: u64 = START + PAGE;

fn hole(_: &Space<'_>, object: &Object<'_>, bytes: Range<u64>) -> Range<u64> {
    object.make_hole(bytes).unwrap()
}

/// The storage has zeroed it itself.
fn remove(space: &Space<'_>, storage: &Plain, bytes: Range<u64>) -> Range<u64> {
    space.madvise(BASE + bytes.start, bytes.end - bytes.start, Advice::Remove).unwrap();
    storage.gone.lock().unwrap().take().unwrap()
}

const PART: Range<u64> = START + 100..START + 200;

/// They are stored to afterwards.
const HOLES: [Zeroes; 6] = [
    Zeroes { zero: |space, _, object| hole(space, object, PART), bytes: PART, least: 0, slow_page: 1 },
    Zeroes { zero: |space, _, object| hole(space, object, START..END), bytes: START..END, least: 1, slow_page: 0 },
    Zeroes { zero: |space, _, object| hole(space, object, START..END), bytes: START..END, least: 2, slow_page: 0 },
    Zeroes { zero: |space, storage, _| remove(space, storage, START..END), bytes: START..END, least: 1, slow_page: 0 },
    Zeroes {
        zero: |space, _, object| hole(space, object, START..FILE_END),
        bytes: START..FILE_END,
        least: 1,
        slow_page: 2,
    },
    Zeroes {
        zero: |space, storage, _| remove(space, storage, START..FILE_END),
        bytes: START..FILE_END,
        least: 1,
        slow_page: 2,
    },
];
const FILE_END: u64 = 4 * PAGE;

/// The storage is cut afterwards.
const SIZES: [Zeroes; 2] = [
    Zeroes {
        zero: |_, _, object| {
            object.set_size_bytes(START + 100);
            START + 100..FILE_END
        },
        bytes: START + 100..END,
        least: 0,
        slow_page: REMOVED,
    },
    Zeroes {
        zero: |_, _, object| {
            object.set_size_bytes(START);
            START..FILE_END
        },
        bytes: START..END,
        least: 2,
        slow_page: 0,
    },
];

/// While the machine is in the call for the page, after which the write goes on or not. `meanwhile` may let it return, `afterwards` is
/// done between that and the second change of the storage.
fn zeroes_during_the_call(
    zeroes: &Zeroes,
    goes_on: bool,
    meanwhile: impl Fn(&World<'_>, &Plain, &dyn Fn() -> bool),
    afterwards: impl Fn(&World<'_>, &Plain, &Object<'_>),
) {
    in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
        let sizes = if zeroes.least == 0 { FolioOrders::BASE } else { orders(zeroes.least, 2) };
        let (space, (storage, object)) = (w.space, plain_of(w, zeroes.slow_page, sizes));
        w.space.write(BASE + START, &vec![OLD; (zeroes.bytes.end.next_multiple_of(PAGE) - START) as usize]).unwrap();
        storage.keeps.store(goes_on, SeqCst);
        storage.punches_again.store(true, SeqCst);
        thread::scope(|scope| {
            let _goes_on = GoesOn(&storage);
            let writer = scope.spawn(|| on_cpu(w.vm, 1, || object.write_back(ALL)));
            wait_until(|| storage.is_in_call.load(SeqCst));
            let zero = scope.spawn(|| {
                on_cpu(w.vm, 2, || {
                    storage.zero(zeroes.bytes.clone());
                    (zeroes.zero)(space, &storage, &object)
                })
            });
            wait_until(|| w.vm.event(Event::Waited) > 0 || zero.is_finished());
            meanwhile(w, &storage, &|| zero.is_finished());
            storage.may_go_on.store(true, SeqCst);
            assert_eq!(writer.join().unwrap(), Ok(()));
            afterwards(w, &storage, &object);
            // The call may have brought old bytes; nothing comes after it.
            storage.zero(zero.join().unwrap());
        });
        assert_eq!(object.write_back(ALL), Ok(()));
        assert_eq!([zeroes.bytes.start, zeroes.bytes.end - 1].map(|at| storage.byte_at(at)), [0; 2]);
        assert_eq!(storage.byte_at(0), OLD);
        let mut there = vec![0; (zeroes.bytes.end - START) as usize];
        let nr = object.read(START, &mut there);
        let in_storage = (START..).map(|at| storage.byte_at(at));
        assert!(there[..nr].iter().copied().eq(in_storage.take(nr)), "the storage has other bytes");
        check(w.vm, &[w.space]);
    });
}

/// A storage that answers each call when it has stored the bytes needs no care after the zeroes but for the pages that have left.
#[test]
fn zeroes_wait_for_the_call_that_writes_their_page() {
    for (zeroes, stores) in SIZES.iter().chain(&HOLES).flat_map(|zeroes| [(zeroes, false), (zeroes, true)]) {
        let meanwhile = |w: &World<'_>, _: &Plain, has_returned: &dyn Fn() -> bool| {
            assert!(!has_returned(), "the machine is in the call");
            // Nothing is held, and the folio is stored to as before. It is dirty without that.
            if stores {
                w.space.write(BASE, &[OLD]).unwrap();
            }
        };
        zeroes_during_the_call(zeroes, false, meanwhile, |_, _, _| ());
    }
}

/// A page that stays is stored to while its hole waits, and the store is written before the storage has the hole a second time.
#[test]
fn a_store_to_zeroes_that_stay_is_kept() {
    for zeroes in &HOLES {
        let at = START + 150;
        let meanwhile = |w: &World<'_>, storage: &Plain, _: &dyn Fn() -> bool| {
            storage.holds_holes.store(true, SeqCst);
            w.space.write(BASE + at, &[NEW]).unwrap();
        };
        let afterwards = |_: &World<'_>, storage: &Plain, object: &Object<'_>| {
            object.write_back(0..2).unwrap();
            assert_eq!(storage.byte_at(at), NEW);
            storage.holds_holes.store(false, SeqCst);
        };
        zeroes_during_the_call(zeroes, false, meanwhile, afterwards);
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
    for zeroes in SIZES.iter().chain(&HOLES) {
        let meanwhile = |w: &World<'_>, storage: &Plain, has_returned: &dyn Fn() -> bool| {
            let _ends = EndsKept(w.vm, storage);
            storage.may_go_on.store(true, SeqCst);
            wait_until(has_returned);
        };
        zeroes_during_the_call(zeroes, true, meanwhile, |_, _, _| ());
    }
}

/// Which bytes a hole says have left.
#[test]
fn a_hole_tells_what_has_left() {
    const P: u64 = PAGE;
    let pages = |first: u64, end: u64| first * P..end * P;
    // Folios of at least so many pages; the hole; what has left.
    let cases = [
        (0, pages(1, 3), pages(1, 3)),
        (0, P + 8..3 * P + 8, pages(2, 3)),
        (0, P + 8..P + 9, P + 9..P + 9),
        (0, pages(3, 9), pages(3, 4)),
        (0, pages(4, 9), pages(4, 4)),
        (1, pages(1, 4), pages(2, 4)),
        (1, pages(0, 3), pages(0, 2)),
        (1, pages(1, 3), pages(2, 2)),
        (1, pages(0, 2), pages(0, 2)),
        (1, P + 8..4 * P, pages(2, 4)),
        (2, pages(1, 2), pages(1, 1)),
        (2, pages(1, 4), pages(4, 4)),
        (2, pages(0, 4), pages(0, 4)),
    ];
    for (least, bytes, gone) in cases {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let sizes = if least == 0 { FolioOrders::BASE } else { orders(least, 2) };
            let (_, object) = plain_of(w, u64::MAX, sizes);
            w.space.write(BASE, &[OLD; 4 * PAGE as usize]).unwrap();
            assert_eq!(object.make_hole(bytes.clone()), Ok(gone.clone()), "{least}, {bytes:?}");
            // Of a page that is missing nothing is dirty, and an earlier removal may be in a call for it.
            object.discard(ALL);
            let all = bytes.start..bytes.end.min(FILE_END).max(bytes.start);
            assert_eq!(object.make_hole(bytes.clone()), Ok(all), "{least}, {bytes:?}");
            check(w.vm, &[w.space]);
        });
    }
}
