//! F5 and F12: fork while others write, and the tables that the child gets.

use super::*;

#[test]
fn f5_fork_while_siblings_write() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, 2 * PAGES, RW);
        let begun: Vec<AtomicU64> = (0..2 * PAGES).map(|_| AtomicU64::new(0)).collect();
        let finished: Vec<AtomicU64> = (0..2 * PAGES).map(|_| AtomicU64::new(0)).collect();
        let count_up = |running: &Running<'_>, stop: &AtomicBool, pages: std::ops::Range<u64>| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                for page in pages.clone() {
                    begun[page as usize].store(n, SeqCst);
                    running.write_u64(BASE + page * PAGE, mark(page, n)).unwrap();
                    finished[page as usize].store(n, SeqCst);
                    let back = count_in(page, running.read_u64(BASE + page * PAGE).unwrap());
                    assert_eq!(back, n, "the parent's own store is lost");
                }
            }
        };
        let low = |running: &Running<'_>, stop: &AtomicBool| count_up(running, stop, 0..PAGES);
        let high = |running: &Running<'_>, stop: &AtomicBool| count_up(running, stop, PAGES..2 * PAGES);
        let numbers = |of: &[AtomicU64]| of.iter().map(|n| n.load(SeqCst)).collect::<Vec<_>>();
        w.race(&[&low, &high], |_| {
            for round in 0..8 {
                let (least, child) = (numbers(&finished), w.space.fork().unwrap());
                let most = numbers(&begun);
                let words = || {
                    (0..2 * PAGES).map(|page| {
                        let mut word = [0; 8];
                        child.read(BASE + page * PAGE, &mut word).unwrap();
                        count_in(page, u64::from_ne_bytes(word))
                    })
                };
                let first: Vec<u64> = words().collect();
                for page in 0..2 * PAGES as usize {
                    assert!(
                        (least[page]..=most[page]).contains(&first[page]),
                        "page {page}: the child has {}, which it had not during fork: {} to {}",
                        first[page],
                        least[page],
                        most[page]
                    );
                }
                wait_until(|| {
                    finished[0].load(SeqCst) > most[0] && finished[PAGES as usize].load(SeqCst) > most[PAGES as usize]
                });
                assert!(words().eq(first.iter().copied()), "what was written after fork shows in the child");
                // The child's own stores are its own; now it is the first to copy.
                if round % 2 == 0 {
                    (0..2 * PAGES).for_each(|page| child.write(BASE + page * PAGE, &[0xee; 8]).unwrap());
                }
            }
        });
    });
}

/// The system call's own stores (`AddressSpace::write`) obey the same rules as the
/// program's: none is lost to a sibling's copy, none shows in the child.
#[test]
fn f5_fork_while_a_call_writes() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, 1, RW);
        let (begun, finished) = (AtomicU64::new(0), AtomicU64::new(0));
        let call = |_: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0u64;
            while !stop.load(SeqCst) {
                n += 1;
                begun.store(n, SeqCst);
                let page: Vec<u8> = (0..512).flat_map(|_| n.to_ne_bytes()).collect();
                w.space.write(BASE, &page).unwrap();
                finished.store(n, SeqCst);
                let mut back = [0; PAGE as usize];
                w.space.read(BASE, &mut back).unwrap();
                // The last word is the sibling's.
                let words = back[..PAGE as usize - 8].chunks_exact(8);
                for word in words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())) {
                    assert_eq!(word, n, "a store of this call is lost");
                }
            }
        };
        // Breaks the sharing as soon as fork has made it.
        let program = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                running.write_u64(BASE + PAGE - 8, 1).unwrap();
            }
        };
        w.race(&[&call, &program], |_| {
            for _ in 0..10 {
                let (least, child) = (finished.load(SeqCst), w.space.fork().unwrap());
                let most = begun.load(SeqCst);
                let read = || {
                    let mut page = vec![0; PAGE as usize - 8];
                    child.read(BASE, &mut page).unwrap();
                    page
                };
                let first = read();
                for word in first.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())) {
                    assert!((least..=most).contains(&word), "{word} was not there during fork: {least} to {most}");
                }
                wait_until(|| finished.load(SeqCst) > most);
                assert_eq!(read(), first, "what was written after fork shows in the child");
            }
        });
    });
}

/// Only the outcome: the child's entries are the parent's without the write right.
#[test]
fn f12_the_childs_tables_are_the_parents() {
    in_each_setup(1, ARENA, |w| {
        w.map(BASE, 600, RW);
        let shared = w.space.mmap(0, 8 * PAGE, RW, SHARED).unwrap();
        {
            let running = w.cpu.enter(w.space).unwrap();
            for page in (0..600).step_by(7) {
                running.write_u64(BASE + page * PAGE, mark(1, page)).unwrap();
                running.read_u64(BASE + (page + 1) * PAGE).unwrap();
            }
            running.write_u64(shared, 1).unwrap();
        }
        w.space.madvise(BASE + 3 * PAGE, PAGE, GUARD_INSTALL).unwrap();
        // A guard stays when the pages around it go, and so it is in the child.
        w.space.madvise(BASE + 2 * PAGE, 3 * PAGE, DONTNEED).unwrap();
        let child = w.space.fork().unwrap();
        check(w.vm, &[w.space, &child]);
        for page in 0..600 {
            let entry = w.space.translate_at_rest(BASE + page * PAGE);
            assert_eq!(entry, child.translate_at_rest(BASE + page * PAGE));
            assert_eq!(entry.is_some(), page % 7 < 2);
            assert!(entry.is_none_or(|entry| entry.rights == Rights::READ));
        }
        assert_eq!(child.translate_at_rest(shared), None, "pages of an object come by a fault");
        assert_eq!(child.handle_fault(BASE + 3 * PAGE, Access::Read), Err(FaultError::Guard));
        assert_eq!(child.rss_pages().anon, w.rss().anon);
        assert_eq!(child.nr_mapped_pages(), w.space.nr_mapped_pages());
    });
}
