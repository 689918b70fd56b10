//! Random operations on memory of odd shapes: after each few of them all summaries are
//! computed anew, and a count of what is taken says whether a refusal was right (I28, I40).

use super::want::{Content, Fill};
use super::{FreeBatch, HugeFrame};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::space::Vm;
use crate::testing::{Plain, be, vm_of};
use crate::tunables::Tunables;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Frames and CPUs: two blocks, more CPUs than blocks, an end within a block, block groups of
/// one word and one block less and more.
const SHAPES: [(u64, usize); 7] = [
    (2 * 512, 1),
    (3 * 512, 64),
    (4 * 512 + 130, 3),
    (63 * 512, 2),
    (64 * 512, 1),
    (65 * 512, 4),
    (130 * 512 - 1, 512),
];

struct Shape {
    vm: Vm<Plain>,
    nr_cpus: u64,
    live: BTreeMap<u32, Order>,
    nr_live: u64,
    state: u64,
}

impl Shape {
    fn random(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.state >> 33) % n
    }

    fn got(&mut self, first: Pfn, order: Order) {
        assert!(u64::from(first.0).is_multiple_of(order.nr_pages()), "aligned to its size");
        let below = self.live.range(..=first.0).next_back().map_or(0, |(p, o)| p + o.nr_pages() as u32);
        let above = self.live.range(first.0..).next().map_or(u32::MAX, |(p, _)| *p);
        assert!(below <= first.0 && first.0 + order.nr_pages() as u32 <= above, "I12: {first:?} given twice");
        self.live.insert(first.0, order);
        self.nr_live += order.nr_pages();
    }

    fn take(&mut self) {
        let order = Order([0, 0, 2, 4, 5, 6, 7, 8, 9][self.random(9) as usize]);
        let fill = [Fill::Zeroed, Fill::Raw, Fill::Fixed][self.random(3) as usize];
        let found = match order {
            Order::BASE => self.vm.obtain(fill),
            Order::PMD => self.vm.obtain_huge().map(|huge| huge.first),
            _ => self.vm.obtain_batch(order, 0),
        };
        let blocks = &self.vm.frames.blocks;
        match found {
            Ok(first) => self.got(first, order),
            Err(_) if order == Order::BASE => {
                assert_eq!(self.nr_live, self.vm.nr_total_pages.get(), "I28: refused with frames free");
            }
            Err(_) if order == Order::PMD => {
                assert!(blocks.iter().all(|block| block.nr_free_exact() < BLOCK_FRAMES), "I40: a block is denied");
            }
            Err(_) => {}
        }
    }

    fn give_back(&mut self) {
        let from = self.random(self.vm.nr_frames()) as u32;
        let Some((first, order)) = self.live.range(from..).next().map(|(p, o)| (*p, *o)) else { return };
        self.live.remove(&first);
        self.nr_live -= order.nr_pages();
        match order {
            Order::PMD => self.vm.give_back_huge(Pfn(first), Content::Unknown),
            Order::BASE if self.random(2) == 0 => self.vm.give_back(Pfn(first), Fill::Raw),
            _ => {
                let mut batch = FreeBatch::new(&self.vm);
                (0..order.nr_pages() as u32).for_each(|i| batch.add(Pfn(first + i)));
            }
        }
    }

    fn step(&mut self, most_of_64: u64) {
        be(self.random(self.nr_cpus) as u16);
        match self.random(64) {
            0 => _ = self.vm.steal_caches(),
            1 => {
                let b = BlockId(self.random(self.vm.frames.blocks.nr()) as u32);
                drop(self.vm.claim_rest(b, self.vm.hold()));
            }
            2 => _ = self.vm.zero_ahead(1),
            n if n < most_of_64 => self.take(),
            _ => self.give_back(),
        }
    }

    fn check(&self) {
        let blocks = &self.vm.frames.blocks;
        let untold = blocks.names().iter().find(|b| !blocks.at(*b).is_told());
        assert_eq!(untold, None, "I40");
    }

    fn empty_and_compare(mut self) {
        while !self.live.is_empty() {
            self.give_back();
        }
        self.check();
        assert_eq!(self.vm.nr_free_pages(), self.vm.nr_total_pages.get());
        self.vm.steal_caches();
        let nr_whole = self.vm.frames.blocks.iter().filter(|block| block.nr_free_exact() == BLOCK_FRAMES).count();
        let huge: Vec<HugeFrame> = core::iter::from_fn(|| self.vm.obtain_huge().ok()).collect();
        assert_eq!(huge.len(), nr_whole, "I40: whole blocks are denied");
        be(0);
    }
}

#[test]
fn odd_shapes_refuse_only_what_is_not_there() {
    for (nr_frames, nr_cpus) in SHAPES {
        let vm = vm_of(nr_cpus, nr_frames, Tunables { zero_batch: 7, ..Tunables::default() }).unwrap();
        let mut shape = Shape { vm, nr_cpus: nr_cpus as u64, live: BTreeMap::new(), nr_live: 0, state: nr_frames };
        // Filled to the brim, and emptied, twice.
        for (nr_steps, most_of_64) in [(3000, 60), (2000, 20), (3000, 61), (1000, 10)] {
            for i in 0..nr_steps {
                shape.step(most_of_64);
                if i % 8 == 0 {
                    shape.check();
                }
            }
        }
        shape.empty_and_compare();
    }
}
