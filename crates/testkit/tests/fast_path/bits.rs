//! F11: accessed and dirty bits survive changes of their entries.

use super::*;

/// Pages are made clean, then stored to while their entries get other rights. Every
/// store has to be found dirty, every load accessed.
#[test]
fn f11_accessed_and_dirty_survive_a_change_of_rights() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        let (round, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            let mut last = 0;
            while !stop.load(SeqCst) {
                let now = round.load(SeqCst);
                if now == last {
                    yield_now();
                    continue;
                }
                for page in 0..PAGES {
                    let at = BASE + page * PAGE;
                    // Odd pages are only loaded. Refused while it is read-only.
                    let access =
                        || if page % 2 == 0 { running.write_u64(at, 1) } else { running.read_u64(at).map(drop) };
                    while access().is_err() {}
                }
                last = now;
                done.store(now, SeqCst);
            }
        };
        w.race(&[&store], |running| {
            (0..PAGES).for_each(|page| running.write_u64(BASE + page * PAGE, 1).unwrap());
            for now in 1..=24 {
                w.space.madvise(BASE, PAGES * PAGE, FREE).unwrap();
                let mut smaps = Vec::new();
                w.space.smaps(&mut |entry| smaps.push(*entry));
                assert_eq!((smaps[0].dirty_pages, smaps[0].referenced_pages), (0, 0), "all were made clean");
                round.store(now, SeqCst);
                while done.load(SeqCst) != now {
                    w.space.mprotect(BASE, PAGES * PAGE, RWX).unwrap();
                    w.space.mprotect(BASE, PAGES * PAGE, if now % 4 == 0 { READ } else { RW }).unwrap();
                    w.space.mprotect(BASE, PAGES * PAGE, RW).unwrap();
                }
                smaps.clear();
                w.space.smaps(&mut |entry| smaps.push(*entry));
                assert_eq!(smaps.iter().map(|s| s.dirty_pages).sum::<u64>(), PAGES / 2, "a dirty bit is lost");
                assert_eq!(smaps.iter().map(|s| s.referenced_pages).sum::<u64>(), PAGES, "an accessed bit is lost");
            }
        });
    });
}

/// The same against a move, which takes each entry away and sets it down elsewhere.
#[test]
fn f11_dirty_survives_a_move() {
    in_each_setup(2, ARENA, |w| {
        const AWAY: u64 = BASE + (64 << 20);
        // Values stored before the pages were made clean may lie on clean ones: the
        // round is stored, which begins when they are.
        let round = AtomicU64::new(0);
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                for page in 0..PAGES {
                    let _ = running.write_u64(BASE + page * PAGE, mark(page, round.load(SeqCst)));
                }
            }
        };
        w.map(BASE, PAGES, RW);
        w.race(&[&store], |running| {
            for now in 1..=25 {
                (0..PAGES).for_each(|page| running.write_u64(BASE + page * PAGE, mark(page, 0)).unwrap());
                w.space.madvise(BASE, PAGES * PAGE, FREE).unwrap();
                round.store(now, SeqCst);
                yield_now();
                w.space.mremap(BASE, PAGES * PAGE, PAGES * PAGE, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
                let mut dirty = 0;
                w.space.smaps(&mut |entry| dirty += entry.dirty_pages);
                let stored = (0..PAGES).filter(|page| running.read_u64(AWAY + page * PAGE) == Ok(mark(*page, now)));
                assert!(stored.count() as u64 <= dirty, "a page was stored to and is clean");
                w.space.mremap(AWAY, PAGES * PAGE, PAGES * PAGE, MAYMOVE | MREMAP_FIXED, BASE).unwrap();
            }
        });
    });
}
