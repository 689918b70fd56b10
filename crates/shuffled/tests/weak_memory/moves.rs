//! Pages and mappings that move while others store in them.

use super::*;

/// The page moves to other frames while a CPU uses it.
fn use_against_moves(write: fn(World, u64, u64)) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[0; 8]).unwrap();
        let mover: Actor = Box::new(move || {
            for _ in 0..3 {
                if let Some(there) = quietly(|| common::walk(w.space, w.vm, at(0))) {
                    let _ = w.vm.migrate_frame(there.pfn);
                }
            }
        });
        run(NR_CPUS, vec![mover, count_up(w, at(0), write)]);
        w.check(&[]);
        assert_eq!(word_at(w.space, at(0)), LAST);
    });
}

#[test]
fn store_against_moves() {
    use_against_moves(by_store);
}

#[test]
fn call_against_moves() {
    use_against_moves(by_call);
}

/// The mapping moves, from two leaf tables to two others, while a CPU stores in it. A
/// finished store is at the new place (or, if the source stays, it came after the move
/// and is at the old place).
fn stores_against_mremap(flags: MremapFlags) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        let (old, new) = (BASE + (6 << 20) - 2 * 4096, BASE + (10 << 20) - 2 * 4096);
        w.space.mmap(old, 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        let stored: Arc<Mutex<[u64; 4]>> = Arc::default();
        let results = stored.clone();
        let mover = inside(w.space, move || _ = w.space.mremap(old, 4 * 4096, 4 * 4096, flags, new).unwrap());
        let program = inside(w.space, move || {
            for value in 1..=LAST {
                let page = value % 4;
                match w.store(old + page * 4096, value) {
                    Ok(_) => results.lock().unwrap()[page as usize] = value,
                    Err(FaultError::NotMapped) => return,
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![mover, program]);
        w.check(&[]);
        let stored = *stored.lock().unwrap();
        be(0);
        for (page, value) in (0..4).zip(stored) {
            let mut found = word_at(w.space, new + page * 4096);
            if flags == KEEP && value > 0 && found != value {
                found = word_at(w.space, old + page * 4096);
            }
            assert_eq!(found, value, "a page that was written is lost");
        }
    });
}

#[test]
fn stores_against_a_move_of_the_mapping() {
    stores_against_mremap(MOVE);
}

#[test]
fn stores_against_a_move_that_keeps_the_source() {
    stores_against_mremap(KEEP);
}
