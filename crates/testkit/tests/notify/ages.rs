//! T15: which pages were used, by the program and by the subscriber.

use super::mirror::Mirror;
use super::*;

/// T15. One use is counted once, through whichever table.
#[test]
fn t15_ageing() {
    in_each_setup(2, ARENA, |w| {
        let mirror = Mirror::of(w.vm);
        w.map(BASE, 8, RW);
        let s = w.space;
        (0..4).for_each(|i| s.write(BASE + i * PAGE, b"used").unwrap());
        let all = 8 * PAGE;
        assert_eq!((s.test_young(BASE, all), s.test_young(BASE + PAGE, 2 * PAGE)), (4, 2));
        // Two bytes, on either side of an edge; to the end of everything; nothing.
        let young = [(BASE + PAGE - 1, 2), (BASE, u64::MAX), (BASE, 0), (BASE + PAGE - 1, 1)];
        assert_eq!(young.map(|(addr, len)| s.test_young(addr, len)), [2, 4, 0, 1]);
        assert_eq!((s.test_and_clear_young(BASE, all), s.test_young(BASE, all)), (4, 0));
        let mut nr_dirty = 0;
        s.smaps(&mut |entry| nr_dirty += entry.dirty_pages);
        assert_eq!(nr_dirty, 4, "dirty bits stay");
        // Used by the guest only; by both; asked of a part.
        let subscription = s.subscribe();
        let touch = |page| _ = mirror.used.lock().unwrap().insert(Vpn(Vpn::of(BASE).0 + page));
        touch(1);
        touch(7);
        assert_eq!((s.test_young(BASE, all), s.test_young(BASE + 2 * PAGE, 2 * PAGE)), (1, 0), "7 is not mapped");
        s.write(BASE + PAGE, b"used").unwrap();
        assert_eq!(s.test_and_clear_young(BASE, all), 1);
        assert_eq!(s.test_and_clear_young(BASE, all), 0, "the guest has forgotten, too");
        // A walk asks the guest, too, and the age says it.
        s.age_pages(0, 1 << 20);
        while w.vm.advance_generation(2) != Advance::Done {}
        touch(2);
        assert_eq!((s.age_pages(0, 1 << 20).nr_young, w.vm.idle_pages(1)), (1, 3));
        assert_eq!(s.age_pages(0, 1 << 20).nr_young, 0, "the guest has forgotten, too");
        while w.vm.advance_generation(2) != Advance::Done {}
        touch(3);
        assert_eq!((s.test_and_clear_young(BASE, all), w.vm.idle_pages(1)), (1, 3));
        s.unsubscribe(subscription).unwrap();
        for (addr, len) in
            [(BASE + (1 << 40), PAGE), (BASE, 0), (u64::MAX - 5, 100), (1 << 63, u64::MAX), (5, u64::MAX)]
        {
            assert_eq!(s.test_and_clear_young(addr, len), 0, "{addr:#x}, {len:#x}");
        }
    });
}

/// Another CPU keeps its translations; each of its uses is counted all the same,
/// by one call or the next.
#[test]
fn t15_test_and_clear_loses_none() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, 4, RW);
        (0..4).for_each(|i| w.space.write(BASE + i * PAGE, b"there").unwrap());
        let (asked, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let user = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let n = asked.load(SeqCst);
                if n > done.load(SeqCst) {
                    running.read_u64(BASE + (n % 4) * PAGE).unwrap();
                    done.store(n, SeqCst);
                }
            }
        };
        w.race(&[&user], |_| {
            w.space.test_and_clear_young(BASE, 4 * PAGE);
            for n in 1..400 {
                asked.store(n, SeqCst);
                let mut counted = 0;
                // Calls race with the use, until it is known to be over.
                while done.load(SeqCst) < n {
                    counted += w.space.test_and_clear_young(BASE, 4 * PAGE);
                }
                counted += w.space.test_and_clear_young(BASE, 4 * PAGE);
                assert_eq!(counted, 1, "use {n}");
            }
        });
    });
}

/// T15: of a huge mapping the subscriber is asked for all 2 MiB, whatever part is
/// aged, so that it finds its own entries, of any size, at any offset.
#[test]
fn t15_ageing_of_a_huge_mapping() {
    in_setup(Setup::PLAIN, 1, 48 << 20, |w| {
        let mirror = Mirror::of(w.vm);
        let s = w.space;
        enable(w, CowHuge::Split);
        w.map(AT, 2 * NR_PAGES, RW);
        s.write(AT + 5 * PAGE, b"used").unwrap();
        assert_eq!(s.test_and_clear_young(AT + 100 * PAGE, PAGE), NR_PAGES, "one accessed bit for all");
        assert_eq!(s.test_young(AT, 2 * HUGE), 0);
        let subscription = s.subscribe();
        for page in [0, 17, 511] {
            mirror.used.lock().unwrap().insert(Vpn(Vpn::of(AT).0 + page));
            assert_eq!(s.test_young(AT + 200 * PAGE, PAGE), NR_PAGES, "used at page {page}");
            assert_eq!(s.test_and_clear_young(AT + 200 * PAGE, PAGE), NR_PAGES);
            assert_eq!(s.test_and_clear_young(AT, HUGE), 0);
        }
        assert_eq!(s.page_state(AT).unwrap().order, Order::PMD, "ageing splits nothing");
        s.unsubscribe(subscription).unwrap();
    });
}
