//! CPUs that take each other's last frames.

use super::*;

/// Few frames are free, and three CPUs want them, each for pages of its own. CPUs empty
/// each other's caches; no frame has two owners or is lost, and stores stay.
#[test]
fn thieves() {
    shuffled(SCHEDULES, || {
        let w = nearly_nothing(4);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let taker = |cpu: u64| {
            inside(w.space, move || {
                let mut has = [false; 2];
                for turn in 0..6u64 {
                    let i = (turn % 2) as usize;
                    let addr = ELSEWHERE + (1 + cpu) * 8 * 4096 + i as u64 * 4096;
                    if has[i] {
                        assert_eq!(w.load(addr), Ok(cpu * 100 + turn - 2), "I10: a frame was had twice");
                        w.space.madvise(addr, 4096, Advice::DontNeed).unwrap();
                        has[i] = false;
                    }
                    match w.store(addr, cpu * 100 + turn) {
                        Ok(_) => has[i] = true,
                        Err(FaultError::OutOfFrames) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        };
        run(NR_CPUS, (0..3).map(taker).collect());
        w.check(&[]);
        let nr_used = (0..3).flat_map(|cpu| [0, 1].map(|i| ELSEWHERE + (1 + cpu) * 8 * 4096 + i * 4096));
        let nr_used = nr_used.filter(|addr| common::walk(w.space, w.vm, *addr).is_some()).count() as u64;
        assert_eq!(w.vm.vmstat().nr_free_pages + nr_used, nr_free, "I10: a frame is lost");
    });
}

/// Each of two faults claims the frames that it finds. Neither is refused: there are
/// frames for both, in the blocks, on their way, or in the other's frame cache.
#[test]
fn frames_on_their_way() {
    shuffled(SCHEDULES, || {
        let w = nearly_nothing(2);
        let taker = |cpu: u64| inside(w.space, move || by_store(w, ELSEWHERE + (1 + cpu) * 8 * 4096, 1));
        run(NR_CPUS, (0..2).map(taker).collect());
        w.check(&[]);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0);
    });
}

/// All frames are in use but for `nr_left`, which lie in the blocks: every frame cache is
/// empty.
fn nearly_nothing(nr_left: u64) -> World {
    let w = World::tuned(Tunables::default().with_zero_batch(4));
    w.space.mmap(ELSEWHERE + 8 * 4096, 64 * 4096, RW, FIXED_PRIVATE).unwrap();
    w.space.mmap(at(64), 256 * 4096, RW, FIXED_PRIVATE).unwrap();
    let nr_pages = (0..256).take_while(|page| w.space.handle_fault(at(64 + page), Access::Write).is_ok()).count();
    assert!(nr_pages > 8 && nr_pages < 256);
    w.space.madvise(at(64), nr_left * 4096, Advice::DontNeed).unwrap();
    assert_eq!(w.vm.vmstat().nr_free_pages, nr_left);
    w
}
