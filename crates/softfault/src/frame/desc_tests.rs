//! The fields of a descriptor, and their limits.

use super::*;

#[test]
fn fields_do_not_overlap() {
    let state = FrameState(FrameKind::Anon as u64 | (3 * MAP_ONE) | (5 * PIN_ONE) | (0xf << 4));
    assert_eq!((state.kind(), state.nr_maps(), state.pins()), (FrameKind::Anon, 3, 5));
    assert_eq!(size_of::<FrameDesc>(), 32);
}

fn desc(state: u64) -> FrameDesc {
    FrameDesc { state: Word::new(state), owner: Word::new(0), index: Word::new(0), link: Word::new(0) }
}

/// The margin lies below the limit: the count can neither wrap nor be missed.
#[test]
fn pins_are_refused_before_they_overflow() {
    let full = desc(FrameKind::Anon as u64 | MAP_ONE | ((PINS_MAX - MAX_CPUS as u64) * PIN_ONE));
    assert_eq!(full.pin_raise(), Err(PinsFull));
    assert!(!full.pin_drop());
    assert_eq!(full.pin_raise().map(FrameState::pins), Ok(PINS_MAX - MAX_CPUS as u64 - 1));
}

/// A refused raise changes nothing, and what splits add has room.
#[test]
fn mappings_are_refused_before_they_reach_the_pins() {
    let full = desc(FrameKind::Anon as u64 + (MAPS_LIMIT - 1) * MAP_ONE + 5 * PIN_ONE);
    assert_eq!(full.map_raise().map(FrameState::nr_maps), Ok(MAPS_LIMIT - 1));
    let before = full.state();
    assert_eq!((full.map_raise(), full.state()), (Err(MapsFull), before));
    full.state.fetch_add(u64::from(u32::MAX) * MAP_ONE, Ordering::Relaxed);
    full.map_raise_split();
    assert_eq!((full.state().nr_maps(), full.state().pins()), (MAPS_LIMIT + (1 << 32), 5));
    assert_eq!((full.state().kind(), full.state().is_orphan()), (FrameKind::Anon, false));
}

/// The last holder has the frame: entry or pin, and of an object's page
/// only once the object has lost it.
#[test]
fn the_last_one_frees() {
    let private = desc(FrameKind::Anon as u64 | MAP_ONE | PIN_ONE);
    assert_eq!((private.map_drop(), private.pin_drop()), (false, true));
    let private = desc(FrameKind::Anon as u64 | MAP_ONE | PIN_ONE);
    assert_eq!((private.pin_drop(), private.map_drop()), (false, true));
    let shared = desc(FrameKind::Shared as u64 | (2 * PIN_ONE));
    assert_eq!((shared.pin_drop(), shared.orphan(), shared.pin_drop()), (false, false, true));
    let derived_later = desc(PIN_ONE);
    assert!(!derived_later.pin_drop(), "a frame inside a whole folio is the folio's");
}
