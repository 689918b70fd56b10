//! Pages of 2 MiB: copy-on-write of a huge page, which becomes small pages if it cannot be copied as a whole; and collapse.

use super::common::check;
use super::common::huge::{AT, HUGE, huge_pages, map, vm};
use super::common::{PAGE, World};
use super::{Failing, pages, run_with, store};
use softfault::policy::collapse::CollapseRefusal;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{Advice, Event, HugeKnobs};

const COPY: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(CowHuge::Copy);

/// Copies that fail: the first, some, the last, and none.
const NR_BEFORE: [u64; 5] = [0, 1, 200, 511, 512];

fn fill(w: &World<'_>) {
    (0..512).for_each(|page| w.space.write(AT + page * PAGE, &[page as u8]).unwrap());
}

fn expected() -> Vec<Option<u8>> {
    (0..512).map(|page| Some(page as u8)).collect()
}

/// Only a store to the page that failed is refused.
#[test]
fn a_huge_page_that_cannot_be_copied() {
    for nr_before in NR_BEFORE {
        let has_failed = run_with(&vm(1, 32 << 20, COPY), nr_before, &|w: &World<'_>, failing: &Failing| {
            map(w.space, AT, HUGE);
            fill(w);
            assert_eq!(huge_pages(w.space), 1);
            let first = w.space.translate_at_rest(AT).unwrap().pfn;
            let child = w.space.fork().unwrap();
            let is_told = failing.run(w, || store(&child, AT + 3 * PAGE, 0xee));
            check(w.vm, &[w.space, &child]);
            let bad = failing.pfn.get().map(|pfn| u64::from(pfn.0 - first.0));
            assert_eq!((is_told, huge_pages(&child)), (bad == Some(3), u64::from(bad.is_none())));
            assert_eq!(huge_pages(w.space), 1, "no memory is taken from it");
            let mut then = expected();
            assert_eq!(pages(w.space, AT, 512), then);
            then[3] = if is_told { then[3] } else { Some(0xee) };
            assert_eq!(pages(&child, AT, 512), then);
        });
        assert_eq!(has_failed, nr_before < 512);
    }
}

/// The page where the fault was fails: in whichever order sub-pages are copied.
#[test]
fn each_sub_page_is_copied_or_told_of() {
    let mut nr_told = 0;
    for nr_before in 0..512 {
        let told = std::cell::Cell::new(false);
        let memory = vm(1, 16 << 20, COPY);
        run_with(&memory, nr_before, &|w: &World<'_>, failing: &Failing| {
            map(w.space, AT, HUGE);
            w.space.write(AT, &[1]).unwrap();
            let child = w.space.fork().unwrap();
            told.set(failing.run(w, || store(&child, AT, 2)));
            assert_eq!(pages(w.space, AT, 1), [Some(1)]);
        });
        nr_told += u64::from(told.get());
    }
    assert_eq!(nr_told, 1);
}

/// The small pages stay what they were, and a later collapse works.
#[test]
fn a_collapse_that_cannot_copy() {
    for nr_before in [0, 1, 7, 8] {
        let knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Madvise);
        let has_failed = run_with(&vm(1, 32 << 20, knobs), nr_before, &|w: &World<'_>, failing: &Failing| {
            map(w.space, AT, HUGE);
            (0..8).for_each(|page| w.space.write(AT + page * PAGE, &[7]).unwrap());
            let collapsed = failing.run(w, || w.space.collapse(AT));
            check(w.vm, &[w.space]);
            let expected = if failing.has_failed() { Err(CollapseRefusal::SourceFailed) } else { Ok(()) };
            assert_eq!((collapsed, w.vm.event(Event::CollapseSourceFailed)), (expected, collapsed.is_err().into()));
            assert_eq!(pages(w.space, AT, 9), [[Some(7); 8].as_slice(), &[Some(0)]].concat());
            if failing.has_failed() {
                assert_eq!(w.space.collapse(AT), Ok(()));
                assert_eq!(pages(w.space, AT, 8), [Some(7); 8]);
            }
        });
        assert_eq!(has_failed, nr_before < 8);
    }
}

/// MADV_COLLAPSE is refused as for any page that cannot become a part of a huge one.
#[test]
fn advice_to_collapse_is_refused() {
    let knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Madvise);
    run_with(&vm(1, 32 << 20, knobs), 0, &|w: &World<'_>, failing: &Failing| {
        map(w.space, AT, HUGE);
        w.space.write(AT, &[7]).unwrap();
        let refused = failing.run(w, || w.space.madvise(AT, HUGE, Advice::Collapse)).unwrap_err();
        assert_eq!(refused.errno(), softfault::errno::Errno::EINVAL);
        assert_eq!(pages(w.space, AT, 1), [Some(7)]);
    });
}
