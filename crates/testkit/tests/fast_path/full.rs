//! F10: faults while frames run out.

use super::*;

#[test]
fn f10_out_of_frames_in_the_middle() {
    in_each_setup(3, 2 << 20, |w| {
        // More than there is, shared out among the CPUs.
        w.map(BASE, 1024, RW);
        let nr_refused = AtomicU64::new(0);
        let touch = |running: &Running<'_>, i: u64| {
            for page in (i..1024).step_by(3) {
                match running.write_u64(BASE + page * PAGE, mark(0, page)) {
                    Ok(()) => assert_eq!(running.read_u64(BASE + page * PAGE), Ok(mark(0, page))),
                    Err(trap) => {
                        assert_eq!(trap.cause, FaultError::OutOfFrames);
                        nr_refused.fetch_add(1, SeqCst);
                    }
                }
            }
        };
        let start = w.vm.vmstat().nr_free_pages;
        w.race(&[&|running, _| touch(running, 1), &|running, _| touch(running, 2)], |running| touch(running, 0));
        check(w.vm, &[w.space]);
        let rss = w.rss();
        assert_eq!(nr_refused.load(SeqCst) + rss.anon, 1024);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0, "refused while there were frames");
        assert_eq!(rss.anon + rss.tables, start, "a refused fault keeps nothing");
        assert!(w.space.fork().is_err());
        check(w.vm, &[w.space]);
        // Present pages can be read, and one page less makes room for one more.
        let running = w.cpu.enter(w.space).unwrap();
        let have: Vec<u64> = (0..1024).filter(|page| w.space.translate_at_rest(BASE + page * PAGE).is_some()).collect();
        assert_eq!(have.len() as u64, rss.anon);
        have.iter().for_each(|page| assert_eq!(running.read_u64(BASE + page * PAGE), Ok(mark(0, *page))));
        w.space.madvise(BASE + have[0] * PAGE, PAGE, DONTNEED).unwrap();
        running.write_u64(BASE + have[0] * PAGE, 1).unwrap();
    });
}

/// At the edge: three CPUs take and give back so much that now and then one finds
/// nothing but what others hold in reserve.
#[test]
fn f10_at_the_edge() {
    in_each_setup(3, 2 << 20, |w| {
        let room = w.vm.vmstat().nr_free_pages / 3 - 6;
        (0..3).for_each(|i| w.map(BASE + (i << 30), room, RW));
        let take = |running: &Running<'_>, i: u64| {
            let at = BASE + (i << 30);
            for round in 0..20 {
                // A full third, then a few: the rest lies about in frame caches.
                for page in 0..if round % 2 == 0 { room } else { 9 } {
                    running.write_u64(at + page * PAGE, mark(page, i)).expect("there is room for all three");
                }
                running.space().madvise(at, room * PAGE, DONTNEED).unwrap();
            }
        };
        w.race(&[&|running, _| take(running, 1), &|running, _| take(running, 2)], |running| take(running, 0));
    });
}

/// The same where it is certain that some are refused: nothing is lost in the
/// exchange of frame caches between CPUs.
#[test]
fn f10_past_the_edge() {
    in_each_setup(3, 2 << 20, |w| {
        let room = w.vm.vmstat().nr_free_pages / 2;
        (0..3).for_each(|i| w.map(BASE + (i << 30), room, RW));
        let take = |running: &Running<'_>, i: u64| {
            let at = BASE + (i << 30);
            for _ in 0..20 {
                for page in 0..room {
                    match running.write_u64(at + page * PAGE, mark(page, i)) {
                        Ok(()) => {}
                        Err(trap) => assert_eq!(trap.cause, FaultError::OutOfFrames),
                    }
                }
                running.space().madvise(at, room * PAGE, DONTNEED).unwrap();
            }
        };
        w.race(&[&|running, _| take(running, 1), &|running, _| take(running, 2)], |running| take(running, 0));
    });
}
