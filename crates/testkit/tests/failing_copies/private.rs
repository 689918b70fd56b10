//! Private pages of 4 KiB: copy-on-write, private mappings of objects, fork(2) of pinned pages, swapping in.

use super::common::objects::{object, orders, whole};
use super::common::swapped::vm_with_slots;
use super::common::{BASE, FIXED, PAGE, PRIVATE, RW, World, check, frame_of};
use super::{Failing, each_copy_fails, pages, run_with, store};
use softfault::{Access, Event, FaultError, MapFlags, SwapRefusal, Term};

const SECOND: u64 = BASE + PAGE;

/// Three pages that say 7.
fn three_pages(w: &World<'_>) {
    w.map(BASE, 3, RW);
    (0..3).for_each(|page| w.space.write(BASE + page * PAGE, &[7; PAGE as usize]).unwrap());
}

/// All who share the page lose it, as where it fails under a program's own load.
#[test]
fn a_shared_page_that_cannot_be_copied() {
    each_copy_fails(1, |w, failing| {
        three_pages(w);
        let (child, old) = (w.space.fork().unwrap(), frame_of(w.space, SECOND));
        let is_told = failing.run(w, || store(&child, SECOND, 8));
        check(w.vm, &[w.space, &child]);
        assert_eq!((is_told, failing.pfn.get()), (failing.has_failed(), is_told.then_some(old)));
        let nr = u64::from(is_told);
        let events = [Event::CopyFailed, Event::FramesPoisoned, Event::RefusedPoisoned].map(|event| w.vm.event(event));
        assert_eq!(events, [nr; 3]);
        let seen = |byte: u8| [Some(7), (!is_told).then_some(byte), Some(7)];
        assert_eq!((pages(w.space, BASE, 3), pages(&child, BASE, 3)), (seen(7).to_vec(), seen(8).to_vec()));
        if is_told {
            assert_eq!(child.handle_fault(SECOND, Access::Read), Err(FaultError::Poisoned));
            child.madvise(SECOND, PAGE, softfault::Advice::DontNeed).unwrap();
            assert_eq!(pages(&child, BASE, 3), [Some(7), Some(0), Some(7)]);
        }
    });
}

/// Nobody waits for subscribers in a fault. The page stays, and `poison_frame` tells them.
#[test]
fn a_page_with_subscribers_stays_for_them() {
    each_copy_fails(1, |w, failing| {
        three_pages(w);
        let child = w.space.fork().unwrap();
        let subscription = w.space.subscribe();
        let is_told = failing.run(w, || store(&child, SECOND, 8));
        let refused = w.vm.event(Event::MigrateRefusedSubscribed);
        assert_eq!((refused, w.vm.event(Event::FramesPoisoned)), (u64::from(is_told), 0));
        assert_eq!(pages(w.space, BASE, 3), [Some(7); 3]);
        if let Some(pfn) = failing.pfn.get() {
            assert_eq!(w.vm.poison_frame(pfn), Ok(2));
            assert_eq!((pages(w.space, BASE, 3)[1], pages(&child, BASE, 3)[1]), (None, None));
        }
        w.space.unsubscribe(subscription).unwrap();
        check(w.vm, &[w.space, &child]);
    });
}

/// A private mapping shows the object's page, or does not yet. The object says that it failed.
#[test]
fn a_page_of_an_object_that_cannot_be_copied() {
    for (most, is_shown) in [(0, false), (0, true), (2, false), (2, true)] {
        each_copy_fails(1, |w, failing| {
            let object = object(w, 4, orders(0, most));
            object.write(0, &[7; 4 * PAGE as usize]).unwrap();
            assert_eq!(w.space.mmap_object(BASE, 4 * PAGE, RW, MapFlags::PRIVATE | FIXED, whole(&object)), Ok(BASE));
            if is_shown {
                w.space.handle_fault(SECOND, Access::Read).unwrap();
            }
            let is_told = failing.run(w, || store(w.space, SECOND, 8));
            check(w.vm, &[w.space]);
            assert_eq!(is_told, failing.has_failed());
            assert_eq!(object.next_poisoned(0..4), is_told.then_some(1));
            assert_eq!(w.vm.event(Event::FramesPoisoned), u64::from(is_told));
            assert_eq!(pages(w.space, BASE, 4), [Some(7), (!is_told).then_some(8), Some(7), Some(7)]);
            if is_told {
                object.discard(1..2);
                assert!(!store(w.space, SECOND, 9));
                assert_eq!(pages(w.space, BASE, 4), [Some(7), Some(9), Some(7), Some(7)]);
            }
            w.space.munmap(BASE, 4 * PAGE).unwrap();
        });
    }
}

/// The parent keeps its pinned page; the child learns at its first touch that it has none.
#[test]
fn a_fork_that_cannot_copy_a_pinned_page() {
    each_copy_fails(2, |w, failing| {
        three_pages(w);
        let pins = [0, 1].map(|page| w.space.pin_page_mut(BASE + page * PAGE, Term::Short).unwrap());
        let child = failing.run(w, || w.space.fork().unwrap());
        check(w.vm, &[w.space, &child]);
        pins[1].write(0, &[8]);
        let lost = pins.iter().position(|pin| failing.pfn.get() == Some(pin.pfn()));
        assert_eq!((lost.is_some(), w.vm.event(Event::CopyFailed)), (failing.has_failed(), lost.is_some().into()));
        assert_eq!(pages(w.space, BASE, 3), [Some(7), Some(8), Some(7)]);
        let expected = [0, 1, 2].map(|page| (lost != Some(page)).then_some(7));
        assert_eq!(pages(&child, BASE, 3), expected);
        assert_eq!(child.rss_pages().anon, 3 - u64::from(lost.is_some()));
        drop(pins);
    });
}

/// A page that was not written is in its frame still. A later fault may have more luck.
#[test]
fn a_page_on_its_way_out() {
    for nr_before in 0..2 {
        let vm = vm_with_slots(1, 4);
        let has_failed = run_with(&vm, nr_before, &|w: &World<'_>, failing: &Failing| {
            three_pages(w);
            w.vm.machine().fail_swap(true, false);
            assert_eq!(w.vm.swap_out_frame(frame_of(w.space, SECOND)), Err(SwapRefusal::NotWritten));
            w.vm.machine().fail_swap(false, false);
            let found = failing.run(w, || w.space.handle_fault(SECOND, Access::Read));
            assert_eq!(found.is_err(), failing.has_failed());
            if failing.has_failed() {
                assert_eq!((found, w.vm.event(Event::CopyFailed)), (Err(FaultError::Poisoned), 1));
            }
            check(w.vm, &[w.space]);
            assert_eq!(pages(w.space, BASE, 3), [Some(7); 3]);
        });
        assert_eq!(has_failed, nr_before == 0);
    }
}

#[test]
fn a_fault_that_copies_nothing_needs_no_machine() {
    each_copy_fails(0, |w, failing| {
        failing.run(w, || three_pages(w));
        w.space.mmap(BASE + 8 * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.handle_fault(BASE + 8 * PAGE, Access::Read).unwrap();
        assert!(!failing.run(w, || store(w.space, BASE + 8 * PAGE, 1)), "the zero frame is not read");
    });
}
