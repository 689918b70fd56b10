//! T2, T3, T6, T8: huge mappings are made, split and collapsed while other CPUs use them. In the toy format
//! a huge page is four small ones.

use common::pager;
use common::{Modelled, READ, World, beside_pagers, explore, let_others_run_in_shootdowns_of, run, small_pages_on};
use softfault_modelled::policy::collapse::CollapseRefusal;
use softfault_modelled::{Access, Event, FaultDone, FaultError, Pin, Term};
use softfault_modelled::{Advice, MremapFlags};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// MREMAP_MAYMOVE | MREMAP_FIXED.
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);

fn fault(w: World, page: u64) {
    let active = w.space.activate();
    w.space.handle_fault(page * 4096, Access::Write).unwrap();
    drop(active);
}

/// Nothing is mapped, but the tables that a huge page needs exist.
fn ready() -> World {
    let w = World::huge(0, 4);
    w.touch(0);
    w.space.madvise(0, 4 * 4096, Advice::DontNeed).unwrap();
    w
}

/// T2: one fault needs a huge page, another a small one: the leaf table and the huge mapping compete for
/// one entry.
#[test]
fn t2_huge_install_against_small_install() {
    small_pages_on(2);
    // One preemption: with two it takes minutes.
    explore(1, || {
        let w = ready();
        run(vec![Box::new(move || fault(w, 0)), Box::new(move || fault(w, 1))]);
        w.check(&[]);
        let rss = w.space.rss_pages();
        assert!(matches!((rss.anon, rss.anon_huge), (4, 4) | (1 | 2, 0)), "{rss:?}");
    });
}

/// The edge of a mapping moves into the range of a huge fault: either the fault sees the new tree, or the
/// operation splits the huge mapping.
#[test]
fn huge_install_against_an_edge() {
    explore(2, || {
        let w = ready();
        run(vec![
            Box::new(move || fault(w, 0)),
            // MADV_RANDOM for one page.
            Box::new(move || w.space.madvise(4096, 4096, Advice::Random).unwrap()),
        ]);
        w.check(&[]);
    });
}

#[test]
fn huge_install_against_munmap() {
    // One preemption: a removal waits for sections, which loom takes long over.
    for page in [None, Some(1)] {
        explore(1, move || {
            let w = ready();
            let (at, len) = page.map_or((0, 4 * 4096), |page| (page * 4096, 4096));
            let touch = move || {
                let active = w.space.activate();
                match w.space.handle_fault(0, Access::Write) {
                    Ok(_) | Err(FaultError::NotMapped) => {}
                    Err(other) => panic!("{other}"),
                }
                drop(active);
            };
            run(vec![Box::new(touch), Box::new(move || w.space.munmap(at, len).unwrap())]);
            w.check(&[]);
        });
    }
}

fn with_huge_page() -> World {
    let w = World::huge(0, 4);
    assert_eq!(w.space.handle_fault(0, Access::Write), Ok(FaultDone::Huge));
    (0..4u64).for_each(|page| w.space.write(page * 4096, &[page as u8 + 1]).unwrap());
    w
}

fn byte(w: World, page: u64) -> u8 {
    let mut b = [0];
    w.space.read(page * 4096, &mut b).unwrap();
    b[0]
}

/// T3: readers and writers without a lock find their bytes before, during and after the split.
#[test]
fn t3_split_against_readers_and_writers() {
    explore(2, || {
        let w = with_huge_page();
        let user = move || {
            let active = w.space.activate();
            assert_eq!(byte(w, 3), 4);
            w.space.write(0, &[9]).unwrap();
            assert_eq!(byte(w, 0), 9);
            drop(active);
        };
        run(vec![Box::new(user), Box::new(move || w.space.madvise(4096, 4096, Advice::DontNeed).unwrap())]);
        w.check(&[]);
        assert_eq!(w.vm.event(Event::ThpSplitPmd), 1);
        assert_eq!((byte(w, 0), byte(w, 1), byte(w, 2), byte(w, 3)), (9, 0, 3, 4));
    });
}

/// Two spaces split their mappings of one folio at once: each frame counts both.
#[test]
fn two_spaces_split_at_once() {
    explore(2, || {
        let w = with_huge_page();
        let child = Arc::new(w.space.fork().unwrap());
        let other = Arc::clone(&child);
        run(vec![
            Box::new(move || w.space.munmap(4096, 4096).unwrap()),
            Box::new(move || other.munmap(2 * 4096, 4096).unwrap()),
        ]);
        w.check(&[&child]);
        assert_eq!(w.vm.event(Event::ThpSplitPage), 1, "the second split dissolves the folio");
        drop(child);
        w.check(&[]);
    });
}

/// One splits, the other unmaps all of it.
#[test]
fn split_against_the_other_mappings_end() {
    explore(2, || {
        let w = with_huge_page();
        let child = Arc::new(w.space.fork().unwrap());
        let other = Arc::clone(&child);
        run(vec![
            Box::new(move || w.space.munmap(4096, 4096).unwrap()),
            Box::new(move || other.munmap(0, 4 * 4096).unwrap()),
        ]);
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

/// T6: one space decides to reuse the page while the other one splits it.
#[test]
fn t6_reuse_against_a_split_elsewhere() {
    explore(2, || {
        let w = with_huge_page();
        let child = Arc::new(w.space.fork().unwrap());
        let other = Arc::clone(&child);
        run(vec![
            Box::new(move || fault(w, 0)),
            Box::new(move || {
                other.munmap(4096, 4096).unwrap();
                other.handle_fault(0, Access::Write).unwrap();
            }),
        ]);
        // I13: no frame is writable twice.
        w.check(&[&child]);
        // Nor is one that the other only reads.
        w.space.write(3 * 4096, &[9]).unwrap();
        let mut seen = [0];
        child.read(3 * 4096, &mut seen).unwrap();
        assert_eq!((byte(w, 3), seen), (9, [4]));
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

/// Small pages, two of four; the knobs allow huge ones only now.
fn with_small_pages() -> World {
    let w = World::new(softfault_modelled::FaultLocking::Lockfree, 0, 4);
    w.touch(0);
    w.touch(1);
    w.space.write(0, &[1]).unwrap();
    w.space.write(4096, &[2]).unwrap();
    w
}

/// T8.
#[test]
fn t8_collapse_against_a_fault() {
    explore(2, || {
        let w = with_small_pages();
        let user = move || {
            fault(w, 2);
            assert_eq!(byte(w, 1), 2);
            w.space.write(2 * 4096, &[3]).unwrap();
        };
        run(vec![Box::new(user), Box::new(move || _ = w.space.collapse(0))]);
        w.check(&[]);
        assert_eq!((byte(w, 0), byte(w, 1), byte(w, 2), byte(w, 3)), (1, 2, 3, 0));
    });
}

type Held = Arc<Mutex<Option<Pin<'static, Modelled>>>>;

/// T8: a pin that was given is of the frame that stays, or the collapse gave up.
#[test]
fn t8_collapse_against_a_pin() {
    explore(2, || {
        let w = with_small_pages();
        let held = Held::default();
        let pinned = held.clone();
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(w.space.pin_page_mut(0, Term::Short).unwrap().into())),
            Box::new(move || _ = w.space.collapse(0)),
        ]);
        let held = held.lock().unwrap().take().unwrap();
        let again = w.space.pin_page_mut(0, Term::Short).unwrap();
        assert_eq!(again.pfn(), held.pfn(), "the pinned frame is not the page's any more");
        drop((held, again));
        w.check(&[]);
    });
}

/// I31: the table is detached, no lock is held, and another CPU operates on the
/// mapping. Whatever comes first, the space is whole afterwards. Gives how often the
/// collapse gave way.
fn collapse_against(
    other: impl Fn(World) + Sync + Send + Copy + 'static,
    then: impl Fn(World) + Sync + Send + Copy + 'static,
) -> u64 {
    let nr_changed: &'static AtomicU64 = Box::leak(Box::default());
    for slow in [1, 2] {
        let_others_run_in_shootdowns_of(slow);
        explore(2, move || {
            let w = with_small_pages();
            let collapse = move || {
                let changed = w.space.collapse(0) == Err(CollapseRefusal::Changed);
                nr_changed.fetch_add(u64::from(changed), Ordering::Relaxed);
            };
            run(vec![Box::new(collapse), Box::new(move || other(w))]);
            w.check(&[]);
            then(w);
            w.check(&[]);
            assert_ne!(w.space.collapse(0), Err(CollapseRefusal::Busy), "a table that was not put back");
            w.check(&[]);
        });
    }
    nr_changed.load(Ordering::Relaxed)
}

/// The same of an operation that changes the mapping: the collapse has to give it the
/// table back at least once.
fn collapse_gives_way_to(
    other: impl Fn(World) + Sync + Send + Copy + 'static,
    then: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    let nr_seen = collapse_against(other, then);
    // Beside a pager nobody is preempted.
    assert!(pager::here().is_some() || nr_seen > 0, "the collapse ignores that the mapping is another");
}

#[test]
fn collapse_against_munmap() {
    collapse_gives_way_to(|w| w.space.munmap(0, 4 * 4096).unwrap(), |w| assert_eq!(w.space.rss_pages().anon, 0));
}

#[test]
fn collapse_against_munmap_of_a_part() {
    collapse_gives_way_to(
        |w| w.space.munmap(4096, 4096).unwrap(),
        |w| {
            assert_eq!((byte(w, 0), byte(w, 2), byte(w, 3)), (1, 0, 0));
            assert!(w.space.translate_at_rest(4096).is_none());
        },
    );
}

/// The range moves, to an aligned place and to one in two tables. The collapse gives up because of the
/// mark, or the huge page moves: all pages are at the new place.
#[test]
fn collapse_against_mremap() {
    for to in [8, 11] {
        collapse_gives_way_to(
            move |w| assert_eq!(w.space.mremap(0, 4 * 4096, 4 * 4096, MOVE, to * 4096), Ok(to * 4096)),
            move |w| {
                assert!((0..4u64).all(|page| w.space.translate_at_rest(page * 4096).is_none()));
                assert_eq!([0, 1, 2, 3].map(|page| byte(w, to + page)), [1, 2, 0, 0]);
            },
        );
    }
}

#[test]
fn collapse_against_mremap_of_a_part() {
    collapse_gives_way_to(
        |w| assert_eq!(w.space.mremap(4096, 4096, 4096, MOVE, 9 * 4096), Ok(9 * 4096)),
        |w| {
            assert!(w.space.translate_at_rest(4096).is_none());
            assert_eq!((byte(w, 0), byte(w, 9), byte(w, 2), byte(w, 3)), (1, 2, 0, 0));
        },
    );
}

/// The range of MADV_DONTNEED is zero, whichever table it was in.
#[test]
fn collapse_against_dontneed() {
    collapse_against(
        |w| w.space.madvise(0, 2 * 4096, Advice::DontNeed).unwrap(),
        |w| assert_eq!((byte(w, 0), byte(w, 1), byte(w, 2), byte(w, 3)), (0, 0, 0, 0)),
    );
}

#[test]
fn collapse_against_mprotect() {
    for nr_pages in [1, 4] {
        collapse_gives_way_to(
            move |w| w.space.mprotect(0, nr_pages * 4096, READ).unwrap(),
            move |w| {
                assert!(w.space.handle_fault(0, Access::Write).is_err());
                assert_eq!((byte(w, 0), byte(w, 1)), (1, 2));
            },
        );
    }
}

#[test]
fn collapse_against_fork() {
    let_others_run_in_shootdowns_of(1);
    explore(1, || {
        let w = with_small_pages();
        let child = Arc::new(Mutex::new(None));
        let slot = child.clone();
        run(vec![
            Box::new(move || _ = w.space.collapse(0)),
            Box::new(move || *slot.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        w.space.write(0, &[7]).unwrap();
        let mut seen = [0];
        for (page, value) in [(0, 1), (1, 2), (2, 0), (3, 0)] {
            child.read(page * 4096, &mut seen).unwrap();
            assert_eq!(seen, [value], "page {page} of the child");
        }
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

/// Two collapses of the same range: the second one finds the table detached, or the huge page.
#[test]
fn collapse_against_collapse() {
    let _ = collapse_against(|w| _ = w.space.collapse(0), |w| assert_eq!((byte(w, 0), byte(w, 1)), (1, 2)));
}

beside_pagers![
    t2_huge_install_against_small_install,
    huge_install_against_an_edge,
    huge_install_against_munmap,
    t3_split_against_readers_and_writers,
    two_spaces_split_at_once,
    split_against_the_other_mappings_end,
    t6_reuse_against_a_split_elsewhere,
    t8_collapse_against_a_fault,
    t8_collapse_against_a_pin,
    collapse_against_munmap,
    collapse_against_munmap_of_a_part,
    collapse_against_mremap,
    collapse_against_mremap_of_a_part,
    collapse_against_dontneed,
    collapse_against_mprotect,
    collapse_against_fork,
    collapse_against_collapse
];
