//! A part of a folio moves where there are no frames for all of it; long-term pins set folios and parts apart.

use super::*;

/// Pages say what number they have.
fn number(object: &Object<'_>, nr_pages: u64) {
    (0..nr_pages).for_each(|page| object.write(page * PAGE, &(page + 3).to_le_bytes()).unwrap());
}

fn assert_numbered(w: &World<'_>, object: &Object<'_>, nr_pages: u64) {
    check(w.vm, &[w.space]);
    for page in 0..nr_pages {
        assert_eq!(bytes(w.space, AT + page * PAGE), (page + 3).to_le_bytes(), "page {page}");
    }
    assert_eq!(object.nr_resident_pages(), nr_pages);
    check(w.vm, &[w.space]);
}

/// Without frames for all of it the largest part moves for which there are some, and the rest stays
/// where it is, in folios that are as large as may be.
#[test]
fn a_folio_moves_in_part() {
    for order in [1, 4, 8, 9] {
        for (least, page) in [(0, 0), (0, (1 << order) - 1), (0, 1 << (order - 1)), (order.min(3), 1)] {
            in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
                let nr = 1 << order;
                let object = object(w, nr, orders(least, order));
                map(w.space, AT, nr, &object, 0);
                number(&object, nr);
                for size in (least + 1..=order).rev() {
                    let before: Vec<Pfn> = (0..nr).map(|page| frame(w.space, page)).collect();
                    let nr_free = w.vm.vmstat().nr_free_pages;
                    w.vm.fail_runs(Some(Order(size)));
                    let moved = w.vm.migrate_frame(before[page as usize]);
                    w.vm.fail_runs(None);
                    assert_eq!(frame(w.space, page), moved.unwrap());
                    assert!(w.vm.block_class(moved.unwrap().0 / 512) >= Class::Shared);
                    let nr_nodes = u64::from(size == 9);
                    assert_eq!(nr_free - w.vm.vmstat().nr_free_pages, nr_nodes);
                    let nr_moved = (0..nr).filter(|page| frame(w.space, *page) != before[*page as usize]).count();
                    assert_eq!(nr_moved, 1 << (size - 1), "half of the folio");
                }
                assert_numbered(w, &object, nr);
                assert_eq!(w.vm.event(Event::FolioMovedInPart), u64::from(order - least));
                assert!((0..nr).all(|page| object.object_page_state(page).unwrap().dirty));
            });
        }
    }
}

/// Whatever allocation fails, nothing is lost, and no frame kept.
#[test]
fn the_kth_allocation_of_a_move_in_part_fails() {
    let vm = Setup::PLAIN.vm(1, 16 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    {
        let w = &World { vm: &vm, space: &space, cpu: &cpu };
        let object = object(w, 512, orders(0, 9));
        map(w.space, AT, 512, &object, 0);
        number(&object, 512);
        frame(w.space, 300);
        let nr_free = w.vm.vmstat().nr_free_pages;
        // No block is free.
        w.vm.age(32, 7);
        let nr_aged = nr_free - w.vm.vmstat().nr_free_pages;
        let mut nr_moved = 0;
        for k in 0..24 {
            let at = frame(w.space, 300);
            w.vm.fail_allocation(Some(k));
            let moved = w.vm.migrate_frame(at);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            assert_eq!(frame(w.space, 300), *moved.as_ref().unwrap_or(&at));
            nr_moved += u64::from(moved.is_ok());
            let has_node = u64::from(nr_moved > 0);
            assert_eq!(nr_free - nr_aged - w.vm.vmstat().nr_free_pages, has_node, "{k}: {moved:?}");
        }
        assert!((1..24).contains(&nr_moved), "{nr_moved}");
        assert_numbered(w, &object, 512);
    }
}

/// One that a pin holds, or that reaches beyond the end of its object, stays whole.
#[test]
fn what_stays_whole_moves_in_no_part() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for order in [4, 9] {
            let nr = 1 << order;
            let object = object(w, nr, orders(0, order));
            map(w.space, AT, nr, &object, 0);
            number(&object, nr);
            frame(w.space, 3);
            let nr_free = w.vm.vmstat().nr_free_pages;
            let in_part = |page| {
                let at = frame(w.space, page);
                w.vm.fail_runs(Some(Order(order)));
                let moved = w.vm.migrate_frame(at);
                w.vm.fail_runs(None);
                moved
            };
            let pin = w.space.pin_page(AT + 7 * PAGE, Term::Short).unwrap();
            assert_eq!(in_part(3), Err(MigrateRefusal::Pinned));
            object.set_size_bytes(10 * PAGE);
            drop(pin);
            assert_eq!(in_part(3), Err(MigrateRefusal::CannotSplit));
            check(w.vm, &[w.space]);
            assert_eq!((object.nr_resident_pages(), w.vm.vmstat().nr_free_pages), (nr, nr_free));
            object.set_size_bytes(nr * PAGE);
            assert!(in_part(3).is_ok());
            check(w.vm, &[w.space]);
            w.space.munmap(AT, nr * PAGE).unwrap();
        }
    });
}

/// A pin for long takes the whole folio out of its block, or a part if there is no room; the pages
/// beside it in the block do not suffer. A folio that fills a block stays, and is not in the way there.
#[test]
fn a_long_pin_sets_a_folio_apart() {
    for (order, nr_moved) in [(1, 2), (4, 16), (8, 256), (9, 0)] {
        in_each_setup(1, 32 << 20, |w| {
            let nr = 1 << order;
            let object = object(w, 2 * nr, orders(0, order));
            map(w.space, AT, 2 * nr, &object, 0);
            number(&object, 2 * nr);
            let before: Vec<Pfn> = (0..2 * nr).map(|page| frame(w.space, page)).collect();
            let pin = w.space.pin_page_mut(AT + (nr + 1) * PAGE, Term::Long).unwrap();
            let moved: Vec<u64> = (0..2 * nr).filter(|page| frame(w.space, *page) != before[*page as usize]).collect();
            assert_eq!(moved, (nr..nr + nr_moved).collect::<Vec<_>>());
            assert_eq!(w.vm.block_class(pin.pfn().0 / 512), Class::Pinned);
            assert!(w.vm.block_class(before[0].0 / 512) < Class::Pinned);
            let is_apart = u64::from(nr_moved > 0);
            assert_eq!([Event::PinSetApart, Event::PinInPlace].map(|event| w.vm.event(event)), [is_apart, 0]);
            // The next one has no reason to move.
            let again = w.space.pin_page_mut(AT + nr * PAGE, Term::Long).unwrap();
            assert_eq!(w.vm.event(Event::PinSetApart), is_apart);
            drop((pin, again));
            assert_numbered(w, &object, 2 * nr);
            w.space.munmap(AT, 2 * nr * PAGE).unwrap();
        });
    }
}

#[test]
fn a_long_pin_sets_a_part_apart() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = object(w, 256, orders(2, 8));
        map(w.space, AT, 256, &object, 0);
        number(&object, 256);
        let before = frame(w.space, 0);
        w.vm.fail_runs(Some(Order(8)));
        let pin = w.space.pin_page_mut(AT + 77 * PAGE, Term::Long).unwrap();
        w.vm.fail_runs(None);
        assert_eq!(frame(w.space, 128).0, before.0 + 128, "the other half stays");
        assert_eq!(w.vm.block_class(pin.pfn().0 / 512), Class::Pinned);
        assert_eq!([Event::PinSetApart, Event::FolioMovedInPart].map(|event| w.vm.event(event)), [1, 1]);
        drop(pin);
        assert_numbered(w, &object, 256);
    });
}
