//! T3: splits while others store, load and walk.

use super::*;

/// One CPU splits and joins again; the others store, load, and walk without locks.
#[test]
fn t3_split_while_others_read_write_and_walk() {
    in_each(4, 64 << 20, |w| {
        w.map(AT, NR_PAGES, RW);
        (0..NR_PAGES).for_each(|i| w.space.write(AT + i * PAGE, &(i << 32).to_ne_bytes()).unwrap());
        let (nr_stores, nr_walks) = (AtomicU64::new(0), AtomicU64::new(0));
        let writer = |running: &Running<'_>, stop: &AtomicBool| {
            let mut round = 0;
            while !stop.load(SeqCst) {
                let page = round * 37 % NR_PAGES;
                let addr = AT + page * PAGE;
                let before = get(running, addr);
                assert_eq!(before >> 32, page, "page {page} shows {before:#x}");
                put(running, addr, before + 1);
                assert_eq!(get(running, addr), before + 1, "a store to page {page} was lost");
                round += 1;
                nr_stores.fetch_add(1, SeqCst);
            }
        };
        let reader = |running: &Running<'_>, stop: &AtomicBool| {
            let mut page = 0;
            while !stop.load(SeqCst) {
                let seen = get(running, AT + page * PAGE);
                assert_eq!(seen >> 32, page, "page {page} shows {seen:#x}");
                page = (page + 101) % NR_PAGES;
            }
        };
        let walker = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let mut nr = 0;
                running.space().mincore(AT, HUGE, &mut |nr_run, here| nr += nr_run * u64::from(here)).unwrap();
                assert_eq!(nr, NR_PAGES, "a page was not there for a moment");
                let mut bytes = [0; 8];
                running.space().read(AT + 77 * PAGE, &mut bytes).unwrap();
                assert_eq!(u64::from_ne_bytes(bytes) >> 32, 77);
                nr_walks.fetch_add(1, SeqCst);
            }
        };
        w.race(&[&writer, &reader, &walker], |_| {
            wait_until(|| nr_stores.load(SeqCst) > 100 && nr_walks.load(SeqCst) > 2);
            for round in 0..60 {
                let splits = w.vm.event(Event::ThpSplitPmd);
                // Rights change at a part, and are the same again.
                let at = AT + (1 + round * 13 % 500) * PAGE;
                w.space.mprotect(at, PAGE, RWX).unwrap();
                assert_eq!(w.vm.event(Event::ThpSplitPmd), splits + 1);
                w.space.mprotect(at, PAGE, RW).unwrap();
                w.space.collapse(AT).unwrap();
                assert_eq!(w.rss().anon_huge, NR_PAGES);
            }
        });
    });
}

/// Advice splits and has nothing else to shoot down. A store where a clean huge
/// translation was loaded before finds a small one, and no CPU has both.
#[test]
fn t3_after_a_split_nobody_has_the_huge_translation() {
    in_each(2, 64 << 20, |w| {
        w.map(AT, NR_PAGES, RW);
        w.space.set_thp_disable(true);
        assert_eq!(w.space.handle_fault(AT, Access::Read), Ok(FaultDone::ZeroFrame));
        w.space.set_thp_disable(false);
        w.space.collapse(AT).unwrap();
        let (loaded, split) = (Barrier::new(2), Barrier::new(2));
        let other = |running: &Running<'_>, _: &AtomicBool| {
            assert_eq!(get(running, AT + 9 * PAGE), 0);
            loaded.wait();
            split.wait();
            put(running, AT + 9 * PAGE, 1);
        };
        w.race(&[&other], |_| {
            loaded.wait();
            w.space.madvise(AT + 300 * PAGE, PAGE, Advice::Random).unwrap();
            split.wait();
        });
        assert_eq!(w.vm.event(Event::ThpSplitPmd), 1);
    });
}

/// A store through a translation that is clean, while the mapping is split: the
/// bit is in the huge entry or in the small one.
#[test]
fn t3_no_dirty_bit_is_lost() {
    in_each(2, 64 << 20, |w| {
        let rounds = Rounds::default();
        let writer = |running: &Running<'_>, stop: &AtomicBool| {
            rounds.each(stop, |round| put(running, AT + round * 11 % NR_PAGES * PAGE, round + 1));
        };
        w.race(&[&writer], |_| {
            for round in 0..fewer(80) {
                w.map(AT, NR_PAGES, RW);
                // Zeroes that were read, made huge: memory that nobody has written.
                w.space.set_thp_disable(true);
                assert_eq!(w.space.handle_fault(AT, Access::Read), Ok(FaultDone::ZeroFrame));
                w.space.set_thp_disable(false);
                w.space.collapse(AT).unwrap();
                let dirty = |w: &World<'_>| {
                    let mut nr = 0;
                    w.space.smaps(&mut |entry| nr += entry.dirty_pages);
                    nr
                };
                assert_eq!(dirty(w), 0);
                rounds.begin();
                w.space.mprotect(AT + 300 * PAGE, PAGE, READ).unwrap();
                w.space.mprotect(AT + 300 * PAGE, PAGE, RW).unwrap();
                rounds.end(1);
                assert!(dirty(w) > 0, "round {round}: what was written is not dirty");
            }
        });
    });
}
