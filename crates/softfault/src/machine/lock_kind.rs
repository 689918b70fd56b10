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
    /// No lock, but the wait of the owner of that turn for frames that others hold. These may sleep for a lock meanwhile: so it is
    /// not waited for under one for which a holder of frames waits.
    Frames,
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
    pub const ALL: [LockKind; 23] = [
        PoolSize1G, PoolSize2M, Emptying, Reclaiming, Writer, PoolMutex, ObjectResize, Reserving, Subpool, LastResort, Frames,
        MemoryResize, Gathering, Deferred, Leading, Thief, Family, Shard, Ages, HugeKnobs, Writers, Global, LeafTable,
    ];

    /// Whether a CPU that has this lock may wait for that one. No circle is possible, so CPUs that keep to it never wait for each
    /// other in one.
    pub fn may_take(self, other: LockKind) -> bool {
        self.taken_under().contains(&other)
    }

    #[rustfmt::skip]
    fn taken_under(self) -> &'static [LockKind] {
        match self {
            PoolSize1G => &[
                PoolSize2M, Emptying, Reclaiming, ObjectResize, Reserving, Subpool, LastResort, Frames, MemoryResize, Gathering,
                Deferred, Leading, Thief, Family, Shard, Writers,
            ],
            PoolSize2M => &[
                Reclaiming, Reserving, Subpool, LastResort, Frames, Gathering, Deferred, Leading, Thief, Family, Shard, Writers,
            ],
            Emptying => &[
                Reclaiming, ObjectResize, Reserving, Subpool, LastResort, Frames, MemoryResize, Gathering, Deferred, Leading, Thief, Family,
                Shard,
            ],
            // A mover, and reclaim, keep an object while they look at a page of it, and may end it: then its claims end.
            Reclaiming => &[Reserving, Subpool, Gathering, Deferred, Leading, Thief, Family, Shard],
            // A page of a pool that is dropped may be taken from others.
            Writer => &[
                ObjectResize, Reserving, Subpool, LastResort, Frames, Gathering, Deferred, Leading, Thief, Family, Shard,
            ],
            PoolMutex => &[Reserving, Subpool, LastResort, Frames, Gathering, Deferred, Leading, Thief, Family, Shard],
            ObjectResize => &[
                Reserving, Subpool, LastResort, Frames, Gathering, Deferred, Leading, Thief, Family, Shard,
            ],
            // Of an allocation that needs several frames, and reserves when it has them.
            LastResort => &[Reserving, Subpool, Frames, Gathering, Deferred, Leading, Thief],
            // Callers that hold frames wait for it.
            Reserving => &[Subpool, Gathering, Deferred, Leading, Thief],
            Subpool => &[Gathering, Deferred, Leading, Thief],
            MemoryResize => &[LastResort, Frames, Deferred, Leading, Thief],
            Frames | Gathering => &[Deferred, Leading, Thief],
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
