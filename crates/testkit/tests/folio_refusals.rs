//! Requests to folios and to memory that cannot be met: each is refused by name, and nothing has changed.
//! Other refusals stand beside what they refuse: sizes in `policy/folio.rs`, sections in `frame/resize/tests.rs`,
//! installs in `explicit`, counts of private pages in `map_counts`.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, bytes, content, faulted_frame, map, object, orders};
use common::*;
use softfault::hooks::Holds;
use softfault::{
    Access, CpuId, Event, FrameRange, MigrateRefusal, Pfn, PinError, PoisonRefusal, RemoveMemoryRefusal, Term,
    Tunables, Vm,
};
use softfault_testkit::formats::Tested;

const AT: u64 = 0x20_0000_0000;
const BLOCK: u64 = 512;
/// Pages of 1 GiB.
const GIB: u64 = 1 << 18;

/// In a machine of that size, and as much more that can be added. Afterwards everything has to be back.
fn in_machine(arena_bytes: u64, spare_bytes: u64, test: impl Fn(&World<'_>)) {
    let config = Format::config().with_nr_cpus(1).with_arena_bytes(arena_bytes).with_spare_bytes(spare_bytes);
    let vm = &Vm::new(Hosted::with_format(config).unwrap(), Tunables::default()).unwrap();
    let cpu = &vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    test(&World { vm, cpu, space });
    check(vm, &[space]);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(vm), Ok(()));
}

/// Asks for memory that is in use, which stays as it was.
fn assert_stays(w: &World<'_>, range: FrameRange, what: &str) {
    let state = || (w.vm.vmstat().nr_free_pages, w.space.rss_pages(), w.vm.nr_frames());
    let (before, nr) = (state(), w.vm.event(Event::RemoveMemoryInUse));
    assert_eq!(w.vm.remove_memory(range), Err(RemoveMemoryRefusal::InUse), "{what}");
    assert_eq!((state(), w.vm.event(Event::RemoveMemoryInUse)), (before, nr + 1), "{what}");
    check(w.vm, &[w.space]);
}

/// One frame of a section, or one folio, is somebody's: the section stays until it is nobody's.
#[test]
fn memory_in_use_stays() {
    in_machine(24 << 20, (384 - 24) << 20, |w| {
        let whole = section(1);
        w.space.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        let far = BASE + (1 << 30);
        w.space.mmap(far, PAGE, RW, PRIVATE | FIXED).unwrap();
        let objects = [0, 4, 9].map(|order| object(w, 3 * BLOCK, orders(0, order)));
        let paged = &objects[0];
        map(w.space, AT, 4, paged, 0);
        // Tables and nodes are there before the section is.
        w.space.write(BASE, &[1]).unwrap();
        bytes::<1>(w.space, AT);
        objects.iter().for_each(|object| object.write(2 * BLOCK * PAGE, &[1]).unwrap());
        objects[..2].iter().for_each(|object| object.write(300 * PAGE, &[1]).unwrap());
        for used in ["a private page", "a page of an object", "16 pages", "512 pages", "an orphan", "a table"] {
            w.vm.add_memory(whole).unwrap();
            w.vm.give_bits(0, &[0; 8], Holds::Anything);
            let below: Vec<_> = (0..12).map(|b| (b, w.vm.free_bits(b))).collect();
            below.iter().for_each(|(b, free)| w.vm.take_bits(*b, free));
            let nr_free = w.vm.vmstat().nr_free_pages;
            let by_handle = |object: &Object<'_>| object.write(PAGE, &[7]).unwrap();
            match used {
                "a private page" => w.space.write(BASE + PAGE, &[7]).unwrap(),
                "a page of an object" => by_handle(paged),
                "16 pages" => by_handle(&objects[1]),
                "512 pages" => by_handle(&objects[2]),
                "an orphan" => w.space.write(AT + PAGE, &[7]).unwrap(),
                _ => assert_eq!(bytes::<1>(w.space, far), [0]),
            }
            assert!(w.vm.vmstat().nr_free_pages < nr_free, "{used} is in the section");
            let pin = (used == "an orphan").then(|| w.space.pin_page_mut(AT + PAGE, Term::Short).unwrap());
            if pin.is_some() {
                paged.discard(1..2);
            }
            below.iter().for_each(|(b, free)| w.vm.give_bits(*b, free, Holds::Anything));
            assert_stays(w, whole, used);
            match used {
                "a private page" => {
                    assert_eq!(bytes(w.space, BASE + PAGE), [7]);
                    w.space.madvise(BASE + PAGE, PAGE, DONTNEED).unwrap();
                }
                "a table" => w.space.munmap(far, PAGE).unwrap(),
                "an orphan" => drop(pin),
                _ => objects.iter().for_each(|object| {
                    let mut there = [0];
                    assert!(object.read(PAGE, &mut there) == 1 && [0, 7].contains(&there[0]));
                    object.discard(0..BLOCK);
                }),
            }
            assert_eq!(w.vm.remove_memory(whole), Ok(()), "{used} has gone");
            check(w.vm, &[w.space]);
        }
    });
}

/// Each page says what number it has; one folio of that order, mapped.
fn numbered<'vm>(w: &World<'vm>, order: u8, pages: &[u64]) -> Object<'vm> {
    let nr = 1 << order;
    let object = object(w, nr, orders(0, order));
    map(w.space, AT, nr, &object, 0);
    pages.iter().for_each(|page| w.space.write(AT + page * PAGE, &(page + 3).to_le_bytes()).unwrap());
    object
}

fn some(order: u8) -> Vec<u64> {
    let nr = 1 << order;
    let mut pages: Vec<u64> = [0, 1, 2, 5, nr / 2, nr - 1].into_iter().filter(|page| *page < nr).collect();
    pages.dedup();
    pages
}

/// Returns the pages of the object: orders, frames, and bytes.
fn state(w: &World<'_>, object: &Object<'_>, pages: &[u64]) -> Vec<(u8, u64, Pfn, [u8; 8])> {
    let of_page = |page: &u64| {
        let (order, pfn) = (object.object_page_state(*page).unwrap().order.0, faulted_frame(w.space, AT + page * PAGE));
        (order, object.nr_resident_pages(), pfn, content(object, page * PAGE))
    };
    pages.iter().map(of_page).collect()
}

const SIZES: [(u8, u64); 4] = [(0, 16 << 20), (4, 16 << 20), (9, 16 << 20), (18, 2 << 30)];

/// Empty, inverted, beyond the end, at the end of all numbers: nothing goes. One odd page: it alone, where the folio
/// may be cut.
#[test]
fn a_hole_takes_what_is_in_it() {
    for (order, arena_bytes) in SIZES {
        in_machine(arena_bytes, 0, |w| {
            let pages = some(order);
            let object = numbered(w, order, &pages);
            let nr = 1 << order;
            let before = state(w, &object, &pages);
            let (start, max) = (nr / 2, u64::MAX);
            for hole in [
                0..0,
                start..start,
                start + 2..start,
                nr..start,
                nr..nr + 9,
                nr + 7..max,
                max - 1..max,
                max..max,
                max..0,
            ] {
                object.discard(hole.clone());
                assert_eq!(state(w, &object, &pages), before, "{hole:?}");
            }
            for bytes in [3..3, start * PAGE + 9..start * PAGE + 2, nr * PAGE..max, max..max] {
                object.zero(bytes.clone()).unwrap();
                assert_eq!(state(w, &object, &pages), before, "{bytes:?}");
            }
            check(w.vm, &[w.space]);
            let gone = *pages.last().unwrap();
            object.discard(gone..max);
            assert_eq!(object.nr_resident_pages(), nr - 1);
            assert_eq!(content(&object, gone * PAGE), [0; 8]);
            for (page, (_, _, pfn, word)) in pages.iter().zip(before).filter(|(page, _)| **page != gone) {
                assert_eq!((faulted_frame(w.space, AT + page * PAGE), content(&object, page * PAGE)), (pfn, word));
            }
            w.space.munmap(AT, nr * PAGE).unwrap();
        });
    }
}

/// All pins of its pages are counted in one place. With as many as can be counted the next one of any page is refused,
/// also one for long; the folio stays where it is, and whole. Then one for long moves it, unless it fills its blocks.
#[test]
fn pins_of_a_folio_are_counted_up_to_a_limit() {
    for (order, arena_bytes) in SIZES {
        in_machine(arena_bytes, 0, |w| {
            let pages = some(order);
            let object = numbered(w, order, &pages);
            let before = state(w, &object, &pages);
            let mut held = Vec::new();
            let refused = loop {
                match w.space.pin_page(AT + pages[held.len() % pages.len()] * PAGE, Term::Short) {
                    Ok(pin) => held.push(pin),
                    Err(error) => break error,
                }
            };
            assert!(refused == PinError::PinsFull && held.len() > 200_000, "{refused} after {}", held.len());
            for page in &pages {
                let at = AT + page * PAGE;
                assert_eq!(w.space.pin_page_mut(at, Term::Short).map(drop), Err(PinError::PinsFull));
                assert_eq!(w.space.pin_page(at, Term::Long).map(drop), Err(PinError::PinsFull));
                assert!(w.space.handle_fault(at, Access::Read).is_ok(), "a fault counts nothing");
            }
            let pfn = Pfn(before[0].2.0 + (1 << order) - 1);
            assert_eq!(w.vm.migrate_frame(pfn), Err(MigrateRefusal::Pinned));
            assert_eq!(w.vm.poison_frame(pfn), Err(PoisonRefusal::Stays(MigrateRefusal::Pinned)));
            check(w.vm, &[w.space]);
            assert_eq!(state(w, &object, &pages), before);
            held.pop();
            held.push(w.space.pin_page(AT, Term::Short).unwrap());
            drop(held);
            let [nr_moved, nr_in_place] = [Event::PinSetApart, Event::PinInPlace].map(|event| w.vm.event(event));
            let long = w.space.pin_page(AT, Term::Long).unwrap();
            let moves = order < 9;
            assert_eq!(w.vm.event(Event::PinSetApart) - nr_moved, u64::from(moves), "what fills its blocks stays");
            assert_eq!(w.vm.event(Event::PinInPlace), nr_in_place);
            drop(long);
            if !moves {
                assert_eq!(state(w, &object, &pages), before);
            }
            w.space.munmap(AT, PAGE << order).unwrap();
        });
    }
}

/// Each section of a folio of 1 GiB stays, and so does the folio.
#[test]
fn memory_of_a_large_folio_stays() {
    in_machine(2 << 30, 0, |w| {
        let pages = some(18);
        let object = numbered(w, 18, &pages);
        let before = state(w, &object, &pages);
        let first = u64::from(before[0].2.0);
        assert_eq!((before[0].0, first % GIB), (18, 0));
        for nr in first / SECTION..(first + GIB) / SECTION {
            assert_stays(w, section(nr), "an eighth of the folio");
        }
        assert_eq!(state(w, &object, &pages), before);
        w.space.munmap(AT, GIB * PAGE).unwrap();
        drop(object);
        assert_eq!(w.vm.remove_memory(section(first / SECTION + 3)), Ok(()));
    });
}
