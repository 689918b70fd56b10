//! Ages against a list of the generation of each frame.

use super::block::age::Noted;
use super::generations::{Generation, OLDEST_AGE};
use super::idle::Advance;
use super::runs::BLOCK_WORDS;
use super::want::Fill;
use super::{Content, FrameKind};
use crate::account::Event;
use crate::addr::{Access, BlockId, Order, Pfn};
use crate::check::Broken;
use crate::linux::Advice;
use crate::pin::Term;
use crate::policy::huge::Enabled;
use crate::space::Vm;
use crate::sync::Ordering;
use crate::testing::{FIXED_PRIVATE, Plain, RW, vm};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

const NR_FRAMES: u64 = 4096;

fn advance(vm: &Vm<Plain>) {
    while vm.advance_generation(3) != Advance::Done {}
}

/// A page whose frame was claimed now.
fn page(vm: &Vm<Plain>, kind: FrameKind) -> Pfn {
    vm.steal_caches();
    let pfn = vm.obtain(Fill::Raw).unwrap();
    vm.frames.desc(pfn).assign(kind, u64::from(kind == FrameKind::Anon), 0, 0);
    pfn
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// The generation of each page, as the core ought to know it.
type Model = BTreeMap<Pfn, u64>;

fn nr_idle(model: &Model, now: u64, age: u32) -> u64 {
    model.values().filter(|seen| now - **seen >= u64::from(age)).count() as u64
}

/// One change of memory, or none.
fn change(vm: &Vm<Plain>, model: &mut Model, seed: &mut u64) {
    let now = vm.generation();
    let some = |model: &Model, seed: &mut u64| model.keys().nth(next(seed) as usize % model.len().max(1)).copied();
    match (next(seed) % 4, some(model, seed)) {
        (0, _) if model.len() < 900 => {
            let kind = if next(seed).is_multiple_of(2) { FrameKind::Anon } else { FrameKind::Shared };
            model.insert(page(vm, kind), now);
        }
        (1, Some(pfn)) => {
            vm.frames.note_used(u64::from(pfn.0) & !63, 1 << (pfn.0 % 64));
            model.insert(pfn, now);
        }
        (2, Some(from)) if now.is_multiple_of(2) => {
            let to = page(vm, FrameKind::Anon);
            vm.frames.carry_age(from, to);
            vm.give_back(from, Fill::Raw);
            let seen = model.remove(&from).unwrap();
            model.insert(to, seen);
        }
        (3, Some(pfn)) if next(seed).is_multiple_of(4) => {
            vm.give_back(pfn, Fill::Raw);
            model.remove(&pfn);
        }
        _ => {}
    }
}

/// Frames come, are used, move and go, in each generation and while a pass is in progress.
#[test]
fn ages_agree_with_a_list_of_generations() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let (mut model, mut seed) = (Model::new(), 7);
    // Neither counts.
    page(&vm, FrameKind::Table);
    page(&vm, FrameKind::Meta);
    for now in 0..24 {
        assert_eq!(vm.generation(), now);
        for _ in 0..60 {
            change(&vm, &mut model, &mut seed);
        }
        for age in 0..=OLDEST_AGE + 1 {
            let there = if age > OLDEST_AGE { 0 } else { nr_idle(&model, now, age) };
            assert_eq!(vm.idle_pages(age), there, "of age {age} in generation {now}");
        }
        loop {
            assert_eq!(vm.check_ages(), Ok(()));
            match vm.advance_generation(1) {
                Advance::Done => break,
                Advance::UnderWay { nr_blocks_left } => assert!(nr_blocks_left < 8),
            }
            (0..8).for_each(|_| change(&vm, &mut model, &mut seed));
            assert_eq!(vm.generation(), now);
            for age in 0..OLDEST_AGE {
                assert_eq!(vm.idle_pages(age), nr_idle(&model, now, age), "of age {age} in a pass of {now}");
            }
            assert!(vm.idle_pages(OLDEST_AGE) <= nr_idle(&model, now, OLDEST_AGE), "nothing looks older");
        }
    }
    assert!((0..=OLDEST_AGE).all(|age| nr_idle(&model, 23, age) > nr_idle(&model, 23, age + 1)), "each age was there");
}

/// A frame that was given back long ago is as young as any other when it is claimed: a single
/// one, a batch, a huge frame.
#[test]
fn what_is_claimed_is_young() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let all = [Order(0), Order(4), Order(9)];
    let claim = |order: Order| {
        vm.steal_caches();
        match order {
            Order(0) => vm.obtain(Fill::Zeroed).unwrap(),
            Order(9) => vm.obtain_huge().unwrap().first,
            _ => vm.obtain_batch(order, 0).unwrap(),
        }
    };
    let give_back = |first: Pfn, order: Order| {
        if order == Order(9) {
            vm.frames.folio(first).state.store(0, Ordering::Relaxed);
        }
        vm.release_run(first, order.nr_pages(), Content::Unknown);
    };
    for order in all {
        let mut seen = Vec::new();
        for _ in 0..9 {
            let first = claim(order);
            let frames = first.0..first.0 + order.nr_pages() as u32;
            frames.for_each(|p| vm.frames.desc(Pfn(p)).assign(FrameKind::Anon, 1, 0, 0));
            assert_eq!((vm.idle_pages(0), vm.idle_pages(1)), (order.nr_pages(), 0), "{order:?}");
            (0..2).for_each(|_| advance(&vm));
            assert_eq!((vm.idle_pages(2), vm.idle_pages(3)), (order.nr_pages(), 0));
            (first.0..first.0 + order.nr_pages() as u32).for_each(|p| vm.frames.desc(Pfn(p)).clear());
            give_back(first, order);
            seen.push(first);
        }
        assert!((1..9).any(|i| seen[..i].contains(&seen[i])), "some frames come again");
        assert_eq!(vm.idle_pages(0), 0);
    }
}

/// The lines of memory that is zero and was never used stay as they are, however many
/// generations there are.
#[test]
fn memory_that_was_never_used_is_not_written() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let unused: Vec<BlockId> =
        vm.frames.blocks.names().iter().filter(|b| vm.frames.blocks.at(*b).nr_free() == 512).collect();
    assert!(unused.len() > 4);
    for _ in 0..9 {
        advance(&vm);
        for b in &unused {
            assert!(vm.frames.blocks.at(*b).age.iter().all(|word| word.get() == 0));
        }
    }
}

/// Only what differs is written: a claim in steady state writes no line of ages.
#[test]
fn words_are_written_where_they_differ() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let block = vm.frames.blocks.at(BlockId(5)).data;
    let set = |mask, to| block.set_generation(3, mask, Generation(to), &|| true);
    assert_eq!(set(!0, 0), Noted::Same);
    for (mask, to) in [(1, 1), (1 << 63, 2), (0xff << 28, 3), (!0, 1), (1 << 31, 0)] {
        assert_eq!((set(mask, to), set(mask, to)), (Noted::Written, Noted::Same));
        assert_eq!(block.of_generation(3, Generation(to)) & mask, mask);
    }
    assert_eq!(block.of_generation(3, Generation(0)), 1 << 31);
    assert_eq!(block.of_generation(3, Generation(1)), !(1 << 31));
    let others = (0..BLOCK_WORDS).filter(|w| *w != 3);
    assert!(others.into_iter().all(|w| block.of_generation(w, Generation(0)) == !0));
}

/// A walk is slow between its look at the generation and its note. Another one has noted a use of a
/// later generation meanwhile: the page does not look older than that for a moment.
#[test]
fn a_slow_walk_takes_no_later_note_back() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let pfn = page(&vm, FrameKind::Anon);
    let (block, w, bit) = (vm.frames.blocks.at(BlockId::of(pfn)), pfn.0 as usize / 64 % BLOCK_WORDS, pfn.0 % 64);
    advance(&vm);
    let slow = Generation(1);
    let others = || {
        (0..2).for_each(|_| advance(&vm));
        vm.frames.note_run_used(pfn, 1);
        false
    };
    assert_eq!(block.set_generation(w, 1 << bit, slow, &others), Noted::Outdated);
    assert_eq!((block.generation_of(w, bit), vm.idle_pages(1)), (Generation(3), 0));
}

/// A run of frames that begins and ends inside words.
#[test]
fn runs_cover_words_in_part() {
    let vm = vm(NR_FRAMES, Tunables::default());
    advance(&vm);
    let block = vm.frames.blocks.at(BlockId(2)).data;
    vm.frames.note_run_used(Pfn(2 * 512 + 60), 70);
    let young: Vec<u64> = (0..4).map(|w| block.of_generation(w, Generation(1))).collect();
    assert_eq!(young, vec![0xf << 60, !0, 3, 0]);
}

/// The checker of I47 sees a generation that has not been, and one that a pass has moved away.
#[test]
fn the_checker_sees_wrong_ages() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let pfn = page(&vm, FrameKind::Anon);
    let set = |generation| {
        let (b, w) = (BlockId::of(pfn), pfn.0 as usize / 64 % BLOCK_WORDS);
        vm.frames.blocks.at(b).set_generation(w, 1 << (pfn.0 % 64), Generation(generation), &|| true);
    };
    assert_eq!(vm.check_ages(), Ok(()));
    set(3);
    assert_eq!(vm.check_ages(), Err(Broken::WrongAge(pfn)));
    set(0);
    (0..4).for_each(|_| advance(&vm));
    assert_eq!(vm.check_ages(), Ok(()));
    set(1);
    assert_eq!(vm.check_ages(), Ok(()), "three generations old");
    assert_eq!(
        vm.advance_generation(u64::from(BlockId::of(pfn).0) + 1),
        Advance::UnderWay { nr_blocks_left: 7 - u64::from(BlockId::of(pfn).0) }
    );
    assert_eq!(vm.check_ages(), Ok(()));
    set(1);
    assert_eq!(vm.check_ages(), Err(Broken::WrongAge(pfn)));
    set(2);
    assert_eq!(vm.check_ages(), Ok(()));
}

/// The child's own copy of a pinned page is as old as the page, wherever its frame came from: here
/// from what was counted for tables, which are of any age.
#[test]
fn a_childs_copy_is_as_old_as_the_page() {
    const AT: u64 = 1 << 40;
    const HUGE_BYTES: u64 = 2 << 20;
    let small_pages = HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT };
    let mut nr_copies = 0;
    for nr_free in 4..40 {
        let vm = vm(8192, Tunables { thp: small_pages, ..Tunables::default() });
        let taken: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Fixed).ok()).collect();
        (0..3).for_each(|_| while vm.advance_generation(100) != Advance::Done {});
        taken[..200].iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
        let space = vm.new_space().unwrap();
        space.mmap(AT, HUGE_BYTES, RW, FIXED_PRIVATE).unwrap();
        // Tables that are counted, and are not needed.
        for at in (1..12).map(|i| AT + 4 * i * HUGE_BYTES) {
            space.mmap(at, 4096, RW, FIXED_PRIVATE).unwrap();
            space.madvise(at, 4096, Advice::DontFork).unwrap();
            space.handle_fault(at, Access::Write).unwrap();
        }
        let pin = space.pin_page_mut(AT, Term::Short).unwrap();
        let _rest: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Fixed).ok()).collect();
        taken[3000..3000 + nr_free].iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
        if let Ok(child) = space.fork() {
            nr_copies += vm.event(Event::ForkPinned);
            assert_eq!(vm.idle_pages(1), 0, "{nr_free} free frames");
            drop(child);
        }
        drop(pin);
    }
    assert!(nr_copies > 0);
}
