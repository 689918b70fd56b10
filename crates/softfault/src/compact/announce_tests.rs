//! The number of places in one notice.

use super::*;
use crate::addr::{Access, Order};
use crate::testing::{FIXED_PRIVATE, RW, vm};
use crate::tunables::Tunables;
use std::vec::Vec;

/// The limit holds also where a frame has more entries than a mover would begin with.
#[test]
fn no_more_places_than_there_is_room_for() {
    let vm = vm(4096, Tunables::default());
    let space = vm.new_space().unwrap();
    space.mmap(1 << 30, 4 << 12, RW, FIXED_PRIVATE).unwrap();
    let at = |page: u64| (1 << 30) + (page << 12);
    (0..4).for_each(|page| _ = space.handle_fault(at(page), Access::Write).unwrap());
    let children: Vec<_> = (0..STRETCHES_MAX + 1).map(|_| space.fork().unwrap()).collect();
    let mut subscriptions: Vec<_> = children.iter().map(|child| child.subscribe()).collect();
    let pfn = |page| PageFrame { pfn: space.translate_at_rest(at(page)).unwrap().pfn, order: Order::BASE };
    let mut announced = Announcement::new(&vm, Why::Migrate);
    let too_many = Err(NotAnnounced::Stays(MigrateRefusal::TooManyMaps));
    assert_eq!(announced.find(pfn(0), &mut Steps::unbounded()), too_many);
    assert_eq!(announced.nr, 0);
    assert!(children.iter().all(|child| child.nr_visits() == 0), "visits end with the refusal");
    assert!(children[0].unsubscribe(subscriptions.remove(0)).is_ok());
    assert_eq!(announced.find(pfn(0), &mut Steps::unbounded()), Ok(()));
    assert_eq!((announced.nr, children[1].nr_visits(), children[0].nr_visits()), (STRETCHES_MAX, 1, 0));
    assert_eq!(announced.find(pfn(2), &mut Steps::unbounded()), Err(NotAnnounced::Full));
    assert!(!announced.is_told(children[1].frame, Vpn(at(0) >> 12)), "nothing was told yet");
    announced.tell();
    assert!(announced.is_told(children[1].frame, Vpn(at(0) >> 12)));
    assert!(!announced.is_told(children[1].frame, Vpn(at(1) >> 12)));
    assert!(!announced.is_told(children[0].frame, Vpn(at(0) >> 12)));
    drop(announced);
    assert!(children.iter().all(|child| child.nr_visits() == 0 && child.data.notify.is_at_rest()));
}
