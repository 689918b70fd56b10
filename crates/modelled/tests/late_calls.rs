//! I56: the machine's calls that write pages of a file, against removals of these and zeroes in them.
//!
//! Ways to fail: a removal returns during the call for what it has taken out or zeroed, or during that of an earlier one; it waits for
//! other calls; newer bytes come before older ones.

use common::objects::byte;
use common::pager::{self, Pager};
use common::{Modelled, RW, World, be, beside_pagers, explore, files, let_parks_block, let_sleep, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Event, FaultLocking, FileId, MapFlags, ObjectPart, Order, SharedObject};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

type Object = SharedObject<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;
/// The byte that pages have which are removed.
const OLD: u8 = 7;
/// The byte that is stored afterwards.
const NEW: u8 = 9;

/// Where memory fails, stores may have been lost with it, of which one call is told.
fn write_back_of(object: &Object, pages: Range<u64>) {
    let done = object.write_back(pages);
    assert!(done.is_ok() || pager::here() == Some(Pager::Fails), "{done:?}");
}

/// A file of three pages, mapped. Two have stores.
fn three_pages(least: Order) -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(least, least).unwrap();
    let object: &Object = Box::leak(Box::new(w.vm.new_file_object(3 * PAGE, orders, FileId(0)).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * PAGE, 3 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
    (AT + 1..AT + 3).for_each(|page| w.space.write(page * PAGE, &[OLD]).unwrap());
    be(0);
    (w, object)
}

fn write_both(object: &Object) {
    write_back_of(object, 1..3);
}

fn make_a_hole(object: &Object) {
    object.discard(1..2);
    files::note_removed(1, OLD);
}

fn cut(object: &Object) {
    object.set_size_bytes(2 * PAGE);
    files::note_removed(2, OLD);
}

/// Within the folio of two pages.
fn cut_a_folio(object: &Object) {
    object.set_size_bytes(PAGE);
    [1, 2].iter().for_each(|page| files::note_removed(*page, OLD));
}

/// Of its page the first byte alone is looked at.
fn zero_a_part(object: &Object) {
    object.zero(PAGE..PAGE + 8).unwrap();
    files::note_removed(1, OLD);
}

/// Takes out all of the folio of two pages.
fn remove_a_folio(object: &Object) {
    object.discard(0..2);
    files::note_removed(1, OLD);
}

/// The file gets what is stored after the removals, and keeps it.
fn is_removed(w: World, object: &Object) {
    w.check(&[]);
    object.set_size_bytes(3 * PAGE);
    object.write(PAGE, &[NEW; 2 * PAGE as usize]).unwrap();
    write_both(object);
    assert_eq!([1, 2].map(files::written), [Some(NEW); 2]);
    w.check(&[]);
}

fn removal_against(preemptions: usize, actors: &'static [fn(&Object)]) {
    removal_of(Order::BASE, preemptions, actors);
}

fn removal_of(least: Order, preemptions: usize, actors: &'static [fn(&Object)]) {
    let_parks_block();
    explore(preemptions, move || {
        let (w, object) = three_pages(least);
        let act = |i: usize| {
            move || {
                // The third is the CPU that waits for the others.
                if i == 2 {
                    be(0);
                }
                actors[i](object);
            }
        };
        run((0..actors.len()).map(|i| Box::new(act(i)) as Box<dyn FnOnce() + Send>).collect());
        make_a_hole(object);
        cut(object);
        is_removed(w, object);
    });
}

/// The machine is asked for one folio after the other. A folio that was begun and then taken out is not asked for, and a removal
/// during the call returns after it.
#[test]
fn a_removal_against_a_batch() {
    removal_against(2, &[write_both, make_a_hole]);
    removal_against(2, &[write_both, cut]);
}

#[test]
fn a_removal_against_a_batch_and_another() {
    removal_against(1, &[write_both, make_a_hole, cut]);
}

/// The second finds no page, and waits for the call for what the first has taken out.
#[test]
fn two_removals_against_a_batch() {
    removal_against(1, &[write_both, make_a_hole, make_a_hole]);
    removal_against(1, &[write_both, cut, cut]);
}

/// The folio stays whole, and the page is zeroed: the call has the zeroes, or is waited for.
#[test]
fn zeroes_against_a_write() {
    removal_of(Order(1), 2, &[write_both, make_a_hole]);
    removal_of(Order(1), 2, &[write_both, cut_a_folio]);
    removal_against(2, &[write_both, zero_a_part]);
}

/// Another removal takes out the folio of which a page is zeroed.
#[test]
fn zeroes_against_a_write_and_a_removal() {
    removal_of(Order(1), 1, &[write_both, make_a_hole, remove_a_folio]);
}

fn wait_until(is: impl Fn() -> bool) {
    while !is() {
        loom::thread::yield_now();
    }
}

/// Whether it has happened, in an execution.
fn flag() -> &'static AtomicBool {
    Box::leak(Box::new(AtomicBool::new(false)))
}

/// An actor that zeroes a part of page 1 when the machine is in its call for that, whose end waits until the actor is about to sleep.
/// Whether the actor has returned.
fn zeroes_in_next_call(w: World, object: &'static Object) -> (impl FnOnce() + Send + 'static, &'static AtomicBool) {
    let (is_in_call, has_returned, nr_before) = (flag(), flag(), w.vm.event(Event::Waited));
    files::in_next_call(move || {
        is_in_call.store(true, Relaxed);
        wait_until(|| w.vm.event(Event::Waited) > nr_before);
    });
    let zero = move || {
        wait_until(|| is_in_call.load(Relaxed));
        object.zero(PAGE..PAGE + 8).unwrap();
        has_returned.store(true, Relaxed);
    };
    (zero, has_returned)
}

/// The folio is written again as soon as the call is over, and that call ends when the CPU that has zeroed a part has returned.
#[test]
fn zeroes_do_not_wait_for_a_later_call() {
    static NR_SEEN: AtomicU64 = AtomicU64::new(0);
    let_parks_block();
    explore(1, || {
        let (w, object) = three_pages(Order::BASE);
        let (zero, has_returned) = zeroes_in_next_call(w, object);
        let write_twice = move || {
            write_back_of(object, 1..2);
            files::in_next_call(move || {
                wait_until(|| has_returned.load(Relaxed));
                NR_SEEN.fetch_add(1, Relaxed);
            });
            write_back_of(object, 1..2);
        };
        run(vec![Box::new(write_twice), Box::new(zero)]);
        w.check(&[]);
    });
    assert!(NR_SEEN.load(Relaxed) > 0, "no call came after the first one");
}

/// The call is over, the page leaves, and the machine is in a call for another page that leaves.
#[test]
fn zeroes_do_not_wait_for_a_call_of_another_page() {
    let_parks_block();
    explore(0, || {
        let (w, object) = three_pages(Order::BASE);
        let (zero, has_returned) = zeroes_in_next_call(w, object);
        let (is_in_call, is_late) = (flag(), flag());
        // It looks at its page when the other one has left.
        let_sleep(2, is_late);
        let write_and_remove = move || {
            write_back_of(object, 1..2);
            object.discard(1..2);
            files::in_next_call(move || {
                is_in_call.store(true, Relaxed);
                wait_until(|| object.nr_late_calls() > 0);
                is_late.store(true, Relaxed);
                wait_until(|| has_returned.load(Relaxed));
            });
            write_back_of(object, 2..3);
        };
        let remove_another = move || {
            be(0);
            wait_until(|| is_in_call.load(Relaxed));
            object.discard(2..3);
        };
        run(vec![Box::new(write_and_remove), Box::new(zero), Box::new(remove_another)]);
        w.check(&[]);
    });
}

/// While a removal waits for the call, the page is stored to and written: the machine is asked for that after the call.
#[test]
fn a_store_beside_a_removal_against_a_batch() {
    let_parks_block();
    explore(1, || {
        let (w, object) = three_pages(Order::BASE);
        let store = move || {
            // The CPU that waits for the others.
            be(0);
            object.write(PAGE, &[NEW]).unwrap();
            object.write_back(1..2).unwrap();
        };
        run(vec![Box::new(move || write_both(object)), Box::new(move || make_a_hole(object)), Box::new(store)]);
        w.check(&[]);
        let is_hole = byte(object, PAGE) != NEW;
        assert!(is_hole || files::written(1) == Some(NEW), "older bytes came after it");
    });
}

beside_pagers![a_removal_against_a_batch];
