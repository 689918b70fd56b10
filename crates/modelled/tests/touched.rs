//! Pages touched since a mark: marks and reports against touches, and against everybody who clears an accessed bit, moves a
//! page or frees its frame.
//!
//! Ways to fail: a touch that comes after a mark is in no later report; one from before the mark is; a mark or a touch
//! is another page's, which has the frame by then.

use common::{Modelled, RW, World, be, beside_pagers, explore, run};
use softfault_modelled::policy::around::FaultAround;
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, Advice, FaultLocking, FileId, MapFlags, ObjectPart, SharedObject};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Object = SharedObject<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;

std::thread_local! {
    /// In this execution: the mark is over.
    static IS_MARKED: Cell<bool> = const { Cell::new(false) };
    /// In this execution: a touch began after that.
    static IS_TOUCHED: Cell<bool> = const { Cell::new(false) };
}

fn reset() {
    IS_MARKED.set(false);
    IS_TOUCHED.set(false);
    be(0);
}

/// A file of two pages, mapped and touched.
fn world() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object: &Object = Box::leak(Box::new(w.vm.new_file_object(2 * PAGE, FolioOrders::BASE, FileId(0)).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * PAGE, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
    [0, 1].into_iter().for_each(|page| touch(w, page));
    reset();
    (w, object)
}

/// The same; since the mark only the second page was touched, so that the first has an entry that is not accessed.
fn world_of_old_entry() -> (World, &'static Object) {
    let (w, object) = world();
    object.mark_untouched();
    w.vm.set_fault_around(FaultAround::DEFAULT);
    touch(w, 1);
    w.vm.set_fault_around(FaultAround::OFF);
    assert!(w.space.translate_at_rest(AT * PAGE).is_some());
    assert_eq!(report(object), 2, "the first page is not touched");
    // The report has removed the entries.
    object.mark_untouched();
    w.vm.set_fault_around(FaultAround::DEFAULT);
    touch(w, 1);
    w.vm.set_fault_around(FaultAround::OFF);
    be(0);
    (w, object)
}

fn touch(w: World, page: u64) {
    w.space.read((AT + page) * PAGE, &mut [0]).unwrap();
}

/// The pages that were touched, a bit each.
fn report(object: &Object) -> u64 {
    let mut bits = 0;
    object.touched(0..2, &mut |run| run.for_each(|page| bits |= 1 << page));
    bits
}

fn mark(object: &Object) {
    object.mark_untouched();
    IS_MARKED.set(true);
}

/// A touch that begins after the mark is reported; nothing else was touched.
fn mark_against(touch: impl Fn(World, &Object) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let (w, object) = world();
        let touch = move || {
            IS_TOUCHED.set(IS_MARKED.get());
            touch(w, object);
        };
        run(vec![Box::new(move || mark(object)), Box::new(touch)]);
        let touched = report(object);
        assert!(touched & 1 == 1 || !IS_TOUCHED.get(), "a touch is lost");
        assert_eq!(touched & 2, 0, "a touch from before the mark is reported");
        assert_eq!(report(object), touched, "a report changes nothing");
        w.check(&[]);
    });
}

#[test]
fn a_mark_against_a_touch() {
    mark_against(|w, _| touch(w, 0));
}

#[test]
fn a_mark_against_the_handle() {
    mark_against(|_, object| object.write(0, &[9]).unwrap());
}

/// A touch that runs beside a report is in it or in the next one.
#[test]
fn a_report_against_a_touch() {
    explore(2, || {
        let (w, object) = world();
        mark(object);
        run(vec![Box::new(move || _ = report(object)), Box::new(move || touch(w, 0))]);
        assert_eq!(report(object), 1);
        w.check(&[]);
    });
}

/// An access through an entry that is there, of which the accessed bit is the only record, while another CPU clears it.
fn clear_against(
    clear: impl Fn(World) + Sync + Send + Copy + 'static,
    other: impl Fn(World, &Object) + Sync + Send + Copy + 'static,
) {
    explore(2, move || {
        let (w, object) = world_of_old_entry();
        touch(w, 0);
        be(0);
        run(vec![Box::new(move || clear(w)), Box::new(move || other(w, object))]);
        assert_eq!(report(object), 3, "a touch is lost");
        w.check(&[]);
    });
}

fn advise(w: World) {
    w.space.madvise(AT * PAGE, PAGE, Advice::Cold).unwrap();
}

fn age(w: World) {
    _ = w.space.age_pages(AT * PAGE, 1);
}

fn clear_young(w: World) {
    _ = w.space.test_and_clear_young(AT * PAGE, PAGE);
}

/// At each moment the entry or the state shows the touch.
#[test]
fn a_report_against_who_clears_the_bit() {
    for clear in [advise, age, clear_young] {
        clear_against(clear, |_, object| assert_eq!(report(object), 3, "the touch is nowhere"));
    }
}

/// The second access may be what is cleared.
#[test]
fn a_touch_against_who_clears_the_bit() {
    for clear in [advise, age, clear_young] {
        clear_against(clear, |w, _| touch(w, 0));
    }
}

/// The page is at its new place when the mark is forgotten, or moves without it.
#[test]
fn a_mark_against_a_move() {
    explore(1, || {
        let (w, object) = world();
        let pfn = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        run(vec![Box::new(move || mark(object)), Box::new(move || _ = w.vm.migrate_frame(pfn))]);
        assert_eq!(report(object), 0, "the mark was on the old frame");
        w.check(&[]);
    });
}

/// A frame that becomes another object's while one CPU does `late` to the page that it was: nothing of that is seen there.
fn late(late: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static, is_touched: bool) {
    static NR_REUSED: AtomicU64 = AtomicU64::new(0);
    explore(1, move || {
        let (w, object) = world();
        let other: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(PAGE).unwrap()));
        // The tree of the other one is there.
        other.write(0, &[1]).unwrap();
        other.discard(0..1);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        w.space.mmap_object(8 * PAGE, PAGE, RW, flags, ObjectPart::new(other)).unwrap();
        w.touch(8);
        other.discard(0..1);
        let pfn = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        be(0);
        let reuse = move || {
            object.discard(0..1);
            // Without an entry, whose accessed bit would tell of a touch, too.
            other.write(0, &[1]).unwrap();
            if !is_touched {
                other.mark_untouched();
            }
        };
        run(vec![Box::new(move || late(w, object)), Box::new(reuse)]);
        let mut nr_touched = 0;
        other.touched(0..1, &mut |_| nr_touched += 1);
        assert_eq!(nr_touched == 1, is_touched, "it is another page's");
        w.space.handle_fault(8 * PAGE, Access::Read).unwrap();
        NR_REUSED.fetch_add(u64::from(w.space.translate_at_rest(8 * PAGE).unwrap().pfn == pfn), Relaxed);
        w.check(&[]);
    });
    assert!(NR_REUSED.load(Relaxed) > 0, "no frame was another page's");
}

#[test]
fn a_mark_against_another_page_in_the_frame() {
    late(|_, object| object.mark_untouched(), true);
}

#[test]
fn advice_against_another_page_in_the_frame() {
    late(|w, _| advise(w), false);
}

beside_pagers![a_mark_against_a_touch, a_report_against_a_touch];
