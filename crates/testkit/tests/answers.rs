//! Long calls answer other CPUs: none takes more than `MOST_STEPS` steps without
//! `relax`, which the hosted machine counts in each test. Here are calls that are long.
//! Holes are skipped by table level.

mod common;

use common::objects::whole;
use common::*;
use softfault::{Advice, MlockFlags, MlockallFlags, VmaFlags};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Number of pages or VMAs that no call may pass in one go.
const MANY: u64 = 4000;

fn in_one(nr_cpus: usize, test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, nr_cpus, 64 * MIB, test);
}

#[test]
fn the_end_of_an_object_answers_others() {
    in_one(1, |w| {
        let nr_pages = 8192;
        let fill = || {
            let object = w.vm.new_shared_object(nr_pages * PAGE).unwrap();
            (0..nr_pages).for_each(|i| object.write(i * PAGE, &[1]).unwrap());
            object
        };
        assert!(steps_of(|| drop(fill())) > nr_pages, "each page is a step");
        let object = fill();
        assert_eq!(object.nr_resident_pages(), nr_pages);
        object.discard(0..nr_pages / 2);
        object.set_size_bytes(nr_pages / 4 * 3 * PAGE);
        assert_eq!(object.next_resident(0..u64::MAX), Some(nr_pages / 2));
        w.space.mmap_object(BASE, nr_pages * PAGE, RW, SHARED | FIXED, whole(&object)).unwrap();
        drop(object);
        // The mapping was all that kept it.
        w.space.munmap(BASE, nr_pages * PAGE).unwrap();
    });
}

#[test]
fn guards_answer_others() {
    in_one(1, |w| {
        w.map(BASE, GIB / PAGE, RW);
        w.space.madvise(BASE, GIB, GUARD_INSTALL).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(child.read(BASE + GIB - PAGE, &mut [0]).map_err(|e| e.at), Err(BASE + GIB - PAGE));
        w.space.madvise(BASE, GIB, GUARD_REMOVE).unwrap();
        drop(child);
        w.space.munmap(BASE, GIB).unwrap();
    });
}

#[test]
fn holes_are_skipped_by_table_level() {
    in_one(1, |w| {
        let nr_bytes = 1024 * GIB;
        w.map(BASE, nr_bytes / PAGE, RW);
        w.space.write(BASE, &[1]).unwrap();
        let mut runs = Vec::new();
        let mincore = steps_of(|| w.space.mincore(BASE, nr_bytes, &mut |nr, here| runs.push((nr, here))).unwrap());
        assert_eq!(runs, [(1, true), (nr_bytes / PAGE - 1, false)]);
        let collapse = steps_of(|| _ = w.space.madvise(BASE + 2 * MIB, nr_bytes - 2 * MIB, Advice::Collapse));
        let steps = [
            ("mincore", mincore),
            ("MADV_COLLAPSE", collapse),
            ("khugepaged", steps_of(|| _ = w.space.khugepaged_scan(BASE, 1 << 20))),
            ("MADV_DONTNEED", steps_of(|| w.space.madvise(BASE, nr_bytes, DONTNEED).unwrap())),
            ("smaps", steps_of(|| w.space.smaps(&mut |_| ()))),
            ("mprotect", steps_of(|| w.space.mprotect(BASE, nr_bytes, READ).unwrap())),
            ("fork", steps_of(|| drop(w.space.fork().unwrap()))),
            ("munmap", steps_of(|| w.space.munmap(BASE, nr_bytes).unwrap())),
        ];
        for (what, nr) in steps {
            assert!(nr < 10_000, "{what} of {} pages, one of them there: {nr} steps", nr_bytes / PAGE);
        }
    });
}

#[test]
fn mincore_shows_what_others_put_into_an_object() {
    in_one(1, |w| {
        let nr_pages = 1 << 30;
        let object = w.vm.new_shared_object(nr_pages * PAGE).unwrap();
        w.space.mmap_object(BASE, nr_pages * PAGE, RW, SHARED | FIXED, whole(&object)).unwrap();
        object.write(5 * PAGE, &[1]).unwrap();
        object.write((nr_pages - 1) * PAGE, &[1]).unwrap();
        w.space.write(BASE + 7 * PAGE, &[1]).unwrap();
        let mut runs = Vec::new();
        let steps = steps_of(|| w.space.mincore(BASE, nr_pages * PAGE, &mut |nr, here| runs.push((nr, here))).unwrap());
        assert_eq!(runs, [(5, false), (1, true), (1, false), (1, true), (nr_pages - 9, false), (1, true)]);
        assert!(steps < 20_000, "{steps} steps");
        w.space.munmap(BASE, nr_pages * PAGE).unwrap();
    });
}

/// Maps so many VMAs, a page each, that none merges with the next.
fn scatter(w: &World<'_>) {
    for i in 0..MANY {
        w.map(BASE + i * PAGE, 1, if i % 2 == 0 { RW } else { READ });
    }
    assert_eq!(w.space.nr_vmas(), MANY);
}

#[test]
fn many_mappings_answer_others() {
    in_one(1, |w| {
        let nr_bytes = MANY * PAGE;
        scatter(w);
        let mut nr = 0;
        w.space.maps(&mut |_| nr += 1);
        w.space.smaps(&mut |_| nr += 1);
        assert_eq!(nr, 2 * MANY);
        w.space.mincore(BASE, nr_bytes, &mut |_, _| ()).unwrap();
        w.space.madvise(BASE, nr_bytes, DONTFORK).unwrap();
        w.space.madvise(BASE, nr_bytes, DOFORK).unwrap();
        w.space.madvise(BASE, nr_bytes, POPULATE_READ).unwrap();
        w.space.mlock(BASE, nr_bytes, MlockFlags::empty()).unwrap();
        assert_eq!(w.space.nr_locked_pages(), MANY);
        w.space.munlockall().unwrap();
        w.space.mlockall(MlockallFlags::CURRENT).unwrap();
        w.space.munlock(BASE, nr_bytes).unwrap();
        drop(w.space.fork().unwrap());
        w.space.mprotect(BASE, nr_bytes, RWX).unwrap();
        assert_eq!(w.space.nr_vmas(), 1);
        assert!(w.space.vma(BASE).unwrap().flags.contains(VmaFlags::EXEC));
        w.space.munmap(BASE, nr_bytes).unwrap();
        scatter(w);
        w.space.munmap(BASE, nr_bytes).unwrap();
        scatter(w); // goes with the space
    });
}

#[test]
fn many_pages_answer_others() {
    in_one(1, |w| {
        let nr_bytes = MANY * PAGE;
        w.map(BASE, MANY, RW);
        w.space.write(BASE, &vec![7; nr_bytes as usize]).unwrap();
        let mut pins: Vec<_> = (0..MANY).map(|_| None).collect();
        w.space.pin_range(BASE, softfault::Term::Short, &mut pins).unwrap();
        let child = w.space.fork().unwrap();
        drop(pins);
        w.space.write_forced(BASE, &vec![8; nr_bytes as usize]).unwrap();
        let mut bytes = vec![0; nr_bytes as usize];
        child.read(BASE, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert_eq!(w.space.test_and_clear_young(BASE, nr_bytes), MANY);
        w.space.madvise(BASE, nr_bytes, FREE).unwrap();
        w.space.mprotect(BASE, nr_bytes, READ).unwrap();
        let to = w.space.mremap(BASE, nr_bytes, nr_bytes, MAYMOVE | MREMAP_FIXED, BASE + GIB).unwrap();
        w.space.munmap(to, nr_bytes).unwrap();
        let object = w.vm.new_shared_object(nr_bytes).unwrap();
        object.write(0, &bytes).unwrap();
        assert_eq!(object.read(0, &mut bytes), bytes.len());
        w.space.mmap_object(BASE, nr_bytes, RW, SHARED | FIXED, whole(&object)).unwrap();
        w.space.madvise(BASE, nr_bytes, POPULATE_WRITE).unwrap();
        object.discard(0..MANY);
        assert_eq!(object.nr_resident_pages(), 0);
        w.space.munmap(BASE, nr_bytes).unwrap();
    });
}

#[test]
fn many_members_answer_others() {
    in_one(1, |w| {
        w.map(BASE, 1, RW);
        // A page that the parent alone has, and that each child might have.
        let children: Vec<_> = (0..400).map(|_| w.space.fork().unwrap()).collect();
        w.space.write(BASE, &[1]).unwrap();
        let pfn = || w.space.translate_at_rest(BASE).unwrap().pfn;
        assert_eq!(w.vm.rmap_anon(pfn(), &mut []), 1);
        assert_eq!(w.vm.migrate_frame(pfn()).unwrap(), pfn());
        drop(children);
    });
}

#[test]
fn sums_over_many_cpus_answer_others() {
    in_one(512, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, &[1]).unwrap();
        assert_eq!(w.rss().anon, 1);
        assert!(w.vm.vmstat().nr_free_pages > 0);
        w.space.munmap(BASE, PAGE).unwrap();
    });
}
