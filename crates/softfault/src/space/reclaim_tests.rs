//! A refused call starts again only after frames were given back, and not for ever.

use super::nr_to_free;
use crate::addr::Order;
use crate::frame::{Fill, OutOfFrames};
use crate::linux::{Advice, MapFlags, MremapFlags};
use crate::policy::huge::Enabled;
use crate::space::vm::Shortage;
use crate::space::{AddressSpace, Vm};
use crate::testing::Plain;
use crate::testing::{FIXED_PRIVATE, RW, vm};
use crate::tunables::Tunables;
use crate::tunables::huge::{HugeKnobs, KhugepagedKnobs};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

#[path = "reclaim_callers_tests.rs"]
mod callers;
#[path = "reclaim_sweep_tests.rs"]
mod sweep;

const AT: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;

fn tunables() -> Tunables {
    let khugepaged = KhugepagedKnobs { max_ptes_none: 100, ..HugeKnobs::DEFAULT.khugepaged };
    let thp = HugeKnobs { enabled: Enabled::Always, khugepaged, ..HugeKnobs::DEFAULT };
    Tunables { thp, ..Tunables::default() }
}

/// The next one goes on where it ended.
#[test]
fn who_is_refused_looks_at_some_blocks() {
    let vm = vm(32 * 512, tunables().with_shrink_blocks_direct(10));
    for nr_looked_at in [10, 20, 30] {
        let refused = vm.with_reclaim(&mut || Err::<(), _>(OutOfFrames::Frame));
        assert_eq!((refused, vm.underused_cursor.get()), (Err(OutOfFrames::Frame), nr_looked_at));
    }
}

/// Instead of splitting huge pages: from now on there are frames.
fn find_frames(vm: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.fail_allocation(None);
    1
}

/// A huge page that is mostly zeroes is there again before each attempt.
#[test]
fn an_operation_starts_again_three_times() {
    let vm = vm(4096, tunables());
    let space = vm.new_space().unwrap();
    let mut nr_attempts = 0;
    let refused = vm.with_reclaim(&mut || {
        nr_attempts += 1;
        space.munmap(AT, HUGE).unwrap();
        space.mmap(AT, HUGE, RW, FIXED_PRIVATE).unwrap();
        space.write(AT, &[1]).unwrap();
        assert_eq!(space.rss_pages().anon_huge, 512);
        Err::<(), _>(OutOfFrames::Frame)
    });
    assert_eq!((refused, nr_attempts), (Err(OutOfFrames::Frame), 4));
}

#[test]
fn nothing_to_give_back_is_no_reason_to_start_again() {
    let vm = vm(4096, tunables());
    let mut nr_attempts = 0;
    let refused = vm.with_reclaim(&mut || {
        nr_attempts += 1;
        Err::<(), _>(OutOfFrames::Frame)
    });
    assert_eq!((refused, nr_attempts), (Err(OutOfFrames::Frame), 1));
}

/// Two are refused; the one that comes second finds no huge page to split any more, and
/// all the frames that the first one gave back.
#[test]
fn whoever_is_refused_starts_again_after_the_reclaim_of_another() {
    let vm = vm(4096, tunables());
    let space = vm.new_space().unwrap();
    space.mmap(AT, HUGE, RW, FIXED_PRIVATE).unwrap();
    space.write(AT, &[1]).unwrap();
    let mut nr_attempts = [0; 2];
    let done = vm.with_reclaim(&mut || {
        nr_attempts[0] += 1;
        if nr_attempts[0] > 1 {
            return Ok(());
        }
        vm.with_reclaim(&mut || {
            nr_attempts[1] += 1;
            if nr_attempts[1] > 1 { Ok(()) } else { Err(OutOfFrames::Frame) }
        })?;
        Err(OutOfFrames::Frame)
    });
    assert_eq!((done, nr_attempts), (Ok(()), [2, 2]));
    assert_eq!(space.rss_pages().anon_huge, 0);
}

/// Others are refused one frame each time, which one huge page gives; the caller needs those
/// of eight.
#[test]
fn reclaims_of_others_do_not_use_up_all_attempts() {
    const NR_HUGE: u64 = 8;
    let vm = vm(8192, tunables());
    let space = vm.new_space().unwrap();
    space.mmap(AT, NR_HUGE * HUGE, RW, FIXED_PRIVATE).unwrap();
    (0..NR_HUGE).for_each(|i| space.write(AT + i * HUGE, &[1]).unwrap());
    let is_enough = || space.rss_pages().anon_huge == 0;
    let mut nr_attempts = 0;
    let done = vm.with_reclaim(&mut || {
        nr_attempts += 1;
        if is_enough() {
            return Ok(());
        }
        let mut is_again = false;
        vm.with_reclaim(&mut || {
            if core::mem::replace(&mut is_again, true) { Ok(()) } else { Err(OutOfFrames::frames(1)) }
        })?;
        Err(OutOfFrames::frames(NR_HUGE * 500))
    });
    // The first one starts again for what the other gave back, the second one reclaims.
    assert_eq!((done, nr_attempts), (Ok(()), 3));
}

#[test]
fn a_stack_grows_after_reclaim() {
    let mut vm = vm(4096, Tunables::default());
    vm.reclaim.shrink = find_frames;
    let space = vm.new_space().unwrap();
    space.mmap(AT, 4096, RW, FIXED_PRIVATE | MapFlags::GROWSDOWN).unwrap();
    // The pool of nodes is empty at some of them.
    for i in 1..100 {
        space.mmap(2 * AT + i * 8192, 4096, RW, FIXED_PRIVATE).unwrap();
        vm.steal_caches();
        vm.fail_allocation(Some(0));
        space.write(AT - i * 4096, &[1]).unwrap();
        vm.fail_allocation(None);
    }
}

std::thread_local! {
    static SPACE: Cell<Option<&'static AddressSpace<'static, Plain>>> = const { Cell::new(None) };
    static HAS_MAPPED: Cell<bool> = const { Cell::new(false) };
}

const TARGET: u64 = 8 << 30;

/// Meanwhile another thread maps memory where the target was.
fn let_another_map(vm: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.fail_allocation(None);
    let space = SPACE.get().unwrap();
    if space.mmap(TARGET, 4096, RW, FIXED_PRIVATE | MapFlags::FIXED_NOREPLACE).is_ok() {
        space.write(TARGET, &[7]).unwrap();
        HAS_MAPPED.set(true);
    }
    1
}

/// The first attempt has unmapped the target. A later mapping there is not the call's.
#[test]
fn what_a_move_cleared_is_not_cleared_again() {
    let mut nr_mapped = 0;
    for (nr_given, new_len) in (0..8).flat_map(|n| [(n, 8192), (n, 4096)]) {
        let mut vm = vm(4096, Tunables::default());
        vm.reclaim.shrink = let_another_map;
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm));
        let space: &AddressSpace<'_, _> = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(AT, 8192, RW, FIXED_PRIVATE).unwrap();
        space.write(AT, &[1]).unwrap();
        space.mmap(TARGET, 8192, RW, FIXED_PRIVATE).unwrap();
        SPACE.set(Some(space));
        HAS_MAPPED.set(false);
        vm.fail_allocation(Some(nr_given));
        let moved = space.mremap(AT, 8192, new_len, MremapFlags::MAYMOVE | MremapFlags::FIXED, TARGET);
        vm.fail_allocation(None);
        let mut byte = [0];
        space.read(TARGET, &mut byte).unwrap();
        let has_mapped = HAS_MAPPED.get();
        assert_eq!((moved.is_err(), byte), if has_mapped { (true, [7]) } else { (false, [1]) });
        nr_mapped += u32::from(has_mapped);
    }
    assert!(nr_mapped > 0, "no attempt was refused after the target was free");
}

/// The same, where the pages were that the call has cut off.
fn let_another_map_behind(vm: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.fail_allocation(None);
    let space = SPACE.get().unwrap();
    if space.mmap(AT + 4096, 4096, RW, FIXED_PRIVATE | MapFlags::FIXED_NOREPLACE).is_ok() {
        space.write(AT + 4096, &[7]).unwrap();
        HAS_MAPPED.set(true);
    }
    1
}

/// The first attempt has unmapped what lies behind the new length.
#[test]
fn what_a_move_cut_off_is_not_cut_off_again() {
    let mut nr_mapped = 0;
    for nr_given in 0..12 {
        let mut vm = vm(4096, Tunables::default());
        vm.reclaim.shrink = let_another_map_behind;
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm));
        let space: &AddressSpace<'_, _> = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(AT, 8192, RW, FIXED_PRIVATE).unwrap();
        space.write(AT, &[1]).unwrap();
        SPACE.set(Some(space));
        HAS_MAPPED.set(false);
        vm.fail_allocation(Some(nr_given));
        let moved = space.mremap(AT, 8192, 4096, MremapFlags::MAYMOVE | MremapFlags::FIXED, TARGET);
        vm.fail_allocation(None);
        let mut byte = [0];
        space.read(TARGET, &mut byte).unwrap();
        assert_eq!((moved, byte), (Ok(TARGET), [1]));
        if HAS_MAPPED.get() {
            space.read(AT + 4096, &mut byte).unwrap();
            assert_eq!(byte, [7], "given {nr_given}");
            nr_mapped += 1;
        }
    }
    assert!(nr_mapped > 0, "no attempt was refused after it had cut");
}

std::thread_local! {
    static ASKED_FOR: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Finds frames, and notes how many were asked for.
fn note_the_shortage(vm: &Vm<Plain>, _nr_blocks: u64, nr_frames: u64, _: Shortage) -> u64 {
    vm.fail_allocation(None);
    ASKED_FOR.with_borrow_mut(|all| all.push(nr_frames));
    1
}

/// The frames that reclaim is asked for when the first, the second, ... allocation of `call` fails.
fn shortages_of(prepare: &dyn Fn(&AddressSpace<'_, Plain>), call: &dyn Fn(&AddressSpace<'_, Plain>)) -> Vec<u64> {
    ASKED_FOR.take();
    let nr_given = 0..8;
    nr_given.for_each(|nr_given| {
        let mut vm = vm(4096, Tunables::default());
        vm.reclaim.shrink = note_the_shortage;
        let space = vm.new_space().unwrap();
        space.mmap(AT, 3 * HUGE, RW, FIXED_PRIVATE).unwrap();
        (0..3).for_each(|i| space.write(AT + i * HUGE, &[1]).unwrap());
        prepare(&space);
        vm.steal_caches();
        vm.fail_allocation(Some(nr_given));
        call(&space);
        vm.fail_allocation(None);
    });
    ASKED_FOR.take()
}

/// Three leaf tables, and two or three above them.
const FAR: u64 = 1 << 45;

#[test]
fn a_move_asks_for_the_tables_that_it_lacks() {
    let fixed = MremapFlags::MAYMOVE | MremapFlags::FIXED;
    let asked = shortages_of(&|_| (), &|space| {
        assert_eq!(space.mremap(AT, 3 * HUGE, 3 * HUGE, fixed, FAR), Ok(FAR));
    });
    // Of nodes it is not known how many.
    assert!(asked.iter().all(|nr| [5, u64::MAX].contains(nr)), "{asked:?}");
    assert_eq!(asked.iter().filter(|nr| **nr == 5).count(), 5, "each of the tables was refused once: {asked:?}");
}

#[test]
fn guards_ask_for_the_tables_that_they_lack() {
    let prepare = |space: &AddressSpace<'_, _>| {
        space.mmap(FAR, 4 * HUGE, RW, FIXED_PRIVATE).unwrap();
        // The mark on the VMA is there, and the upper tables.
        space.madvise(FAR + 3 * HUGE, 4096, Advice::GuardInstall).unwrap();
    };
    let asked = shortages_of(&prepare, &|space| {
        assert_eq!(space.madvise(FAR, 3 * HUGE, Advice::GuardInstall), Ok(()));
    });
    assert_eq!(asked, [3, 3, 3], "each of the tables was refused once");
}

#[test]
fn a_reclaim_ends_when_there_is_what_was_asked_for() {
    let of = |refused| nr_to_free(refused, 1000);
    assert_eq!(of(OutOfFrames::Frame), Some(u64::MAX));
    assert_eq!(of(OutOfFrames::frames(1000)), Some(1000));
    assert_eq!(of(OutOfFrames::frames(1001)), None);
    assert_eq!(of(OutOfFrames::frames(1 << 40)), None);
    assert_eq!(nr_to_free(OutOfFrames::frames(1 << 40), u64::from(u32::MAX) - 1), None, "of the largest machine");
    assert_eq!(of(OutOfFrames::Block(Order(9))), Some(u64::MAX));
    assert_eq!(of(OutOfFrames::Block(Order(10))), None);
}

/// The next fault goes on where one reaction found frames and memory is still short. One that
/// finds none leaves it to the CPU that begins the next block.
#[test]
fn a_reaction_that_finds_frames_is_followed_by_another() {
    let mut vm = vm(4096, Tunables { watermark_scale_factor: 3000, ..tunables() });
    vm.reclaim.shrink = note_the_shortage;
    let react = |vm: &Vm<Plain>| {
        vm.frames.is_low.set(1);
        vm.reclaim_if_low();
        (ASKED_FOR.take(), vm.frames.is_low.get())
    };
    let enough = 4096 - vm.nr_free_pages();
    assert!(vm.watermarks().high_pages < 4096 - enough);
    assert_eq!(react(&vm), (Vec::new(), 0), "enough is free");
    let taken: Vec<_> = (0..2048).map(|_| vm.obtain(Fill::Raw).unwrap()).collect();
    vm.steal_caches();
    let nr_missing = vm.watermarks().high_pages - vm.nr_free_pages();
    assert_eq!(react(&vm), (std::vec![nr_missing], 1));
    vm.reclaim.shrink = |_, _, _, _| 0;
    assert_eq!(react(&vm).1, 0, "nothing is found");
    taken.into_iter().for_each(|pfn| vm.give_back(pfn, Fill::Raw));
}
