//! Stores through a translation while another CPU takes the page away.

use super::*;

/// CPU 1 does `step` with a walker and the page's last translation, until `own` of CPU 0
/// is over. Each setup begins with a page of zeroes.
fn race(step: impl Fn(&Walk<'_, '_>, &Walked<'_>) -> Result<(), Miss> + Sync, own: impl Fn(&Space<'_>)) {
    let (nr_hits, nr_stale) = (AtomicU64::new(0), AtomicU64::new(0));
    in_each_setup(2, 16 << 20, |w| {
        let (stop, nr_turns) = (AtomicBool::new(false), AtomicU64::new(0));
        w.map(BASE, 1, RW);
        let walks = || {
            let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
            let active = w.space.activate();
            let walker = active.walker();
            let mut tlb = None;
            while !stop.load(SeqCst) {
                match tlb.map(|walked| step(&walker, &walked)) {
                    Some(Ok(())) => _ = nr_hits.fetch_add(1, SeqCst),
                    Some(Err(Miss::Stale)) => {
                        nr_stale.fetch_add(1, SeqCst);
                        tlb = None;
                    }
                    Some(Err(miss)) => panic!("{miss}"),
                    None => tlb = walker.translate(BASE, Access::Write).ok(),
                }
                nr_turns.fetch_add(1, SeqCst);
            }
        };
        thread::scope(|scope| {
            scope.spawn(walks);
            let _stop = StopAtEnd(&stop);
            // With its translation it makes a step, and one more when CPU 0 is done.
            wait_until(|| nr_turns.load(SeqCst) >= 2);
            own(w.space);
            let before = nr_turns.load(SeqCst);
            wait_until(|| nr_turns.load(SeqCst) >= before + 2);
        });
    });
    assert!(nr_hits.load(SeqCst) > 0 && nr_stale.load(SeqCst) > 0, "{nr_hits:?} hits, {nr_stale:?} misses");
}

/// A store after munmap(2) has returned would be seen in whatever has the frame next.
#[test]
fn stores_against_munmap() {
    race(
        |walker, walked| walker.store_through(walked, 8, &[7; 8]),
        |space| {
            for _ in 0..fewer(400) {
                space.munmap(BASE, PAGE).unwrap();
                space.mmap(BASE + PAGE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
                let mut bytes = [0; 4096];
                for page in [1, 2] {
                    space.write(BASE + page * PAGE, &[0]).unwrap();
                    space.read(BASE + page * PAGE, &mut bytes).unwrap();
                    assert_eq!(bytes, [0; 4096], "a store to a page that is gone");
                }
                space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
                space.munmap(BASE + PAGE, 2 * PAGE).unwrap();
                thread::yield_now();
            }
        },
    );
}

/// The child does not see what the parent stores after fork(2).
#[test]
fn stores_against_fork() {
    let last = AtomicU64::new(0);
    race(
        |walker, walked| {
            let next = last.fetch_add(1, SeqCst);
            walker.store_through(walked, 8, &next.to_ne_bytes())
        },
        |space| {
            for _ in 0..fewer(200) {
                let child = space.fork().unwrap();
                let mut seen = [[0; 8]; 2];
                child.read(BASE + 8, &mut seen[0]).unwrap();
                thread::yield_now();
                child.read(BASE + 8, &mut seen[1]).unwrap();
                assert_eq!(seen[0], seen[1], "a store after the fork");
            }
        },
    );
}

/// No store is lost while the page gets another frame.
#[test]
fn stores_against_migration() {
    let number = |walker: &Walk<'_, '_>, walked: &Walked<'_>| {
        let mut bytes = [0; 8];
        walker.load_through(walked, 8, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    };
    // CPU 1 alone stores: what it loads is what it stored last. Setups begin at zero.
    let last = AtomicU64::new(0);
    race(
        |walker, walked| {
            let now = number(walker, walked)?;
            assert!(now == last.load(SeqCst) || now == 0, "a store was lost");
            walker.store_through(walked, 8, &(now + 1).to_ne_bytes())?;
            last.store(now + 1, SeqCst);
            Ok(())
        },
        |space| {
            for _ in 0..fewer(400) {
                if let Some(there) = space.translate_at_rest(BASE) {
                    _ = space.vm().migrate_frame(there.pfn);
                }
                thread::yield_now();
            }
        },
    );
}
