//! I39: nothing is stored through a walk once the operation that took the page away
//! has returned.

use common::{World, beside_pagers, explore, let_shootdowns_wait, run};
use softfault_modelled::{Access, Advice, FaultLocking, Machine, Pfn, Walked};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const OFFSET: usize = 8;

/// The byte that the actors store to. Bytes of programs are no cells of the model: they
/// are what was stored last.
fn byte(w: World, pfn: Pfn) -> u64 {
    // SAFETY: I1: inside a frame of the arena; loom's threads are one system thread.
    u64::from(unsafe { w.vm.machine().frame_ptr(pfn).add(OFFSET).read() })
}

/// A machine with one page, which was written; and its frame.
fn world() -> (World, Pfn) {
    let w = World::new(FaultLocking::Lockfree, 0, 2);
    w.touch(0);
    (w, w.space.translate_at_rest(0).unwrap().pfn)
}

/// CPU 1 stores through `early`'s translation, or walks for one; CPU 2 takes the page away.
fn store_against(
    take: impl Fn(World) + Sync + Send + Copy + 'static,
    early: impl Fn(World) -> Option<Walked<'static>> + Sync + Send + Copy + 'static,
) {
    explore(3, move || {
        let (w, pfn) = world();
        let early = early(w);
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let seen = left.clone();
        let store = move || {
            let active = w.space.activate();
            let walker = active.walker();
            let walked = early.or_else(|| walker.translate(0, Access::Write).ok());
            if let Some(walked) = walked {
                _ = walker.store_through(&walked, OFFSET, &[7]);
            }
        };
        let unmap = move || {
            take(w);
            seen.store(byte(w, pfn), SeqCst);
        };
        run(vec![Box::new(store), Box::new(unmap)]);
        assert_eq!(byte(w, pfn), left.load(SeqCst), "I39: a store to a frame that is free");
        w.check(&[]);
    });
}

fn munmap(w: World) {
    w.space.munmap(0, 4096).unwrap();
}

/// Has no tree to wait for.
fn discard(w: World) {
    w.space.madvise(0, 4096, Advice::DontNeed).unwrap();
}

/// The first walker of the space: whether the shootdown counts is decided meanwhile.
#[test]
fn first_walk_and_store_against_munmap() {
    store_against(munmap, |_| None);
}

/// The space has had a walker: the walk reads the count and the entry.
#[test]
fn walk_and_store_against_munmap() {
    store_against(munmap, |w| {
        _ = w.space.activate().walker();
        None
    });
}

/// The translation was made on another CPU; this one becomes active meanwhile.
#[test]
fn store_of_a_cpu_that_arrives_against_munmap() {
    store_against(munmap, |w| Some(w.space.activate().walker().translate(0, Access::Write).unwrap()));
}

/// The same where shootdowns are interrupts, and wait for the sections of their CPUs.
#[test]
fn store_of_a_cpu_that_arrives_against_an_interrupt() {
    store_against(discard, |w| {
        let_shootdowns_wait(w);
        Some(w.space.activate().walker().translate(0, Access::Write).unwrap())
    });
}

beside_pagers![
    first_walk_and_store_against_munmap,
    walk_and_store_against_munmap,
    store_of_a_cpu_that_arrives_against_munmap,
    store_of_a_cpu_that_arrives_against_an_interrupt
];
