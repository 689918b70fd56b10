//! Interleavings at the core's waits: actors that take turns.
//!
//! Each actor is a thread with its own CPU. A baton passes between them at `relax`,
//! `park`, barriers and shootdowns, by a seed or by a list of decisions, so each
//! interleaving at waits repeats exactly. Loom covers interleavings within a section.
//!
//! A round has a space with private memory of two huge pages, a heap, a shared object, and a file that is mapped shared
//! and privately. Actors store, load, pin, fork and change the space; `history.rs` records what each page
//! may hold. At the end all bytes are compared, the core's checker runs, and every frame
//! must be free again.

mod actor;
mod deed;
mod file;
mod history;
mod pool;
mod stage;
mod turns;
mod world;

use crate::judge::{check_after_exit, check_some};
use crate::op::PAGE;
use crate::random::Random;
use actor::Actor;
pub use deed::Deed;
use file::Reads;
pub use pool::{PoolDeed, PoolRound};
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{CpuId, HugeKnobs, Prot, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig, Mode};
use stage::Stage;
use std::ops::Range;
use std::sync::Arc;
pub use turns::Schedule;
use turns::Turns;
use world::World;

const RW: Prot = Prot::READ.union(Prot::WRITE);
/// Private memory: two huge pages, at one of these places.
const PLACES: [u64; 3] = [0x10_0000_0000, 0x10_4000_0000, 0x10_8000_3000];
const NR_PAGES: u64 = 1024;
const NR_BYTES: u64 = NR_PAGES * PAGE;
/// Number of its pages whose bytes are known.
const NR_KNOWN: usize = 8;
/// The object: where it is mapped, and its pages, all of them known.
const OBJECT: u64 = 0x11_0000_0000;
const OBJECT_PAGES: u64 = 3;
/// The heap: where it begins, and its pages, all of them known.
const HEAP: u64 = 0x12_0000_0000;
const HEAP_PAGES: u64 = 2;
/// The file: where it is mapped shared, and its pages, all of them known.
const FILE: u64 = 0x13_0000_0000;
const FILE_PAGES: u64 = 4;
/// Where it is mapped privately, at one of these places.
const PRIVATE_FILE: [u64; 2] = [0x14_0000_0000, 0x14_0020_1000];
/// Memory of a machine, by actors: the space, a huge copy of it for each child, tables.
const ARENA_BYTES_PER_ACTOR: u64 = 8 << 20;

/// Which pages of private memory are known: those at the edges of a huge page, and one
/// in the middle of each, in another word of the block's bitmaps with each seed.
fn known(seed: u64) -> [u64; NR_KNOWN] {
    let middle = |n: u64| 64 * (1 + n % 6);
    [0, 1, 5, middle(seed) + 44, 511, 512, 512 + middle(seed / 6) + 60, 1023]
}

/// Numbers of the object's pages among those that are known.
fn object_pages() -> Range<usize> {
    NR_KNOWN..NR_KNOWN + OBJECT_PAGES as usize
}

/// Of the heap's.
fn heap_pages() -> Range<usize> {
    object_pages().end..object_pages().end + HEAP_PAGES as usize
}

/// Of the file's, as the file and its shared mapping show them.
fn file_pages() -> Range<usize> {
    heap_pages().end..heap_pages().end + FILE_PAGES as usize
}

/// And as the private mapping shows them.
fn private_pages() -> Range<usize> {
    file_pages().end..file_pages().end + FILE_PAGES as usize
}

/// Number of pages that are known.
fn nr_known_pages() -> usize {
    private_pages().end
}

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// The deeds of each actor; one with an empty list takes random deeds.
    pub deeds: Vec<Vec<Deed>>,
    /// Decides machine, deeds and places.
    pub seed: u64,
    /// The actor that continues at each wait.
    pub schedule: Schedule,
    /// Allocations that still succeed once the round has begun.
    pub frames_left: Option<u64>,
    /// Whether all free frames are read at the end (I20): nine tenths of the time.
    pub reads_free: bool,
}

impl Round {
    /// Three actors with random deeds.
    pub fn random(seed: u64) -> Round {
        let mut random = Random::new(seed);
        let deeds = (0..3).map(|_| Deed::some(&mut random)).collect();
        let frames_left = random.chance(40).then(|| random.below(24));
        Round { deeds, seed, schedule: Schedule::Seeded(seed), frames_left, reads_free: true }
    }

    /// Plays it; gives the number of choices that each listed decision had.
    ///
    /// # Errors
    ///
    /// The defect, and how to see it again.
    pub fn play(&self) -> Result<Vec<usize>, String> {
        // Lists of decisions are for two actors.
        let reads = Reads::of(self.seed, matches!(self.schedule, Schedule::Seeded(_)));
        let nr_cpus = self.deeds.len() + usize::from(reads.is_late());
        let stage = Stage { label: format!("{self:?}"), seed: self.seed, nr_cpus, schedule: &self.schedule };
        stage.play(|vm, turns| self.play_on(vm, turns.clone(), reads))
    }

    fn play_on(&self, vm: &Vm<Hosted>, turns: Arc<Turns>, reads: Reads) -> Result<Vec<String>, String> {
        let world = {
            let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
            World::new(vm, turns, self.seed, &self.deeds)?
        };
        vm.fail_allocation(self.frames_left);
        world.file.set(reads);
        world.history().is_starved = self.frames_left.is_some();
        world.history().reads_fail = reads.may_fail();
        let nr_actors = self.deeds.len();
        let end_reads = || world.end_reads(nr_actors, reads);
        stage::run(
            nr_actors,
            &|i| Actor::new(&world, i, self.seed).play(&self.deeds[i]),
            &|problem| world.history().problems.push(problem),
            reads.is_late().then_some(&end_reads as &(dyn Fn() + Sync)),
        );
        vm.fail_allocation(None);
        world.file.set(Reads::GOOD);
        let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        world.look_at_all();
        let mut problems = core::mem::take(&mut world.history().problems);
        problems.iter_mut().for_each(|problem| *problem += &format!("; {}", world.history().notes()));
        if problems.is_empty() {
            problems.extend(check_some(vm, [&world.space].into_iter(), false));
        }
        drop(world);
        if problems.is_empty() && self.reads_free {
            problems.extend(check_after_exit(vm));
        }
        Ok(problems)
    }
}

/// Words of all places in a page are used. A page of the file has its word in the same place in all mappings.
fn offset_of(page: usize) -> u64 {
    let page = if private_pages().contains(&page) { page - FILE_PAGES as usize } else { page };
    page as u64 * 1032 % PAGE / 8 * 8
}

/// Small pages or huge ones, both modes.
fn machine(seed: u64, nr_cpus: usize) -> Result<Vm<Hosted>, String> {
    let mut random = Random::new(seed ^ 0x0dd);
    let mode = random.pick(&[Mode::Interrupt, Mode::Broadcast]);
    let arena_bytes = ARENA_BYTES_PER_ACTOR * nr_cpus as u64;
    let config = HostedConfig::default()
        .with_nr_cpus(nr_cpus)
        .with_arena_bytes(arena_bytes)
        .with_huge(true)
        .with_mode(mode)
        .with_swap_bytes(NR_BYTES)
        .with_tlb_entries(64)
        .with_seed(seed);
    let hosted = Hosted::new(config).map_err(|e| e.to_string())?;
    let enabled = random.pick(&[Enabled::Never, Enabled::Always]);
    let cow = random.pick(&[CowHuge::Split, CowHuge::Copy]);
    let mut thp = HugeKnobs::DEFAULT.with_enabled(enabled).with_cow(cow);
    // With 511 the daemon collapses what it finds, and no huge page is underused.
    thp.khugepaged.max_ptes_none = random.pick(&[511, 255]);
    Vm::new(hosted, Tunables::default().with_thp(thp)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// I20 is checked in words of 64 frames: a huge page has known pages in all of them.
    #[test]
    fn known_pages_lie_in_each_word_of_a_block() {
        let mut words = BTreeSet::new();
        for seed in 0..36 {
            let pages = known(seed);
            assert!(pages.is_sorted_by(|a, b| a < b) && pages[NR_KNOWN - 1] < NR_PAGES, "{pages:?}");
            words.extend(pages.map(|page| (page / 512, page % 512 / 64)));
        }
        assert_eq!(words.len(), 16, "{words:?}");
    }
}
