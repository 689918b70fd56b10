//! The machine of a run, and its tunables.

use super::bytes::Bytes;
use super::storage::Storage;
use softfault::policy::around::FaultAround;
use softfault::policy::clear::ClearOrder;
use softfault::policy::zero::Zeroing;
use softfault::{FaultLocking, FileId, FrameRange, HugetlbLocking, Pfn, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig, Mode};
use std::sync::Arc;

/// Six huge pages, of which the core itself takes a part.
const ARENA_BYTES: u64 = 12 << 20;
const SWAP_BYTES: u64 = 512 << 10;
/// The foreign frames of the machine that has some, and where they begin: memory is added by such sections.
const SECTION: u64 = 1 << 15;
/// Foreign frames.
pub(super) const IMAGE: FrameRange = FrameRange { first: Pfn(SECTION as u32), nr_frames: SECTION };

/// How the machine differs from the usual one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Software sets accessed and dirty bits, and invalidations are broadcast.
    SoftwareBits,
    /// Foreign frames are there. Rare, because the checker looks at each.
    Image,
}

/// Kinds of machines.
pub(super) const NR_KINDS: usize = 3;
/// A machine between two runs.
pub(super) struct Kept {
    pub(super) machine: Hosted,
    /// The file that it has, which no run can add for itself: it would stay.
    pub(super) storage: Arc<Storage>,
    pub(super) file: FileId,
}

/// The first bytes of a run.
pub(super) struct Setup {
    kind: Kind,
    fault_locking: FaultLocking,
    rss_percpu: bool,
    hugetlb_locking: HugetlbLocking,
    fault_around: FaultAround,
    readahead_bytes: u64,
}

impl Setup {
    pub(super) fn read(bytes: &mut Bytes<'_>) -> Setup {
        let [first, second, third] = [(); 3].map(|()| bytes.byte());
        let arounds = [FaultAround::DEFAULT, FaultAround::OFF, FaultAround::Adaptive];
        Setup {
            kind: match first {
                u8::MAX => Kind::Image,
                _ if first & 0xc0 == 0xc0 => Kind::SoftwareBits,
                _ => Kind::Plain,
            },
            // The default for half of the bytes.
            fault_locking: FaultLocking::ALL[usize::from(first & 7).min(3)],
            rss_percpu: first & 8 != 0,
            hugetlb_locking: HugetlbLocking::ALL[usize::from(second % 3)],
            fault_around: arounds[usize::from(second / 3 % 3)],
            readahead_bytes: [128 << 10, 0, 16 << 10, 1 << 20][usize::from(third & 3)],
        }
    }

    pub(super) fn kind(&self) -> usize {
        self.kind as usize
    }

    /// A machine that no run has used.
    pub(super) fn machine(&self) -> Result<Kept, String> {
        let config = HostedConfig::default()
            .with_arena_bytes(ARENA_BYTES)
            .with_swap_bytes(SWAP_BYTES)
            .with_tlb_entries(64)
            .with_zeroed(false)
            .with_strict_bbm(true);
        let config = match self.kind {
            Kind::Plain => config,
            Kind::SoftwareBits => config.with_software_ad_bits(true).with_mode(Mode::Broadcast),
            Kind::Image => config.with_spare_bytes((SECTION * 8192) - ARENA_BYTES),
        };
        let machine = Hosted::new(config).map_err(|error| error.to_string())?;
        let storage = Arc::new(Storage::new());
        let file = machine.add_file(storage.clone());
        Ok(Kept { machine, storage, file })
    }

    /// Nothing is measured.
    pub(super) fn tunables(&self) -> Tunables {
        Tunables::default()
            .with_zeroing(Some(Zeroing::Stores))
            .with_clear_order(Some(ClearOrder::Forward))
            .with_fault_locking(self.fault_locking)
            .with_rss_percpu(self.rss_percpu)
            .with_hugetlb_locking(self.hugetlb_locking)
            .with_fault_around(self.fault_around)
            .with_readahead_bytes(self.readahead_bytes)
    }

    /// Adds what the kind has.
    pub(super) fn begin(&self, vm: &Vm<Hosted>) -> Result<(), String> {
        match self.kind {
            Kind::Image => vm.add_foreign_memory(IMAGE).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }

    /// Takes it away again.
    pub(super) fn end(&self, vm: &Vm<Hosted>) -> Result<(), String> {
        match self.kind {
            Kind::Image => vm.remove_foreign_memory(IMAGE).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}
