//! By which instructions frames are zeroed.
//!
//! A CPU has several ways, and no order of them holds for all CPUs. A way that
//! passes the caches costs less by itself, and more to a program that goes on to
//! write whole pages. All here is reckoning; the instructions are in `mem/ways.rs`,
//! the mechanism is in [`crate::clear`].

/// A way of filling frames with zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Zeroing {
    /// Ordinary stores, as `memset` makes them: a string instruction (`rep stosb`)
    /// where the compiler's library takes it. Every CPU has them.
    Stores,
    /// Ordinary stores of 32 bytes from a vector register (AVX2).
    Vector,
    /// Non-temporal stores: past the caches, whole lines.
    Streaming,
    /// `clzero`: one instruction for a line, past the caches, without a register.
    Clzero,
}

impl Zeroing {
    /// All of them.
    pub const ALL: [Zeroing; 4] = [Zeroing::Stores, Zeroing::Vector, Zeroing::Streaming, Zeroing::Clzero];

    /// The word in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Zeroing::Stores => "stores",
            Zeroing::Vector => "vector",
            Zeroing::Streaming => "streaming",
            Zeroing::Clzero => "clzero",
        }
    }

    /// The way of that name.
    pub fn named(name: &str) -> Option<Zeroing> {
        Zeroing::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Whether it leaves nothing in the caches. Such stores are ordered by nothing
    /// but a fence of their own.
    pub const fn passes_caches(self) -> bool {
        matches!(self, Zeroing::Streaming | Zeroing::Clzero)
    }
}

/// How the frames of one batch are zeroed, which a CPU then hands out lowest first.
/// The far ones are zeroed before the near ones, so that these are still in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BatchPlan {
    /// How many of the lowest are near: the program is about to touch them.
    pub nr_near: u64,
    /// The way for these.
    pub near: Zeroing,
    /// The way for the rest.
    pub far: Zeroing,
}

impl BatchPlan {
    /// All frames in that way.
    pub const fn all(way: Zeroing) -> BatchPlan {
        BatchPlan { nr_near: 0, near: way, far: way }
    }

    /// Whether some of it passes the caches.
    pub const fn passes_caches(self) -> bool {
        self.near.passes_caches() || self.far.passes_caches()
    }
}
