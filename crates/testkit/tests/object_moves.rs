//! Pages of shared objects move to other frames, and programs notice nothing.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::moving::{counts_up, moves_all};
use common::objects::{EXTRA, Object, bytes, faulted_frame, map};
use common::*;
use softfault::hooks::Class;
use softfault::policy::around::FaultAround;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::{Defrag, Enabled};
use softfault::{Access, CompactRefusal, Event, FaultDone, MigrateRefusal, MlockFlags, Order, Pfn, Term};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn byte(space: &Space<'_>, at: u64) -> u8 {
    bytes::<1>(space, at)[0]
}

/// Several spaces, several places, pages that were and were not mapped.
#[test]
fn all_mappings_see_the_page_in_its_new_frame() {
    in_each_setup(1, 16 << 20, |w| {
        // Entries are counted page by page.
        w.vm.set_fault_around(FaultAround::OFF);
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        map(w.space, BASE, 8, &object, 0);
        (0..8).for_each(|page| w.space.write(BASE + page * PAGE, &[page as u8 + 1]).unwrap());
        let child = w.space.fork().unwrap();
        map(&child, EXTRA, 4, &object, 4);
        (0..4).for_each(|page| assert_eq!(byte(&child, EXTRA + page * PAGE), page as u8 + 5));
        assert_eq!(byte(&child, BASE), 1);
        assert_eq!(w.space.mlock(BASE, 2 * PAGE, MlockFlags::empty()), Ok(()));
        let counts = (object.nr_mapped_pages(), object.nr_writable_pages(), object.nr_resident_pages());
        let nr_free = w.vm.vmstat().nr_free_pages;
        for page in 0..8 {
            let old = faulted_frame(w.space, BASE + page * PAGE);
            let before = (w.space.rss_pages().shmem, child.rss_pages().shmem);
            let new = w.vm.migrate_frame(old).unwrap();
            assert_ne!(old, new);
            check(w.vm, &[w.space, &child]);
            assert_eq!(w.space.rss_pages().shmem, before.0 - 1, "programs fault again");
            assert_eq!(child.rss_pages().shmem, before.1 - u64::from(page == 0 || page >= 4));
            assert_eq!(w.vm.migrate_frame(old), Err(MigrateRefusal::NotInUse));
            assert_eq!(byte(w.space, BASE + page * PAGE), page as u8 + 1);
            assert_eq!(byte(&child, BASE + page * PAGE), page as u8 + 1);
            assert_eq!(
                (faulted_frame(w.space, BASE + page * PAGE), faulted_frame(&child, BASE + page * PAGE)),
                (new, new)
            );
            // Without another mapping it has been only in the object since.
            assert_eq!(w.vm.migrate_frame(new).map(|next| next != new), Ok(true));
        }
        assert_eq!((object.nr_mapped_pages(), object.nr_writable_pages(), object.nr_resident_pages()), counts);
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free);
        child.write(EXTRA, &[9]).unwrap();
        assert_eq!(byte(w.space, BASE + 4 * PAGE), 9);
        assert_eq!(w.vm.event(Event::PgmigrateFail), 0);
        check(w.vm, &[w.space, &child]);
    });
}

/// The new frame has the state of the entries and of the old frame.
#[test]
fn a_moved_page_is_as_dirty_as_it_was() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(4 * PAGE).unwrap();
        let filler = w.vm.new_space().unwrap();
        map(&filler, BASE, 4, &object, 0);
        (0..4).for_each(|page| filler.read(BASE + page * PAGE, &mut [0]).unwrap());
        map(w.space, BASE, 4, &object, 0);
        // 1: only the entry says so. 2: only the frame does.
        (0..4).for_each(|page| _ = byte(w.space, BASE + page * PAGE));
        let active = w.space.activate();
        w.space.write(BASE + PAGE, b"x").unwrap();
        drop(active);
        object.write(2 * PAGE, b"y").unwrap();
        let state = |page| object.object_page_state(page).unwrap();
        assert_eq!([0, 1, 2, 3].map(|page| state(page).dirty), [false, false, true, false]);
        let frames = [0, 1, 2, 3].map(|page| faulted_frame(w.space, BASE + page * PAGE));
        for old in frames {
            w.vm.migrate_frame(old).unwrap();
        }
        assert_eq!([0, 1, 2, 3].map(|page| state(page).dirty), [false, true, true, false]);
        assert_eq!([0, 1, 2, 3].map(|page| state(page).referenced), [true; 4]);
        assert_eq!([0, 1, 2, 3].map(|page| state(page).mapped), [false; 4], "of the new frame no entry was made yet");
        assert_eq!((byte(&filler, BASE + PAGE), byte(&filler, BASE + 2 * PAGE)), (b'x', b'y'));
        assert!(state(1).mapped);
        check(w.vm, &[w.space, &filler]);
    });
}

#[test]
fn a_pinned_page_stays() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(2 * PAGE).unwrap();
        map(w.space, BASE, 2, &object, 0);
        let pin = w.space.pin_page_mut(BASE, Term::Long).unwrap();
        pin.write(0, b"a");
        let at = pin.pfn();
        assert_eq!(w.vm.migrate_frame(at), Err(MigrateRefusal::Pinned));
        assert_eq!((byte(w.space, BASE), faulted_frame(w.space, BASE)), (b'a', at));
        // An orphan has no object any more.
        object.discard(0..1);
        assert_eq!(w.vm.migrate_frame(at), Err(MigrateRefusal::Pinned));
        assert_eq!(byte(w.space, BASE), 0);
        drop(pin);
        assert_eq!(w.vm.migrate_frame(at), Err(MigrateRefusal::NotInUse));
        assert_eq!(w.vm.event(Event::MigrateRefusedPinned), 2);
        check(w.vm, &[w.space]);
    });
}

/// A node of the object, and its header, belong to the subsystem.
#[test]
fn headers_and_nodes_of_objects_do_not_move() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(PAGE).unwrap();
        assert_eq!(w.vm.migrate_frame(Pfn(object.id().0 as u32)), Err(MigrateRefusal::Meta));
        object.write(0, b"n").unwrap();
        let nr_meta = (1..w.vm.nr_frames() as u32)
            .filter(|pfn| w.vm.migrate_frame(Pfn(*pfn)) == Err(MigrateRefusal::Meta))
            .count();
        assert!(nr_meta >= 3, "the space, the header, the node: {nr_meta}");
        assert_eq!(object.read(0, &mut [0]), 1);
    });
}

/// Pages of an object fill memory; all but two of 32 leave again, the first of which was written
/// by the handle alone, and the second is mapped. Gives the numbers of those.
fn fragment<'vm>(w: &World<'vm>, object: &Object<'vm>) -> impl Iterator<Item = u64> + Clone + use<> {
    let nr_pages = w.vm.vmstat().nr_free_pages / 100 * 92;
    for page in 0..nr_pages {
        let (at, word) = (page * PAGE, page.to_le_bytes());
        if page % 32 == 0 { object.write(at, &word).unwrap() } else { w.space.write(BASE + at, &word).unwrap() }
    }
    let pairs = (0..nr_pages / 32).map(|i| i * 32);
    pairs.clone().for_each(|page| object.discard(page + 2..page + 32));
    object.discard(nr_pages / 32 * 32..nr_pages);
    pairs.flat_map(|page| [page, page + 1])
}

/// A block with pages of objects can be emptied, unless they are pinned, or have more
/// mappings than the caller wants to go through. A fault goes through none.
#[test]
fn blocks_with_pages_of_objects_are_emptied() {
    in_setup(Setup::PLAIN, 1, 48 << 20, |w| {
        let object = w.vm.new_shared_object(1 << 30).unwrap();
        map(w.space, BASE, 1 << 14, &object, 0);
        let kept = fragment(w, &object);
        let content = |page: u64| {
            let mut word = [0; 8];
            object.read(page * PAGE, &mut word);
            u64::from_le_bytes(word)
        };
        assert!(w.vm.fragmentation(Order::PMD).unusable_permille() > 850);
        // Blocks that were free from the beginning do not count.
        let nr_huge = 20;
        w.space.mmap(EXTRA, nr_huge * HUGE, RW, PRIVATE | FIXED).unwrap();
        let write = |i: &u64| w.space.handle_fault(EXTRA + i * HUGE, Access::Write) == Ok(FaultDone::Huge);
        let knobs = w.vm.huge_knobs().with_enabled(Enabled::Always);
        w.vm.set_huge_knobs(&knobs.with_defrag(Defrag::Never)).unwrap();
        let nr_before = (0..nr_huge).take_while(write).count() as u64;
        let step = |nr_mappings| w.vm.compact_step(&CompactBudget::BACKGROUND.with_nr_mappings(nr_mappings));
        assert_eq!(step(0), Err(CompactRefusal::NoBlock));
        map(w.space, EXTRA - PAGE, 1, &object, 0);
        assert_eq!(step(1), Err(CompactRefusal::InTheWay(MigrateRefusal::TooManyMaps)));
        w.space.munmap(EXTRA - PAGE, PAGE).unwrap();
        check(w.vm, &[w.space]);
        w.vm.set_huge_knobs(&knobs.with_defrag(Defrag::Always)).unwrap();
        let rest = nr_before + 1..nr_huge;
        assert!(!rest.clone().any(|i| write(&i)), "a fault moved pages of an object");
        w.space.munmap(EXTRA + rest.start * HUGE, (nr_huge - rest.start) * HUGE).unwrap();
        w.space.mmap(EXTRA + rest.start * HUGE, (nr_huge - rest.start) * HUGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!(w.vm.event(Event::PgmigrateSuccess), 0);
        let made: Vec<u64> =
            rest.filter(|i| w.vm.compact_step(&CompactBudget::BACKGROUND).is_ok() && write(i)).collect();
        check(w.vm, &[w.space]);
        assert!(made.len() >= 10, "{nr_before} huge pages, and {}", made.len());
        // The blocks are the huge pages' from now on.
        for i in made {
            let first = w.space.translate_at_rest(EXTRA + i * HUGE).unwrap().pfn.0;
            assert_eq!(w.vm.block_class(first / 512), Class::Movable);
        }
        assert!(w.vm.event(Event::PgmigrateSuccess) >= 200 && w.vm.event(Event::CompactSuccess) > 0);
        assert_eq!(w.vm.event(Event::PgmigrateFail), w.vm.event(Event::MigrateRefusedTooManyMaps));
        kept.clone().for_each(|page| assert_eq!(content(page), page));
        assert_eq!(object.nr_resident_pages(), kept.count() as u64);
    });
}

/// Two programs and the embedder add to words of pages that move, and leave objects. Nobody
/// loses a store, and nobody sees another frame.
#[test]
fn moves_under_use() {
    const NR: u64 = 8;
    for setup in Setup::all() {
        in_setup(setup, 4, 8 << 20, |w| {
            let object = w.vm.new_shared_object(2 * NR * PAGE).unwrap();
            map(w.space, BASE, 2 * NR, &object, 0);
            let nr_moved = AtomicU64::new(0);
            let rounds = AtomicU64::new(0);
            let program = |offset| counts_up(BASE + offset, NR, &rounds);
            w.race(&[&program(0), &program(8), &moves_all(w.space, BASE, 2 * NR, &nr_moved)], |_| {
                let mut round: u64 = 0;
                while nr_moved.load(SeqCst) < 200 || rounds.load(SeqCst) < 30 {
                    for page in 0..NR {
                        let mut word = [0; 8];
                        object.read(page * PAGE + 16, &mut word);
                        assert_eq!(u64::from_le_bytes(word), round);
                        object.write(page * PAGE + 16, &(round + 1).to_le_bytes()).unwrap();
                        let page = NR + page;
                        object.read(page * PAGE, &mut word);
                        assert!([0, page - NR + 1].contains(&u64::from_le_bytes(word)));
                    }
                    round += 1;
                    object.discard(NR + round % NR..2 * NR);
                    let mut word = [0; 8];
                    // Objects end while their pages move.
                    let short = w.vm.new_shared_object(4 * PAGE).unwrap();
                    map(w.space, EXTRA, 4, &short, 0);
                    short.write(0, &[0xff; 4 * PAGE as usize]).unwrap();
                    _ = byte(w.space, EXTRA);
                    let held = w.space.pin_page(BASE, Term::Short).unwrap();
                    held.read(16, &mut word);
                    assert_eq!(u64::from_le_bytes(word), round, "moved away under a pin");
                    drop(held);
                    drop(short);
                    w.space.munmap(EXTRA, 4 * PAGE).unwrap();
                }
            });
        });
    }
}

/// Frames of objects that end, and of those that come after them, are moved at random.
#[test]
fn moves_against_the_ends_of_objects() {
    in_setup(Setup::PLAIN, 3, 4 << 20, |w| {
        let nr_moved = AtomicU64::new(0);
        w.race(
            &[
                &|_, stop| {
                    while !stop.load(SeqCst) {
                        for pfn in 1..w.vm.nr_frames() as u32 {
                            nr_moved.fetch_add(u64::from(w.vm.migrate_frame(Pfn(pfn)).is_ok()), SeqCst);
                        }
                    }
                },
                &|_, stop| {
                    while !stop.load(SeqCst) {
                        // Whatever frames were an object's.
                        drop(w.vm.new_space().unwrap());
                        let scratch = w.vm.new_shared_object(PAGE).unwrap();
                        scratch.write(0, &[0xff; PAGE as usize]).unwrap();
                    }
                },
            ],
            |_| {
                let mut round = 0;
                while nr_moved.load(SeqCst) < 200 || round < 300 {
                    round += 1;
                    let object = w.vm.new_shared_object(4 * PAGE).unwrap();
                    object.write(0, &[round as u8; 4 * PAGE as usize]).unwrap();
                    map(w.space, BASE, 4, &object, 0);
                    assert_eq!(byte(w.space, BASE + 3 * PAGE), round as u8);
                    if round % 2 == 0 {
                        drop(object);
                        assert_eq!(byte(w.space, BASE + PAGE), round as u8);
                        w.space.munmap(BASE, 4 * PAGE).unwrap();
                    } else {
                        w.space.munmap(BASE, 4 * PAGE).unwrap();
                        assert_eq!(object.nr_mapped_pages(), 0);
                    }
                }
            },
        );
    });
}

/// A long-term pin moves a page that a few map, and leaves one that many do where it is.
#[test]
fn a_page_that_many_map_is_pinned_where_it_is() {
    for (nr_mappings, event) in [(16, Event::PinSetApart), (17, Event::PinInPlace)] {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let object = w.vm.new_shared_object(PAGE).unwrap();
            // Every other page, so that each mapping has a place of its own.
            (0..nr_mappings).for_each(|i| map(w.space, BASE + 2 * i * PAGE, 1, &object, 0));
            (0..nr_mappings).for_each(|i| w.space.write(BASE + 2 * i * PAGE, b"m").unwrap());
            let pin = w.space.pin_page_mut(BASE, Term::Long).unwrap();
            let events = [Event::PinSetApart, Event::PinInPlace];
            assert_eq!(events.map(|event| w.vm.event(event)), events.map(|one| u64::from(one == event)));
            drop(pin);
            check(w.vm, &[w.space]);
        });
    }
}
