//! The search for room against looking at every page.

use super::super::{Direction, GapRequest, Tree, Txn};
use super::*;

fn by_hand(map: &Map, request: &GapRequest) -> Option<Vpn> {
    let fits = |start: &u64| {
        let align = request.align_pages.max(1);
        let range = PageRange::new(Vpn(*start), Vpn(start + request.nr_pages));
        range.end <= request.window.end
            && start % align == request.skip_pages % align
            && overlapping(map, range).is_none()
    };
    let mut starts = request.window.start.0..request.window.end.0;
    match request.direction {
        _ if request.nr_pages == 0 => None,
        Direction::TopDown => starts.rev().find(fits).map(Vpn),
        Direction::BottomUp => starts.find(fits).map(Vpn),
    }
}

fn random_request(rng: &mut Rng, nr_pages: u64) -> GapRequest {
    let start = rng.below(nr_pages);
    let window = match rng.below(3) {
        0 => PageRange::new(Vpn(0), Vpn(nr_pages + 50)),
        _ => PageRange::new(Vpn(start), Vpn(start + rng.below(nr_pages - start + 60))),
    };
    GapRequest {
        window,
        nr_pages: rng.below(12),
        align_pages: [0, 1, 2, 4, 8, 512, 3][rng.below(7) as usize],
        skip_pages: rng.below(10),
        direction: if rng.one_in(2) { Direction::TopDown } else { Direction::BottomUp },
    }
}

#[test]
fn every_answer_is_what_looking_at_each_page_gives() {
    let mut rng = Rng(3);
    let (mut nr_found, mut nr_none) = (0, 0);
    for nr_pages in [1, 40, 600, 4_000] {
        for _ in 0..6 {
            let (arena, root) = ground(500);
            let tree = Tree::new(&arena, &root);
            let mut map = Map::new();
            let mut txn = Txn::begin(tree);
            for _ in 0..nr_pages / 3 {
                let start = 5 + rng.below(nr_pages);
                let new = vma(start, start + 1 + rng.below(4), 0);
                if overlapping(&map, new.range).is_none() {
                    txn.insert(new, &mut arena.source()).unwrap();
                    map.insert(start, new);
                }
            }
            txn.publish().free();
            for _ in 0..150 {
                let request = random_request(&mut rng, nr_pages);
                let found = tree.snapshot().find_gap(&request);
                assert_eq!(found, by_hand(&map, &request), "{request:?}");
                *if found.is_some() { &mut nr_found } else { &mut nr_none } += 1;
            }
        }
    }
    assert!(nr_found > 500 && nr_none > 500, "one-sided: {nr_found} found, {nr_none} not");
}

/// The answer, and how many nodes were entered for it.
fn counted(tree: Tree<'_, Arena>, request: &GapRequest) -> (Option<Vpn>, u64) {
    let mut nr_nodes_left = 10_000;
    let found = tree.snapshot().find_gap_within(request, &mut nr_nodes_left);
    (found, 10_000 - nr_nodes_left)
}

/// ```text
///   A*B*C*D ... *E*****F*G*H ...   the only hole of five among 20,000 of one
/// ```
#[test]
fn the_one_large_hole_is_found_in_few_nodes() {
    let (arena, root) = ground(2_000);
    let tree = Tree::new(&arena, &root);
    fill(tree, 20_000);
    let mut txn = Txn::begin(tree);
    for start in [20_000, 20_002] {
        assert!(txn.remove(Vpn(start), &mut arena.source()).unwrap().is_some());
    }
    txn.publish().free();
    let window = PageRange::new(Vpn(10), Vpn(40_000));
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let request = GapRequest::new(window, 5, direction);
        assert_eq!(counted(tree, &request), (Some(Vpn(19_999)), 4));
        // The window ends in the middle of it: nothing, found out as fast.
        let request = GapRequest { window: PageRange::new(Vpn(10), Vpn(20_003)), ..request };
        assert_eq!(counted(tree, &request), (None, 4));
        // Any hole would do, and none is in the window.
        let request = GapRequest::new(PageRange::new(Vpn(30_000), Vpn(30_001)), 1, direction);
        let (found, nr_nodes) = counted(tree, &request);
        assert!(found.is_none() && nr_nodes <= 4, "{nr_nodes} nodes");
    }
}

/// The bound is the number of nodes there are, so a search that enters all of them must get through.
#[test]
fn a_search_needs_no_more_nodes_than_it_enters() {
    let (arena, root) = ground(100);
    let tree = Tree::new(&arena, &root);
    fill(tree, 1_000);
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let request = GapRequest::new(PageRange::new(Vpn(10), Vpn(2_009)), 1, direction);
        let (found, nr_nodes) = counted(tree, &request);
        assert!(found.is_some() && nr_nodes > 1, "{nr_nodes} nodes");
        assert_eq!(tree.snapshot().find_gap_within(&request, &mut { nr_nodes }), found);
        assert_ne!(tree.snapshot().find_gap_within(&request, &mut (nr_nodes - 1)), found, "the leaf is not entered");
    }
}

#[test]
fn the_ends_of_the_address_space_do_not_wrap() {
    let (arena, root) = ground(10);
    let tree = Tree::new(&arena, &root);
    let whole = |n, direction| GapRequest::new(ALL, n, direction);
    assert_eq!(tree.snapshot().find_gap(&whole(u64::MAX, Direction::TopDown)), Some(Vpn(0)));
    let mut txn = Txn::begin(tree);
    txn.insert(vma(u64::MAX - 2, u64::MAX, 0), &mut arena.source()).unwrap();
    txn.insert(vma(0, 3, 0), &mut arena.source()).unwrap();
    txn.publish().free();
    assert_eq!(tree.snapshot().find_gap(&whole(u64::MAX, Direction::TopDown)), None);
    assert_eq!(tree.snapshot().find_gap(&whole(1, Direction::TopDown)), Some(Vpn(u64::MAX - 3)));
    assert_eq!(tree.snapshot().find_gap(&whole(1, Direction::BottomUp)), Some(Vpn(3)));
    let aligned = GapRequest { align_pages: u64::MAX, skip_pages: 5, ..whole(2, Direction::TopDown) };
    assert_eq!(tree.snapshot().find_gap(&aligned), Some(Vpn(5)));
}
