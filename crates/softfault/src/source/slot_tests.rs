//! The words of folios, one at a time.

use super::super::node::{Below, Node};
use super::*;

#[test]
fn a_word_has_frame_and_order() {
    for (pfn, order) in [(0, 0), (1, 0), (u32::MAX, 0), (u32::MAX - 511, 9), (1 << 18, 18)] {
        let frame = PageFrame { pfn: Pfn(pfn), order: Order(order) };
        assert_eq!(PageFrame::of_word(frame.to_word()), Some(frame));
        assert_eq!(frame.to_word() & (LEAVING | MOVING | FILLING | POISONED | SWAPPED | TRANSIT), 0);
    }
    assert_eq!(PageFrame::of_word(0), None);
    assert_eq!(PageFrame { pfn: Pfn(0x1207), order: Order(3) }.head(), Pfn(0x1200));
}

/// A mark of somebody else's on any page keeps the folio where it is, and stays.
#[test]
fn a_folio_moves_whole_or_not_at_all() {
    let node: [Word; 512] = core::array::from_fn(|_| Word::new(0));
    let slot = |i| PageSlot::new(&node, 0, i);
    let [old, new] = [0x100, 0x200].map(|pfn| PageFrame { pfn: Pfn(pfn), order: Order(2) });
    slot(4).put(old.pfn, old.order);
    node[6].fetch_or(LEAVING, Ordering::Relaxed);
    assert!(!slot(4).begin_to_move(old));
    assert_eq!([4, 5, 7].map(|i| slot(i).page()), [0, 1, 3].map(|by| ObjectPage::Frame(old.next(by))));
    assert!(slot(6).is_leaving() && !slot(6).is_moving());
    node[6].fetch_and(!LEAVING, Ordering::Relaxed);
    assert!(!slot(4).begin_to_move(new) && !slot(4).begin_to_move(PageFrame { order: Order(1), ..old }));
    assert!(slot(4).begin_to_move(old) && !slot(4).begin_to_move(old));
    assert_eq!(slot(7).page(), ObjectPage::Leaving(old.next(3)));
    node[5].fetch_or(LEAVING, Ordering::Relaxed);
    slot(4).end_move(new);
    assert_eq!([4, 6, 7].map(|i| slot(i).page()), [0, 2, 3].map(|by| ObjectPage::Frame(new.next(by))));
    assert_eq!(slot(5).page(), ObjectPage::Leaving(new.next(1)));
    assert!(slot(5).is_leaving() && !slot(5).is_moving());
}

#[test]
fn a_folio_takes_all_of_its_places_or_none() {
    let node: [Word; 512] = core::array::from_fn(|_| Word::new(0));
    let slot = |i| PageSlot::new(&node, 0, i);
    assert!(slot(6).fill(Pfn(70)).is_ok());
    assert!(slot(5).claim(Order(2)).is_err());
    assert_eq!([4, 5, 7].map(|i| slot(i).page()), [ObjectPage::Absent; 3]);
    assert!(slot(9).claim(Order(2)).is_ok());
    assert_eq!(slot(8).page(), ObjectPage::Filling);
    assert!(slot(11).claim(Order::BASE).is_err() && slot(11).fill(Pfn(1)).is_err());
    slot(10).put(Pfn(0x100), Order(2));
    assert_eq!(slot(11).page(), ObjectPage::Frame(PageFrame { pfn: Pfn(0x103), order: Order(2) }));
    assert!(!slot(12).are_missing(1036, 1035..1036) && slot(12).are_missing(1036, 1036..1536));
}

/// Each page of a folio of 2 MiB finds its frame by arithmetic, and a node is no page.
#[test]
fn a_large_folio_is_one_word() {
    let node: [Word; 512] = core::array::from_fn(|_| Word::new(0));
    let slot = |index| PageSlot::new(&node, 1, index);
    assert!(slot(512 * 3 + 7).claim(Order::PMD).is_ok() && slot(512 * 3).claim(Order::PMD).is_err());
    assert!(slot(512 * 3 + 9).fill_node(Pfn(4)).is_err());
    assert_eq!((slot(512 * 4 - 1).page(), slot(512 * 4).page()), (ObjectPage::Filling, ObjectPage::Absent));
    slot(512 * 3).put(Pfn(0x400), Order::PMD);
    let page = PageFrame { pfn: Pfn(0x407), order: Order::PMD };
    assert_eq!((slot(512 * 3 + 7).page(), page.head()), (ObjectPage::Frame(page), Pfn(0x400)));
    assert_eq!((slot(512 * 3 + 7).nr_pages(), slot(512 * 3).nr_pages()), (505, 512));
    let second = PageFrame { pfn: Pfn(0x401), order: Order::PMD };
    slot(512 * 3 + 1).begin_to_leave(second);
    assert_eq!(slot(512 * 3 + 7).page(), ObjectPage::Leaving(page));
    slot(512 * 3).put_node(Pfn(7));
    assert_eq!(slot(512 * 3).page(), ObjectPage::Filling, "look again");
    assert!(
        matches!(Below::of(node[3].get()), Below::Node(Node { pfn: Pfn(7), .. }))
            && matches!(Below::of(0), Below::Nothing)
    );
    assert!([FILLING, 1 | 9 << ORDER_SHIFT].iter().all(|word| matches!(Below::of(*word), Below::Folio)));
}

/// The remover has read a word of another folio than the one that is there now, or of one that is being moved away.
#[test]
fn a_folio_that_was_replaced_is_not_marked_in_part() {
    let node: [Word; 512] = core::array::from_fn(|_| Word::new(0));
    let slot = |i| PageSlot::new(&node, 0, i);
    let frame = |pfn, order| PageFrame { pfn: Pfn(pfn), order: Order(order) };
    let words = || [4, 5, 6, 7].map(|i| node[i].get());
    let stale = |at: u64, was| {
        let before = words();
        assert!(!slot(at).begin_to_leave(was));
        assert_eq!(words(), before);
    };
    slot(4).put(Pfn(32), Order(2));
    [(4, frame(32, 0)), (5, frame(33, 1)), (4, frame(40, 2))].iter().for_each(|(at, was)| stale(*at, *was));
    // The first words are those that were seen.
    slot(6).put(Pfn(50), Order(1));
    stale(5, frame(33, 2));
    slot(6).empty_all(Order(1));
    stale(4, frame(32, 2));
    slot(4).put(Pfn(32), Order(2));
    assert!(slot(6).begin_to_leave(frame(34, 2)) && [4, 5, 6, 7].iter().all(|i| slot(*i).is_leaving()));
}
