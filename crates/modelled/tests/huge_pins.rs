//! I23, I26: pins of pages inside a huge mapping (here of four pages), against its
//! split, its end, fork and collapse.

use common::{Modelled, World, beside_pagers, explore, run};
use softfault_modelled::MlockFlags;
use softfault_modelled::policy::huge::Enabled;
use softfault_modelled::{
    Access, AddressSpace, Event, FaultError, FaultLocking, HugeKnobs, Order, PinError, PinMut, Term,
};
use std::sync::{Arc, Mutex};

type Held = Arc<Mutex<Option<PinMut<'static, Modelled>>>>;

const HUGE: u64 = 4;

fn enable(w: World, enabled: Enabled) {
    w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(enabled)).unwrap();
}

/// One huge page, written.
fn huge() -> World {
    let w = World::new(FaultLocking::Lockfree, 0, HUGE);
    enable(w, Enabled::Always);
    w.touch(0);
    assert!(w.space.page_state(4096).unwrap().order > Order::BASE, "the model has no huge page");
    enable(w, Enabled::Never);
    w
}

fn pin(space: &AddressSpace<'static, Modelled>, page: u64) -> PinMut<'static, Modelled> {
    space.pin_page_mut(page * 4096, Term::Short).unwrap()
}

/// Asserts that the page is still the one that is pinned.
fn assert_same(w: World, page: u64, held: &PinMut<'static, Modelled>) {
    let there = w.space.translate_at_rest(page * 4096).map(|t| t.pfn);
    assert_eq!(there, Some(held.pfn()), "I23: the page has left its pinned frame");
}

/// T4. A part goes, so the mapping is split and the folio dissolves, while pins of
/// that part and of the rest are released. Every count is exact afterwards.
#[test]
fn t4_release_against_a_split() {
    for page in [1, 2] {
        explore(2, move || {
            let w = huge();
            let held = pin(w.space, page);
            run(vec![Box::new(move || drop(held)), Box::new(move || w.space.munmap(4096, 4096).unwrap())]);
            w.check(&[]);
            assert_eq!(w.space.rss_pages().anon, HUGE - 1);
            w.space.munmap(0, HUGE * 4096).unwrap();
            w.check(&[]);
        });
    }
}

/// T4. The folio ends as a whole.
#[test]
fn t4_release_against_the_end_of_the_folio() {
    explore(2, || {
        let w = huge();
        let (held, other) = (pin(w.space, 1), pin(w.space, 2));
        run(vec![Box::new(move || drop(held)), Box::new(move || w.space.munmap(0, HUGE * 4096).unwrap())]);
        w.check(&[]);
        drop(other);
        w.check(&[]);
        assert_eq!(w.vm.event(Event::PinReleased), 2);
    });
}

/// T5, and the pin comes while the entry is being split.
#[test]
fn t5_pin_against_a_split() {
    explore(2, || {
        let w = huge();
        let held = Held::default();
        let pinned = held.clone();
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(pin(w.space, 1))),
            Box::new(move || w.space.munmap(3 * 4096, 4096).unwrap()),
        ]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        assert_same(w, 1, &held);
        drop(held);
        w.check(&[]);
    });
}

#[test]
fn pin_against_the_end_of_the_mapping() {
    explore(2, || {
        let w = huge();
        let held = Held::default();
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(PinError::Fault(FaultError::NotMapped)) => {}
            Err(error) => panic!("{error}"),
        };
        run(vec![Box::new(pin), Box::new(move || w.space.munmap(0, HUGE * 4096).unwrap())]);
        w.check(&[]);
        drop(held.lock().unwrap().take());
        w.check(&[]);
    });
}

/// Fork shares the huge page, or finds the pin and copies its page; afterwards the
/// parent writes the pinned frame, and the child does not.
#[test]
fn pin_against_fork_of_a_huge_page() {
    explore(2, || {
        let w = huge();
        let (held, child) = (Held::default(), Arc::<Mutex<Option<AddressSpace<'static, Modelled>>>>::default());
        let (pinned, forked) = (held.clone(), child.clone());
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(pin(w.space, 1))),
            Box::new(move || *forked.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let held = held.lock().unwrap().take().unwrap();
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        w.space.handle_fault(4096, Access::Write).unwrap();
        child.handle_fault(4096, Access::Write).unwrap();
        assert_same(w, 1, &held);
        assert_ne!(child.translate_at_rest(4096).map(|t| t.pfn), Some(held.pfn()), "I23: the child writes it");
        w.check(&[&child]);
        drop((held, child));
        w.check(&[]);
    });
}

/// T8. Collapse gives up, or the pin is of the new page.
#[test]
fn t8_pin_against_collapse() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, HUGE);
        (0..HUGE - 1).for_each(|page| w.touch(page));
        enable(w, Enabled::Always);
        let held = Held::default();
        let pinned = held.clone();
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(pin(w.space, 1))),
            Box::new(move || _ = w.space.collapse(0)),
        ]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        assert_same(w, 1, &held);
        drop(held);
        w.check(&[]);
    });
}

/// I23. A store through a pin stays, though the pin goes while the page is
/// found to be zero and split.
#[test]
fn a_write_through_a_pin_against_the_underused_split() {
    explore(5, || {
        let w = huge();
        let khugepaged = HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(1);
        w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_khugepaged(khugepaged)).unwrap();
        let (other, held) = (pin(w.space, 0), pin(w.space, 1));
        let write = move || {
            // Bytes are no cells of the model: it is here that the other CPU gets on.
            drop(other);
            held.write(0, &[7]);
            drop(held);
        };
        run(vec![Box::new(write), Box::new(move || _ = w.vm.shrink_underused(u64::MAX))]);
        w.check(&[]);
        let mut byte = [0];
        w.space.read(4096, &mut byte).unwrap();
        assert_eq!(byte, [7], "I23: a write through a pin was lost");
    });
}

/// A page that mlock(2) has found present stays present, though memory is short and most of
/// it is zero.
#[test]
fn mlock_against_the_underused_split() {
    explore(3, || {
        let w = huge();
        let khugepaged = HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(1);
        w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_khugepaged(khugepaged)).unwrap();
        run(vec![
            Box::new(move || w.space.mlock(0, HUGE * 4096, MlockFlags::empty()).unwrap()),
            Box::new(move || _ = w.vm.shrink_underused(u64::MAX)),
        ]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon, HUGE, "a locked page has lost its frame");
    });
}

beside_pagers![
    t4_release_against_a_split,
    t4_release_against_the_end_of_the_folio,
    t5_pin_against_a_split,
    pin_against_the_end_of_the_mapping,
    pin_against_fork_of_a_huge_page,
    t8_pin_against_collapse,
    a_write_through_a_pin_against_the_underused_split,
    mlock_against_the_underused_split
];
