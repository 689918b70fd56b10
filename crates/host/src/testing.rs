//! For the unit tests: page tables made by hand, without the core.

use crate::access::{PageFault, access_page};
use crate::config::{HostedConfig, Mode};
use crate::cpu::CpuGuard;
use crate::hosted::Hosted;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use softfault::addr::{Access, PageRange, Pfn, Rights, Vpn};
use softfault::machine::{CpuSet, Flush, Machine, SpaceTag};
use softfault::table::format::{Entry, Format, Leaf, X86_64, index_of};

pub(crate) const BOTH_MODES: [Mode; 2] = [Mode::Interrupt, Mode::Broadcast];

/// A machine with one address space.
pub(crate) struct Bench {
    pub(crate) machine: Hosted,
    pub(crate) space: SpaceTag,
    next: AtomicU32,
}

impl Bench {
    pub(crate) fn new(config: HostedConfig) -> Bench {
        let machine = Hosted::new(config).unwrap();
        Bench { machine, space: SpaceTag { id: 1, root: Pfn(1) }, next: AtomicU32::new(2) }
    }

    pub(crate) fn small(nr_cpus: usize, mode: Mode) -> Bench {
        Bench::new(HostedConfig { nr_cpus, mode, tlb_entries: 64, strict_bbm: true, ..HostedConfig::default() })
    }

    pub(crate) fn frame(&self) -> Pfn {
        Pfn(self.next.fetch_add(1, Relaxed))
    }

    /// The entry of `page` at `level`; makes the tables above it. By one thread.
    pub(crate) fn entry(&self, page: u64, level: u8) -> &AtomicU64 {
        let (mut table, mut at) = (self.space.root, X86_64::LEVELS - 1);
        loop {
            let word = self.machine.arena.word(table, index_of::<X86_64>(page, at) * 8);
            if at == level {
                return word;
            }
            table = match X86_64::decode(word.load(Acquire), at) {
                Entry::Table(next) => next,
                _ => {
                    let next = self.frame();
                    word.store(X86_64::encode(Entry::Table(next), at), Release);
                    next
                }
            };
            at -= 1;
        }
    }

    pub(crate) fn set(&self, page: u64, level: u8, entry: Entry) {
        self.entry(page, level).store(X86_64::encode(entry, level), Release);
    }

    pub(crate) fn get(&self, page: u64, level: u8) -> Entry {
        X86_64::decode(self.entry(page, level).load(Acquire), level)
    }

    pub(crate) fn shoot(&self, page: u64) {
        self.shoot_what(Flush::Pages(PageRange::new(Vpn(page), Vpn(page + 1))));
    }

    pub(crate) fn shoot_what(&self, what: Flush) {
        self.machine.shootdown(self.space, &CpuSet::first(self.machine.nr_cpus()), what);
    }

    /// Writes the first word of a frame, past any translation.
    pub(crate) fn poke(&self, frame: Pfn, value: u64) {
        self.machine.arena.word(frame, 0).store(value, Release);
    }

    pub(crate) fn load(&self, cpu: &CpuGuard<'_>, addr: u64) -> Result<u64, PageFault> {
        access_page(&self.machine, cpu.state(), self.space, addr, Access::Read, |arena, frame| {
            arena.word(frame, addr as usize % 4096).load(Acquire)
        })
    }

    pub(crate) fn store(&self, cpu: &CpuGuard<'_>, addr: u64, value: u64) -> Result<(), PageFault> {
        access_page(&self.machine, cpu.state(), self.space, addr, Access::Write, |arena, frame| {
            arena.word(frame, addr as usize % 4096).store(value, Release);
        })
    }
}

pub(crate) fn leaf(pfn: Pfn, rights: Rights) -> Entry {
    Entry::Leaf(Leaf { pfn, rights, accessed: false, dirty: false })
}

pub(crate) const RO: Rights = Rights::READ;
pub(crate) const RW: Rights = Rights::READ.union(Rights::WRITE);
