//! The configuration of a hosted machine, and why one is refused.

use crate::barrier::Barrier;
use core::fmt;
use rustix::io::Errno;
use softfault::machine::MAX_CPUS;

/// How invalidations reach other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// As x86-64 without `INVLPGB`: the initiator posts a request, and the target serves
    /// it before its next access. Until then the target's TLB is stale.
    Interrupt,
    /// As Arm's `TLBI` and x86's `INVLPGB`: the initiator removes the entries at once,
    /// without an interrupt.
    Broadcast,
}

/// Configures a [`Hosted`](crate::Hosted). The default has one CPU, 64 MiB of memory, 1,536 TLB
/// entries, zeroed frames and no swap area.
///
/// ```
/// use softfault_host::HostedConfig;
/// let config = HostedConfig::default().with_nr_cpus(2).with_arena_bytes(16 << 20);
/// assert_eq!((config.nr_cpus, config.arena_bytes), (2, 16 << 20));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostedConfig {
    /// CPUs, 1 to 512; a thread becomes one by [`bind`](crate::Hosted::bind).
    pub nr_cpus: usize,
    /// Physical memory in bytes, a multiple of 4,096, at most 16 TiB. The host allocates
    /// pages when they are first touched.
    pub arena_bytes: u64,
    /// Memory behind it in bytes that can be added ([`add_memory`](softfault::Memory::add_memory)), a multiple of
    /// 4,096; with `arena_bytes` at most 16 TiB.
    pub spare_bytes: u64,
    /// How invalidations reach other CPUs.
    pub mode: Mode,
    /// Entries of each CPU's TLB, at least 4.
    pub tlb_entries: usize,
    /// Whether to ask the host for huge pages for the arena.
    pub huge: bool,
    /// Whether the machine reports to its first [`Vm`](softfault::Vm) that all frames are
    /// zero. They are; without the report the `Vm` clears them before use.
    pub zeroed: bool,
    /// Whether software sets accessed and dirty bits: an access through an entry that is
    /// not accessed, or a store through a clean entry, is a page fault. This is RISC-V's
    /// Svade, and Arm without FEAT_HAFDBS.
    pub software_ad_bits: bool,
    /// The highest level whose entries the processor takes for leaves, if the format has such leaves at all. With 1 it
    /// is an x86-64 processor without pages of 1 GiB.
    pub top_leaf: u8,
    /// Whether each TLB fill looks for a live translation of the same page to
    /// another frame or of another size on any CPU: Arm's break-before-make
    /// rule. Slow; see [`violations`](crate::Hosted::violations).
    pub strict_bbm: bool,
    /// Size of the swap area in bytes, a multiple of 4,096, below 16 TiB; 0 for none. The host
    /// allocates memory when pages are written.
    pub swap_bytes: u64,
    /// The implementation of the heavy barrier.
    pub barrier: Barrier,
    /// Seed of the CPUs' random numbers.
    pub seed: u64,
}

impl HostedConfig {
    /// The same with another [`nr_cpus`](HostedConfig::nr_cpus).
    #[must_use]
    pub const fn with_nr_cpus(mut self, nr_cpus: usize) -> HostedConfig {
        self.nr_cpus = nr_cpus;
        self
    }
    /// The same with another [`arena_bytes`](HostedConfig::arena_bytes).
    #[must_use]
    pub const fn with_arena_bytes(mut self, arena_bytes: u64) -> HostedConfig {
        self.arena_bytes = arena_bytes;
        self
    }
    /// The same with other [`spare_bytes`](HostedConfig::spare_bytes).
    #[must_use]
    pub const fn with_spare_bytes(mut self, spare_bytes: u64) -> HostedConfig {
        self.spare_bytes = spare_bytes;
        self
    }
    /// The same with another [`mode`](HostedConfig::mode).
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> HostedConfig {
        self.mode = mode;
        self
    }
    /// The same with another [`tlb_entries`](HostedConfig::tlb_entries).
    #[must_use]
    pub const fn with_tlb_entries(mut self, tlb_entries: usize) -> HostedConfig {
        self.tlb_entries = tlb_entries;
        self
    }
    /// The same with another [`huge`](HostedConfig::huge).
    #[must_use]
    pub const fn with_huge(mut self, huge: bool) -> HostedConfig {
        self.huge = huge;
        self
    }
    /// The same with another [`zeroed`](HostedConfig::zeroed).
    #[must_use]
    pub const fn with_zeroed(mut self, zeroed: bool) -> HostedConfig {
        self.zeroed = zeroed;
        self
    }
    /// The same with another [`software_ad_bits`](HostedConfig::software_ad_bits).
    #[must_use]
    pub const fn with_software_ad_bits(mut self, software_ad_bits: bool) -> HostedConfig {
        self.software_ad_bits = software_ad_bits;
        self
    }
    /// The same with another [`top_leaf`](HostedConfig::top_leaf).
    #[must_use]
    pub const fn with_top_leaf(mut self, top_leaf: u8) -> HostedConfig {
        self.top_leaf = top_leaf;
        self
    }
    /// The same with another [`strict_bbm`](HostedConfig::strict_bbm).
    #[must_use]
    pub const fn with_strict_bbm(mut self, strict_bbm: bool) -> HostedConfig {
        self.strict_bbm = strict_bbm;
        self
    }
    /// The same with another [`swap_bytes`](HostedConfig::swap_bytes).
    #[must_use]
    pub const fn with_swap_bytes(mut self, swap_bytes: u64) -> HostedConfig {
        self.swap_bytes = swap_bytes;
        self
    }
    /// The same with another [`barrier`](HostedConfig::barrier).
    #[must_use]
    pub const fn with_barrier(mut self, barrier: Barrier) -> HostedConfig {
        self.barrier = barrier;
        self
    }
    /// The same with another [`seed`](HostedConfig::seed).
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> HostedConfig {
        self.seed = seed;
        self
    }
}

impl Default for HostedConfig {
    fn default() -> HostedConfig {
        HostedConfig {
            nr_cpus: 1,
            arena_bytes: 64 << 20,
            spare_bytes: 0,
            mode: Mode::Interrupt,
            tlb_entries: 1536,
            huge: false,
            zeroed: true,
            software_ad_bits: false,
            top_leaf: u8::MAX,
            strict_bbm: false,
            swap_bytes: 0,
            barrier: Barrier::Auto,
            seed: 0,
        }
    }
}

/// Why [`Hosted::new`](crate::Hosted::new) failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostedError {
    /// `nr_cpus` is out of range.
    Cpus(usize),
    /// `arena_bytes` is out of range.
    Arena(u64),
    /// `spare_bytes` is out of range.
    Spare(u64),
    /// `tlb_entries` is out of range.
    Tlb(usize),
    /// `swap_bytes` is out of range.
    Swap(u64),
    /// The host refused to map the arena.
    Map(u64, Errno),
    /// The configuration asks for `membarrier(2)`, which the host lacks.
    Barrier,
}

impl fmt::Display for HostedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostedError::Cpus(n) => write!(f, "nr_cpus is {n}, should be 1 to {MAX_CPUS}"),
            HostedError::Arena(n) => {
                write!(f, "arena_bytes is {n}, should be a multiple of 4096, above 0 and at most 16 TiB")
            }
            HostedError::Spare(n) => {
                write!(f, "spare_bytes is {n}, should be a multiple of 4096, with arena_bytes at most 16 TiB")
            }
            HostedError::Tlb(n) => write!(f, "tlb_entries is {n}, should be 4 to 1048576"),
            HostedError::Swap(n) => write!(f, "swap_bytes is {n}, should be a multiple of 4096 and below 16 TiB"),
            HostedError::Map(n, errno) => write!(f, "arena_bytes is {n}, the host cannot map that: {errno}"),
            HostedError::Barrier => {
                write!(f, "barrier is Membarrier, which this host's kernel does not offer; use Barrier::Auto")
            }
        }
    }
}

impl core::error::Error for HostedError {}

impl HostedConfig {
    pub(crate) fn check(&self) -> Result<(), HostedError> {
        if self.nr_cpus == 0 || self.nr_cpus > MAX_CPUS {
            return Err(HostedError::Cpus(self.nr_cpus));
        }
        if self.arena_bytes == 0 || !self.arena_bytes.is_multiple_of(4096) || self.arena_bytes > 16 << 40 {
            return Err(HostedError::Arena(self.arena_bytes));
        }
        let is_too_much = self.spare_bytes > (16 << 40) - self.arena_bytes;
        if is_too_much || !self.spare_bytes.is_multiple_of(4096) {
            return Err(HostedError::Spare(self.spare_bytes));
        }
        if !(4..=1 << 20).contains(&self.tlb_entries) {
            return Err(HostedError::Tlb(self.tlb_entries));
        }
        if !self.swap_bytes.is_multiple_of(4096) || self.swap_bytes >= 16 << 40 {
            return Err(HostedError::Swap(self.swap_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setter_sets_its_field() {
        let config = HostedConfig::default()
            .with_nr_cpus(2)
            .with_arena_bytes(4096)
            .with_mode(Mode::Broadcast)
            .with_tlb_entries(8)
            .with_huge(true)
            .with_zeroed(false)
            .with_software_ad_bits(true)
            .with_top_leaf(1)
            .with_strict_bbm(true)
            .with_swap_bytes(8192)
            .with_barrier(Barrier::Membarrier)
            .with_seed(9)
            .with_spare_bytes(8192);
        let HostedConfig {
            nr_cpus,
            arena_bytes,
            spare_bytes,
            mode,
            tlb_entries,
            huge,
            zeroed,
            software_ad_bits,
            top_leaf,
            strict_bbm,
            swap_bytes,
            barrier,
            seed,
        } = config;
        assert_eq!((nr_cpus, arena_bytes, mode, tlb_entries), (2, 4096, Mode::Broadcast, 8));
        assert_eq!((huge, zeroed, software_ad_bits, strict_bbm, swap_bytes), (true, false, true, true, 8192));
        assert_eq!((barrier, seed, spare_bytes, top_leaf), (Barrier::Membarrier, 9, 8192, 1));
    }
}
