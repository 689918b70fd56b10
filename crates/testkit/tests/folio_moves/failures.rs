//! A page of a folio fails, and its neighbours stay.

use super::*;

fn poisoned(object: &Object<'_>, nr_pages: u64) -> Vec<u64> {
    (0..nr_pages).filter(|page| object.next_poisoned(*page..page + 1).is_some()).collect()
}

/// A page of a folio fails: its neighbours stay where they are, and are folios of their own.
#[test]
fn a_folio_loses_the_page_that_failed() {
    for setup in Setup::all() {
        for (least, bad) in [(0, 5), (0, 0), (0, 15), (2, 6), (4, 9)] {
            let vm = setup.vm(1, 16 << 20);
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            let nr_free = vm.vmstat().nr_free_pages;
            {
                let space = vm.new_space().unwrap();
                lose_a_page(&vm, &space, least, bad);
                check(&vm, &[&space]);
            }
            check(&vm, &[]);
            assert_eq!(vm.vmstat().nr_free_pages, nr_free - 1, "the frame is out of use");
        }
    }
}

fn lose_a_page<'vm>(vm: &'vm Vm<Hosted>, space: &Space<'vm>, least: u8, bad: u64) {
    let object = vm.new_shared_object_of(16 * PAGE, orders(least, 4)).unwrap();
    map(space, AT, 16, &object, 0);
    (0..16).for_each(|page| space.write(AT + page * PAGE, &[page as u8 + 1; 8]).unwrap());
    let frames: Vec<Pfn> = (0..16).map(|page| frame(space, page)).collect();
    assert_eq!(vm.poison_frame(frames[bad as usize]), Ok(0));
    check(vm, &[space]);
    let nr_lost = 1 << least;
    let lost = bad / nr_lost * nr_lost..(bad / nr_lost + 1) * nr_lost;
    assert_eq!((poisoned(&object, 16), object.nr_resident_pages()), (lost.clone().collect(), 16 - nr_lost));
    for page in 0..16 {
        let at = AT + page * PAGE;
        if lost.contains(&page) {
            assert_eq!(space.handle_fault(at, Access::Read), Err(FaultError::Poisoned));
        } else {
            assert_eq!((bytes(space, at), frame(space, page)), ([page as u8 + 1; 8], frames[page as usize]));
            assert!(object.object_page_state(page).unwrap().dirty);
        }
    }
    // A part of what failed together stays.
    if least > 0 {
        object.discard(lost.start + 1..16);
        assert_eq!(poisoned(&object, 16), lost.clone().collect::<Vec<_>>());
    }
    object.discard(0..lost.end);
    check(vm, &[space]);
    space.write(AT + bad * PAGE, b"n").unwrap();
    assert_eq!((poisoned(&object, 16), content(&object, bad * PAGE)), (vec![], *b"n\0"));
}

/// Those that failed together go with the pages of the object that there are.
#[test]
fn what_failed_at_the_end_of_an_object_is_healed() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    let object = vm.new_shared_object_of(6 * PAGE, orders(2, 2)).unwrap();
    map(space, AT, 6, &object, 0);
    object.write(5 * PAGE, b"x").unwrap();
    vm.poison_frame(frame(space, 5)).unwrap();
    assert_eq!(poisoned(&object, 8), [4, 5, 6, 7]);
    object.discard(4..6);
    assert_eq!((poisoned(&object, 8), content(&object, 5 * PAGE)), (vec![], [0]));
    object.write(5 * PAGE, b"x").unwrap();
    // A pinned folio does not lose a page, nor does one that reaches beyond the end.
    let large = vm.new_shared_object_of(16 * PAGE, orders(0, 4)).unwrap();
    map(space, AT + 16 * PAGE, 16, &large, 0);
    let pin = space.pin_page(AT + 16 * PAGE, Term::Short).unwrap();
    let refused = |why| Err(PoisonRefusal::Stays(why));
    assert_eq!(vm.poison_frame(Pfn(pin.pfn().0 + 3)), refused(MigrateRefusal::Pinned));
    large.set_size_bytes(4 * PAGE);
    let bad = Pfn(pin.pfn().0 + 1);
    drop(pin);
    assert_eq!(vm.poison_frame(bad), refused(MigrateRefusal::CannotSplit));
    large.set_size_bytes(3 * PAGE);
    vm.poison_frame(bad).unwrap();
    assert_eq!((poisoned(&large, 16), large.nr_resident_pages()), (vec![1], 2));
    check(&vm, &[space]);
}
