//! mremap(2) happens whole or not at all, whatever other threads touch meanwhile
//! and whichever allocation fails (I15, I29).
//!
//! Each test lets a second CPU do one thing at each moment at which the call lets
//! others run, and lets each allocation from the k-th on fail.
#![deny(unsafe_code)]

mod common;

use common::turns::TwoCpus;
use common::{
    DONTUNMAP, FIXED, GUARD_INSTALL, MAYMOVE, MREMAP_FIXED, PAGE, POPULATE_WRITE, PRIVATE, READ, RW, SHARED, Space,
    huge,
};
use softfault::policy::huge::Enabled;
use softfault::{
    Access, AccessError, Event, FaultError, HugeKnobs, MlockFlags, MremapError, MremapFlags, Pfn, Term, Vma, VmaFlags,
};
use std::cell::RefCell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Span of a leaf table.
const SPAN: u64 = 2 << 20;
const FROM: u64 = 0x10_0000_0000;
const TO: u64 = FROM + (1 << 30);
const LEN: u64 = 2 * SPAN;
const ARENA: u64 = 16 << 20;

/// Written before the call, in the second table of the source.
const OLD: u64 = SPAN;
/// Written during the call, in the first: no table for it is counted before.
const NEW: u64 = 5 * PAGE;

/// The ways to call it, each with its new length.
const WAYS: [(MremapFlags, u64); 4] = [
    (MAYMOVE.union(MREMAP_FIXED), LEN),
    (MAYMOVE.union(MREMAP_FIXED).union(DONTUNMAP), LEN),
    (MAYMOVE.union(MREMAP_FIXED), LEN + SPAN),
    (MAYMOVE, LEN + SPAN),
];

fn byte(space: &Space<'_>, at: u64) -> Option<u8> {
    let mut byte = [0];
    space.read(at, &mut byte).ok().map(|()| byte[0])
}

fn maps(space: &Space<'_>) -> Vec<Vma> {
    let mut all = Vec::new();
    space.maps(&mut |vma| all.push(*vma));
    all
}

fn without_lock(flags: VmaFlags) -> VmaFlags {
    flags - VmaFlags::LOCKED - VmaFlags::ONFAULT
}

/// A source of which only the second half has a page, between neighbours that
/// nothing may merge with by mistake.
fn prepare(space: &Space<'_>) {
    for (at, len) in [(FROM - PAGE, PAGE), (FROM, LEN), (FROM + LEN, PAGE), (TO + 3 * PAGE, PAGE)] {
        assert_eq!(space.mmap(at, len, RW, PRIVATE | FIXED), Ok(at));
    }
    space.mlock(FROM, LEN, MlockFlags::ONFAULT).unwrap();
    space.write(FROM + OLD, &[1]).unwrap();
}

fn call(space: &Space<'_>, (flags, new_len): (MremapFlags, u64)) -> Result<u64, MremapError> {
    space.mremap(FROM, LEN, new_len, flags, TO)
}

/// A fixed target loses its mapping before anything else can fail.
fn unmap_target(space: &Space<'_>, way: (MremapFlags, u64)) {
    if way.0.contains(MREMAP_FIXED) {
        space.munmap(TO, way.1).unwrap();
    }
}

/// How often a run ended in which way.
#[derive(Default)]
struct Tally {
    nr_moved: u64,
    nr_failed: u64,
    nr_overlapped: u64,
    nr_waited: u64,
}

/// Runs `other` at each wait of each way to call mremap(2), with each allocation
/// of both failing, and gives every outcome to `look`.
fn at_each_moment<B: Send>(
    other: impl Fn(&Space<'_>) -> B + Sync,
    look: impl Fn(&Space<'_>, Result<u64, MremapError>, B),
) -> Tally {
    let mut tally = Tally::default();
    for way in WAYS {
        // One wait more than there are: the other CPU comes after the call.
        let mut begin = 0;
        while at_moment(way, begin, None, &other, &look, &mut tally) {
            (0..12).for_each(|k| _ = at_moment(way, begin, Some(k), &other, &look, &mut tally));
            begin += 1;
        }
    }
    assert!(tally.nr_moved > 20 && tally.nr_failed > 20, "{} moved, {} failed", tally.nr_moved, tally.nr_failed);
    assert!(tally.nr_overlapped > 40, "the other CPU came in the middle {} times", tally.nr_overlapped);
    tally
}

/// One run; says whether the other CPU came in the middle of the call.
fn at_moment<B: Send>(
    way: (MremapFlags, u64),
    begin: u64,
    k: Option<u64>,
    other: &(impl Fn(&Space<'_>) -> B + Sync),
    look: &impl Fn(&Space<'_>, Result<u64, MremapError>, B),
    tally: &mut Tally,
) -> bool {
    let cpus = TwoCpus::new(ARENA);
    let vm = &cpus.vm;
    let before = RefCell::default();
    let prepare = |space: &Space<'_>| {
        prepare(space);
        unmap_target(space, way);
        before.replace(maps(space));
        assert_eq!(space.mmap(TO, PAGE, RW, PRIVATE | FIXED), Ok(TO));
        vm.fail_allocation(k);
    };
    let overlapped = cpus.play(
        begin,
        prepare,
        |space| call(space, way),
        other,
        |space, moved, seen| {
            vm.fail_allocation(None);
            let at = moved.unwrap_or(FROM);
            assert_eq!(byte(space, at + OLD), Some(1), "{moved:?}: what was written before the call");
            match moved {
                Ok(_) => tally.nr_moved += 1,
                Err(error) => {
                    tally.nr_failed += 1;
                    assert!(matches!(error, MremapError::OutOfFrames(_)), "{error}");
                    // Of a fixed target nothing is there any more, unless that failed.
                    if maps(space) != *before.borrow() {
                        space.munmap(TO, PAGE).unwrap();
                    }
                    assert_eq!(maps(space), *before.borrow(), "the mappings are as they were");
                }
            }
            look(space, moved, seen);
        },
    );
    tally.nr_overlapped += u64::from(overlapped);
    tally.nr_waited += vm.event(Event::Waited);
    overlapped
}

/// Where a page of the source is now, if it was written there.
fn is_there(space: &Space<'_>, moved: Result<u64, MremapError>, value: u8) -> bool {
    let at_target = moved.is_ok_and(|at| byte(space, at + NEW) == Some(value));
    at_target || byte(space, FROM + NEW) == Some(value)
}

/// A store that is over is in memory, before or after the move; and where nothing
/// moved, nothing was refused.
fn is_kept_during_the_call(store: impl Fn(&Space<'_>, u64) -> Result<(), AccessError> + Sync) {
    let tally = at_each_moment(
        |space| store(space, FROM + NEW),
        |space, moved, stored| match stored {
            Ok(()) => assert!(is_there(space, moved, 42), "{moved:?}: a store is lost"),
            Err(AccessError { fault: FaultError::OutOfFrames, .. }) => {}
            Err(error) => assert!(moved.is_ok(), "{error} of a mapping that never went"),
        },
    );
    assert!(tally.nr_waited > 0, "no store met a moving mapping");
}

#[test]
fn a_store_during_the_call_is_kept() {
    is_kept_during_the_call(|space, at| space.write(at, &[42]));
}

/// The same by a debugger, which asks for no right.
#[test]
fn a_forced_store_during_the_call_is_kept() {
    is_kept_during_the_call(|space, at| space.write_forced(at, &[42]));
}

/// A refusal says what the mapping is, not that it moves.
#[test]
fn a_fetch_is_refused_as_before() {
    at_each_moment(
        |space| space.handle_fault(FROM + NEW, Access::Exec),
        |_, moved, fetched| match fetched {
            Err(FaultError::NoRights) => {}
            Err(FaultError::NotMapped) => assert!(moved.is_ok()),
            other => panic!("{other:?}"),
        },
    );
}

/// A page that is populated during the call stays, and no report shows a mapping
/// that is under way.
#[test]
fn populating_and_looking_during_the_call() {
    at_each_moment(
        |space| {
            let seen = space.vma(FROM + NEW).map(|vma| without_lock(vma.flags));
            (space.madvise(FROM + NEW, PAGE, POPULATE_WRITE), seen)
        },
        |space, moved, (populated, seen)| {
            let flags = VmaFlags::READ | VmaFlags::WRITE;
            assert!(seen.is_none_or(|seen| seen == flags), "{seen:?}");
            match populated {
                Ok(()) => assert!(is_there(space, moved, 0)),
                Err(softfault::MadviseError::OutOfFrames(_)) => {}
                Err(error) => assert!(moved.is_ok(), "{error} of a mapping that never went"),
            }
            assert!(moved.is_ok() || seen.is_some(), "a mapping that never went was not there");
        },
    );
}

/// A pin that was given is of the page that the program sees.
#[test]
fn a_pin_during_the_call_is_of_the_page() {
    at_each_moment(
        |space| {
            let pin = space.pin_page_mut(FROM + OLD, Term::Short);
            pin.map(|pin| pin.write(7, &[9])).map_err(|error| error.errno())
        },
        |space, moved, pinned| {
            let at = moved.unwrap_or(FROM) + OLD + 7;
            match pinned {
                // With DONTUNMAP it may be the page that came in its place.
                Ok(()) => assert!(byte(space, at) == Some(9) || byte(space, FROM + OLD + 7) == Some(9)),
                Err(_) => assert!(moved.is_ok(), "a page that never went could not be pinned"),
            }
        },
    );
}

/// Another call that edits the tree waits for the whole of this one.
#[test]
fn other_operations_wait_for_the_call() {
    at_each_moment(
        |space| {
            let mut seen = Vec::new();
            space.maps(&mut |vma| seen.push(without_lock(vma.flags)));
            (seen, space.munlock(FROM - PAGE, PAGE))
        },
        |_, _, (seen, unlocked)| {
            assert!(seen.iter().all(|flags| *flags == VmaFlags::READ | VmaFlags::WRITE), "{seen:?}");
            assert!(matches!(unlocked, Ok(()) | Err(softfault::MlockError::OutOfFrames(_))));
        },
    );
}

/// Several mappings in one call: each has moved whole or not at all, with its
/// pages, guards and rights.
#[test]
fn several_mappings_in_one_call() {
    const GUARD: u64 = 2 * SPAN + 9 * PAGE;
    const ALL: u64 = 3 * SPAN;
    let (mut nr_moved, mut nr_parts, mut nr_refused) = (0, 0, 0);
    for begin in 0..40 {
        for k in (0..24).map(Some).chain([None]) {
            let cpus = TwoCpus::new(ARENA);
            let vm = &cpus.vm;
            let prepare = |space: &Space<'_>| {
                for (i, prot, kind) in [(0, RW, PRIVATE), (1, READ, SHARED), (2, RW, PRIVATE)] {
                    let at = FROM + i * SPAN;
                    assert_eq!(space.mmap(at, SPAN, RW, kind | FIXED), Ok(at));
                    space.write(at + PAGE, &[i as u8 + 1]).unwrap();
                    space.mprotect(at, SPAN, prot).unwrap();
                }
                space.madvise(FROM + GUARD, PAGE, GUARD_INSTALL).unwrap();
                vm.fail_allocation(k);
            };
            let call = |space: &Space<'_>| space.mremap(FROM, ALL, ALL, MAYMOVE | MREMAP_FIXED, TO);
            let store = |space: &Space<'_>| space.write(FROM + 2 * SPAN + NEW, &[42]);
            cpus.play(begin, prepare, call, store, |space, moved, stored| {
                vm.fail_allocation(None);
                let is_away = [0, 1, 2].map(|i| space.vma(TO + i * SPAN).is_some());
                let nr_away = is_away.iter().filter(|away| **away).count();
                assert_eq!(moved.is_ok(), nr_away == 3, "{moved:?}: {is_away:?}");
                nr_moved += u64::from(nr_away == 3);
                nr_parts += u64::from(nr_away == 1 || nr_away == 2);
                nr_refused += u64::from(nr_away == 0);
                for i in 0..3 {
                    let (there, gone) = if is_away[i as usize] { (TO, FROM) } else { (FROM, TO) };
                    assert!(space.vma(gone + i * SPAN).is_none(), "mapping {i} is in both places");
                    assert_eq!(byte(space, there + i * SPAN + PAGE), Some(i as u8 + 1), "mapping {i}");
                    let may_write = space.vma(there + i * SPAN).unwrap().flags.contains(VmaFlags::WRITE);
                    assert_eq!(may_write, i != 1);
                }
                let third = if is_away[2] { TO } else { FROM };
                assert_eq!(space.handle_fault(third + GUARD, Access::Read), Err(FaultError::Guard));
                if stored.is_ok() {
                    assert_eq!(byte(space, third + 2 * SPAN + NEW), Some(42), "a store is lost");
                }
            });
        }
    }
    assert!(nr_moved > 20 && nr_parts > 20 && nr_refused > 20, "{nr_moved} {nr_parts} {nr_refused}");
}

/// Huge pages that somebody splits from outside at each moment of the move, to an
/// aligned place and to another one.
#[test]
fn huge_pages_that_are_split_meanwhile() {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    let (mut nr_moved, mut nr_failed, mut nr_overlapped) = (0, 0, 0);
    for to in [TO, TO + 5 * PAGE] {
        for begin in 0..30 {
            for k in [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(6), Some(8)] {
                let cpus = TwoCpus::over(huge::vm(2, 32 << 20, thp));
                let vm = &cpus.vm;
                let frame = AtomicU32::new(0);
                let prepare = |space: &Space<'_>| {
                    assert_eq!(space.mmap(FROM, LEN, RW, PRIVATE | FIXED), Ok(FROM));
                    (0..1024).for_each(|page| space.write(FROM + page * PAGE, &[page as u8]).unwrap());
                    assert_eq!(huge::huge_pages(space), 2);
                    frame.store(space.translate_at_rest(FROM + SPAN).unwrap().pfn.0, SeqCst);
                    vm.fail_allocation(k);
                };
                let call = |space: &Space<'_>| space.mremap(FROM, LEN, LEN, MAYMOVE | MREMAP_FIXED, to);
                let split = |_: &Space<'_>| vm.split_folio(Pfn(frame.load(SeqCst)));
                let overlapped = cpus.play(begin, prepare, call, split, |space, moved, ()| {
                    vm.fail_allocation(None);
                    *(if moved.is_ok() { &mut nr_moved } else { &mut nr_failed }) += 1;
                    let at = moved.unwrap_or(FROM);
                    (0..1024).for_each(|page| assert_eq!(byte(space, at + page * PAGE), Some(page as u8)));
                });
                nr_overlapped += u64::from(overlapped);
            }
        }
    }
    assert!(nr_moved > 20 && nr_failed > 20, "{nr_moved} moved, {nr_failed} failed");
    assert!(nr_overlapped > 20, "the split came in the middle {nr_overlapped} times");
}
