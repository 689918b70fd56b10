//! Accesses by programs and by calls against removals.

use super::*;

/// CPU 1 stores to page 0 again and again, through its TLB or through a fault. CPU 0
/// takes the page or its rights away, and uses the frames again. A store that begins
/// after `op` has returned is refused if `is_final`. CPU 1 faults before, during and
/// after: its hint must not outlive the removal.
fn store_against(is_final: bool, op: impl Fn(World) + Sync + Send + Copy + 'static) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let remover = inside(w.space, move || {
            op(w);
            done.store(true, SeqCst);
            w.use_fresh_pages();
        });
        let program = inside(w.space, move || {
            for value in 1..=5 {
                let is_late = is_final && seen.load(SeqCst);
                match w.store(at(0), value) {
                    Ok(now) => assert!(now == value && !is_late, "a store after the removal"),
                    Err(FaultError::NotMapped | FaultError::NoRights | FaultError::Guard) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![remover, program]);
        w.check(&[]);
    });
}

#[test]
fn store_against_munmap_of_a_page() {
    store_against(true, |w| w.space.munmap(at(0), 4096).unwrap());
}

/// Removes the tables, too.
#[test]
fn store_against_munmap_of_everything() {
    store_against(true, |w| w.space.munmap(at(0), 4 * 4096).unwrap());
}

#[test]
fn store_against_mprotect() {
    store_against(true, |w| w.space.mprotect(at(0), 4096, READ).unwrap());
}

#[test]
fn store_against_another_mapping() {
    store_against(true, |w| {
        w.space.munmap(at(0), 4096).unwrap();
        w.space.mmap(at(0), 4096, READ, FIXED_PRIVATE).unwrap();
        assert_eq!(w.load(at(0)), Ok(0), "F4: what was written before munmap");
    });
}

#[test]
fn store_against_dontneed_of_a_whole_table() {
    store_against(false, |w| w.space.madvise(at(0), 4 * 4096, Advice::DontNeed).unwrap());
}

#[test]
fn store_against_mremap() {
    store_against(true, |w| _ = w.space.mremap(at(0), 4096, 4096, MOVE, at(8)).unwrap());
}

/// System calls of a CPU that does not run the space (F7).
fn visit_against(op: impl Fn(World) + Sync + Send + Copy + 'static) {
    shuffled(VISITS, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[1; 8]).unwrap();
        let remover = inside(w.space, move || {
            op(w);
            w.use_fresh_pages();
        });
        let visitor: Actor = Box::new(move || {
            for value in 1..=12u64 {
                let written = w.space.write(at(0), &value.to_ne_bytes()).map_err(|error| error.fault);
                assert!(matches!(written, Ok(()) | Err(FaultError::NotMapped)), "{written:?}");
            }
        });
        run(NR_CPUS, vec![remover, visitor]);
        w.check(&[]);
    });
}

#[test]
fn visit_against_munmap() {
    visit_against(|w| {
        for round in 0..4 {
            w.space.munmap(at(0), 4096).unwrap();
            for _ in 0..3 {
                assert_eq!(w.load(at(0)), Err(FaultError::NotMapped), "I7: a page outside every VMA");
            }
            if round < 3 {
                w.space.mmap(at(0), 4096, RW, FIXED_PRIVATE).unwrap();
            }
        }
    });
}

/// The VMA stays: a section that begins late may find the old entry still.
#[test]
fn visit_against_dontneed() {
    visit_against(|w| w.space.madvise(at(0), 4096, Advice::DontNeed).unwrap());
}

/// Nothing is put into an object beyond its size after the size has shrunk.
#[test]
fn store_against_a_smaller_object() {
    // The window is a few operations wide, and a schedule is short.
    shuffled(5 * SCHEDULES, || {
        let w = World::new();
        let object: &'static SharedObject<'static, Machine> =
            Box::leak(Box::new(w.vm.new_shared_object(2 * 4096).unwrap()));
        let part = ObjectPart::new(object);
        w.space.mmap_object(at(8), 2 * 4096, RW, FIXED_SHARED, part).unwrap();
        object.write(0, &[7; 8]).unwrap();
        let shrinker = inside(w.space, move || {
            for _ in 0..3 {
                object.set_size_bytes(2 * 4096);
                object.set_size_bytes(4096);
                assert_eq!(object.nr_resident_pages(), 1, "I22: a page beyond the size");
            }
        });
        let program = inside(w.space, move || {
            for value in 1..=12 {
                match w.store(at(9), value) {
                    Ok(_) | Err(FaultError::BeyondObject) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![shrinker, program]);
        assert_eq!(object.nr_resident_pages(), 1, "I22: a page beyond the size");
        w.check(&[]);
    });
}

/// Page 14 may be read and page 15 written, all the time. New mappings lie below, in the
/// same node, and move their records in it. Two retired nodes are freed.
#[test]
fn lookups_against_deferred_nodes() {
    shuffled(SCHEDULES, || {
        let w = World::tuned(Tunables::default().with_deferred_nodes_max(2));
        w.space.mmap(at(14), 4096, READ, FIXED_PRIVATE).unwrap();
        w.space.mmap(at(15), 4096, RW, FIXED_PRIVATE).unwrap();
        let mapper = inside(w.space, move || {
            for page in [12, 10, 8, 6] {
                w.space.mmap(at(page), 4096, Prot::NONE, FIXED_PRIVATE).unwrap();
            }
        });
        let program = inside(w.space, move || {
            for _ in 0..8 {
                assert_eq!(w.space.handle_fault(at(14), Access::Write), Err(FaultError::NoRights), "F6");
                assert!(w.space.handle_fault(at(15), Access::Write).is_ok(), "F6");
            }
        });
        run(NR_CPUS, vec![mapper, program]);
        w.check(&[]);
    });
}
