//! The kinds of locks, and their order.

use LockKind::*;

/// A lock of the core, by what it protects. `docs/locks.md` has a row for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockKind {
    /// The size of a pool of 1 GiB pages.
    PoolSize1G,
    /// The size of a pool of 2 MiB pages.
    PoolSize2M,
    /// Memory that is being emptied.
    Emptying,
    /// The reaction to a refusal: one CPU reclaims.
    Reclaiming,
    /// The writer lock of a space.
    Writer,
    /// The historic mutex of a page of a pool.
    PoolMutex,
    /// The size of an object.
    ObjectResize,
    /// The reservations of an object.
    Reserving,
    /// A get from a subpool.
    Subpool,
    /// The last-resort turn of an allocation.
    LastResort,
    /// Memory that is added or removed.
    MemoryResize,
    /// The way between free memory and the pools.
    Gathering,
    /// Sections of memory that are initialised later.
    Deferred,
    /// The way to the metadata of a new section.
    Leading,
    /// The caches of other CPUs, which a thief empties.
    Thief,
    /// A family of spaces.
    Family,
    /// A shard of the members of an object.
    Shard,
    /// The pass over ages.
    Ages,
    /// The knobs of huge pages.
    HugeKnobs,
    /// The places of callers that write to storages.
    Writers,
    /// All page tables of a space, in one historic fault-locking mode.
    Global,
    /// A leaf table, in the other one.
    LeafTable,
}

impl LockKind {
    /// All of them.
    #[rustfmt::skip]
    pub const ALL: [LockKind; 22] = [
        PoolSize1G, PoolSize2M, Emptying, Reclaiming, Writer, PoolMutex, ObjectResize, Reserving, Subpool, LastResort,
        MemoryResize, Gathering, Deferred, Leading, Thief, Family, Shard, Ages, HugeKnobs, Writers, Global, LeafTable,
    ];

    /// Whether a CPU that has this lock may wait for that one. No circle is possible, so CPUs that keep to it never wait for each
    /// other in one.
    pub fn may_take(self, other: LockKind) -> bool {
        self.taken_under().contains(&other)
    }

    fn taken_under(self) -> &'static [LockKind] {
        match self {
            PoolSize1G => &[
                PoolSize2M,
                Emptying,
                Reclaiming,
                ObjectResize,
                LastResort,
                MemoryResize,
                Gathering,
                Deferred,
                Leading,
                Thief,
                Family,
                Shard,
            ],
            PoolSize2M => &[Reclaiming, LastResort, Gathering, Deferred, Leading, Thief, Family, Shard],
            Emptying => &[ObjectResize, LastResort, MemoryResize, Gathering, Deferred, Leading, Thief, Family, Shard],
            Reclaiming => &[Family, Shard],
            Writer => &[ObjectResize, Reserving, Subpool, LastResort, Gathering, Deferred, Leading, Thief, Shard],
            PoolMutex => &[Subpool, LastResort, Gathering, Deferred, Leading, Thief, Family, Shard],
            ObjectResize => &[Reserving, Subpool, LastResort, Gathering, Deferred, Leading, Thief, Shard],
            // Of an allocation that needs several frames, and reserves when it has them.
            LastResort => &[Reserving, Subpool, Gathering, Deferred, Leading, Thief],
            Reserving => &[Subpool, Gathering, Deferred, Leading, Thief],
            Subpool => &[Gathering, Deferred, Leading, Thief],
            MemoryResize => &[LastResort, Deferred, Leading, Thief],
            Gathering => &[Deferred, Leading, Thief],
            Deferred => &[Leading],
            Leading | Thief | Family | Shard | Ages | HugeKnobs | Writers | Global | LeafTable => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Takes away one kind after another under which nothing is taken that is still there.
    #[test]
    fn the_order_has_no_circle() {
        let mut left = Vec::from(LockKind::ALL);
        while !left.is_empty() {
            let before = left.clone();
            left.retain(|kind| before.iter().any(|other| kind.may_take(*other)));
            assert!(left.len() < before.len(), "a circle among {left:?}");
        }
    }

    /// A number is a place in the list, which machines use.
    #[test]
    fn all_kinds_are_listed_once() {
        assert!(LockKind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
    }
}
