//! The tree against a `BTreeMap`, against brute force, and under threads.

extern crate std;

mod arena;
mod build;
mod displaced;
mod failing;
mod faults;
mod gaps;
mod oracle;
mod threads;

use super::{Retired, Tree, TreeRoot};
use crate::addr::{PageRange, Vpn};
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use arena::Arena;
use core::ops::ControlFlow;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Random numbers that repeat (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const ALL: PageRange = PageRange { start: Vpn(0), end: Vpn(u64::MAX) };

/// A VMA whose other words follow from `start..end` and `salt`, so that one put
/// together from two shows.
fn vma(start: u64, end: u64, salt: u64) -> Vma {
    let mix = Rng(start ^ (end << 20) ^ (salt << 40)).next();
    let index = match mix >> 56 {
        // From no address, from anywhere, where it was first mapped, a little away.
        0 => mix >> 12,
        1..4 => mix % (1 << 44),
        4..64 => start,
        _ => start + 1 + (mix >> 40) % 1000,
    };
    Vma {
        range: PageRange::new(Vpn(start), Vpn(end)),
        flags: VmaFlags::from_bits_retain(mix & 0x3_ffff),
        object: ObjectId(salt),
        pgoff: mix.rotate_left(17),
        index,
    }
}

fn assert_whole(found: &Vma) {
    assert_eq!(*found, vma(found.range.start.0, found.range.end.0, found.object.0));
}

type Map = BTreeMap<u64, Vma>;

fn contents(read: super::Snapshot<'_, Arena>) -> Vec<Vma> {
    let mut all = Vec::new();
    assert_eq!(read.for_each(ALL, &mut |vma| (all.push(vma), ControlFlow::Continue(())).1), ControlFlow::Continue(()));
    all
}

fn assert_same(read: super::Snapshot<'_, Arena>, map: &Map) {
    assert_eq!(read.check_nodes(), Ok(map.len() as u64));
    assert_eq!(contents(read), map.values().copied().collect::<Vec<_>>());
}

/// The VMA of `map` that has a page in common with the range.
fn overlapping(map: &Map, range: PageRange) -> Option<Vma> {
    map.range(..range.end.0).next_back().map(|(_, vma)| *vma).filter(|vma| vma.range.overlaps(&range))
}

/// Fills the tree with `nr_vmas` of one page and one page between them.
fn fill(tree: Tree<'_, Arena>, nr_vmas: u64) -> Map {
    let mut map = Map::new();
    let mut txn = super::Txn::begin(tree);
    for i in 0..nr_vmas {
        let vma = vma(10 + 2 * i, 11 + 2 * i, 0);
        txn.insert(vma, &mut tree.machine.source()).unwrap();
        map.insert(vma.range.start.0, vma);
    }
    txn.publish().free();
    map
}

/// Adds to those that wait for the next grace period.
fn keep<'a>(pending: &mut Option<Retired<'a, Arena>>, new: Retired<'a, Arena>) {
    match pending {
        Some(old) => old.append(new),
        None => *pending = Some(new),
    }
}

/// The arena and root words of a test.
fn ground(nr_frames: u32) -> (Arena, TreeRoot) {
    (Arena::new(nr_frames), TreeRoot::default())
}

/// Flags and object share a word.
#[test]
fn a_record_keeps_all_flags_and_any_object() {
    let (arena, root) = ground(8);
    let tree = Tree::new(&arena, &root);
    let highest = Vma {
        flags: VmaFlags::from_bits_retain(u64::from(u32::MAX)),
        object: ObjectId(u64::from(u32::MAX)),
        ..vma(10, 20, 0)
    };
    let none = Vma { flags: VmaFlags::empty(), object: ObjectId::NONE, ..vma(20, 30, 0) };
    let mut txn = super::Txn::begin(tree);
    txn.insert(highest, &mut arena.source()).unwrap();
    txn.insert(none, &mut arena.source()).unwrap();
    txn.publish().free();
    assert_eq!(contents(tree.snapshot()), [highest, none]);
}
