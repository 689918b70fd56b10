//! Slots as their users see them, one after the other.

use super::*;
use crate::frame::Fill;
use crate::testing;
use crate::tunables::Tunables;
use std::vec::Vec;

const FRAME_OF_PAGE: Pfn = Pfn(77);
const NOTHING: Spared = Spared(None);
const THE_FRAME: Spared = Spared(Some(FRAME_OF_PAGE));

/// An area of so many slots over a frame.
fn with_area(nr_slots: usize, test: impl Fn(&SwapArea)) {
    let vm = testing::vm(64, Tunables::default());
    let (pfn, _held) = vm.obtain_held(Fill::Fixed).unwrap();
    let area = SwapArea::new(FrameArray::over(vm.machine(), pfn, 0, nr_slots));
    test(&area);
    assert_eq!(area.nr_free(), nr_slots as u64);
    (0..nr_slots as u32).for_each(|slot| assert_eq!(area.at_rest(SwapSlot(slot)), Ok((0, None))));
}

fn filled(area: &SwapArea, nr_entries: u64) -> SwapSlot {
    let slot = area.claim().unwrap();
    area.fill(slot, FRAME_OF_PAGE, nr_entries);
    slot
}

#[test]
fn each_slot_has_one_owner() {
    with_area(3, |area| {
        let slots: Vec<_> = (0..3).map(|_| area.claim().unwrap()).collect();
        assert_eq!(slots, [SwapSlot(0), SwapSlot(1), SwapSlot(2)]);
        assert_eq!((area.claim(), area.nr_free()), (None, 0));
        area.unclaim(slots[1]);
        area.unclaim(slots[0]);
        assert_eq!(area.nr_free(), 2);
        assert_eq!([area.claim(), area.claim(), area.claim()], [Some(slots[0]), Some(slots[1]), None]);
        slots.iter().for_each(|slot| area.unclaim(*slot));
    });
}

#[test]
fn the_frame_goes_once_the_page_is_written() {
    with_area(1, |area| {
        let slot = filled(area, 2);
        assert_eq!(area.begin_read(slot), Some(Source::Memory(FRAME_OF_PAGE)));
        assert_eq!(area.end_slot_write(slot, Ok(())), NOTHING, "somebody reads it");
        assert_eq!(area.begin_read(slot), Some(Source::Memory(FRAME_OF_PAGE)), "it is there still");
        assert_eq!(area.end_read(slot, ReadEnd::Entered), NOTHING);
        assert_eq!(area.end_read(slot, ReadEnd::InVain), THE_FRAME);
        assert_eq!(area.at_rest(slot), Ok((1, None)));
        assert_eq!(area.begin_read(slot), Some(Source::Area));
        assert_eq!(area.drop_entry(slot), NOTHING);
        assert_eq!((area.claim(), area.begin_read(slot), area.add_entry(slot)), (None, None, false));
        assert_eq!(area.end_read(slot, ReadEnd::InVain), NOTHING);
    });
}

#[test]
fn nothing_is_lost_that_was_not_written() {
    with_area(1, |area| {
        let slot = filled(area, 1);
        assert_eq!(area.end_slot_write(slot, Err(SwapError)), NOTHING);
        assert_eq!(area.at_rest(slot), Ok((1, Some(FRAME_OF_PAGE))));
        assert!(area.add_entry(slot));
        for left in [NOTHING, THE_FRAME] {
            assert_eq!(area.begin_read(slot), Some(Source::Memory(FRAME_OF_PAGE)));
            assert_eq!(area.end_read(slot, ReadEnd::Entered), left);
        }
    });
}

/// A late reader of a private page finds that the slot is an object's by now. The machine does not read a slot that
/// it writes, nor one that it could not write.
#[test]
fn the_page_of_an_object_is_not_read_before_it_is_written() {
    with_area(1, |area| {
        for written in [Err(SwapError), Ok(())] {
            let slot = area.claim().unwrap();
            area.begin_object(slot);
            assert_eq!(area.begin_read(slot), None, "the machine writes it");
            assert_eq!(area.end_slot_write(slot, written), NOTHING);
            let may_read = written.is_ok();
            assert_eq!(area.begin_read(slot), may_read.then_some(Source::Area));
            assert_eq!(area.drop_entry(slot), NOTHING);
            if may_read {
                assert_eq!((area.claim(), area.end_read(slot, ReadEnd::InVain)), (None, NOTHING));
            }
        }
    });
}

#[test]
fn a_page_that_nobody_needs_stays_until_the_write_is_over() {
    with_area(1, |area| {
        let slot = filled(area, 1);
        assert_eq!(area.drop_entry(slot), NOTHING);
        assert_eq!((area.claim(), area.begin_read(slot), area.add_entry(slot)), (None, None, false));
        assert_eq!(area.end_slot_write(slot, Ok(())), THE_FRAME);
    });
}

#[test]
fn readers_and_entries_do_not_run_into_each_other() {
    with_area(1, |area| {
        let slot = filled(area, u64::from(u32::MAX));
        assert_eq!(area.end_slot_write(slot, Ok(())), THE_FRAME);
        let state = &area.slot(slot).state;
        let before = state.get();
        state.set(before | READERS);
        assert_eq!(area.begin_read(slot), None, "no room for one more");
        assert_eq!(area.at_rest(slot), Err(slot));
        assert_eq!(area.end_read(slot, ReadEnd::InVain), NOTHING);
        assert_eq!(area.begin_read(slot), Some(Source::Area));
        state.set(before);
        assert_eq!(area.at_rest(slot), Ok((u64::from(u32::MAX), None)));
        state.set(before - (ENTRIES - ENTRY));
        assert_eq!(area.drop_entry(slot), NOTHING);
    });
}

/// A CPU that has read the top and its follower, and goes on later, must not take them for the
/// stack that is there now.
#[test]
fn a_change_of_the_stack_is_seen() {
    with_area(2, |area| {
        let slots = [area.claim().unwrap(), area.claim().unwrap()];
        slots.iter().for_each(|slot| area.unclaim(*slot));
        let before = area.free.get();
        let top = area.claim().unwrap();
        area.unclaim(top);
        assert_eq!(area.free.get() as u32, before as u32, "the same slot is on top");
        assert!(area.change_top(before, 0).is_err());
    });
}
