//! Interleavings at the core's waits: actors that take turns.
//!
//! Each actor is a thread with its own CPU. A baton passes between them at `relax`,
//! `park`, barriers and shootdowns, by a seed or by a list of decisions, so each
//! interleaving at waits repeats exactly. Loom covers interleavings within a section.
//!
//! A round has a space with private memory of two huge pages, a heap and a shared object.
//! Actors store, load, pin, fork and change the space; `history.rs` records what each page
//! may hold. At the end all bytes are compared, the core's checker runs, and every frame
//! must be free again.

mod actor;
mod deed;
mod history;
mod turns;

use crate::hosted::nr_free_pages;
use crate::judge::{check_after_exit, check_some};
use crate::op::PAGE;
use crate::random::Random;
use actor::{Actor, Place};
pub use deed::Deed;
use history::History;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{AddressSpace, CpuId, HugeKnobs, MapFlags, Prot, SharedObject, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig, Mode};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
pub use turns::Schedule;
use turns::Turns;

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

/// And of the heap's, which are the last ones.
fn heap_pages() -> Range<usize> {
    object_pages().end..object_pages().end + HEAP_PAGES as usize
}

/// What all actors share.
struct World<'vm> {
    vm: &'vm Vm<Hosted>,
    space: AddressSpace<'vm, Hosted>,
    object: SharedObject<'vm, Hosted>,
    known: [u64; NR_KNOWN],
    turns: Arc<Turns>,
    history: Mutex<History>,
    place: Mutex<Place>,
    /// Whether some actor swaps pages out.
    has_pager: bool,
}

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// What each actor does; one with an empty list takes random deeds.
    pub deeds: Vec<Vec<Deed>>,
    /// Decides machine, deeds and places.
    pub seed: u64,
    /// Who goes on at each wait.
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
    /// What was wrong, and how to see it again.
    pub fn play(&self) -> Result<Vec<usize>, String> {
        let vm = machine(self.seed, self.deeds.len())?;
        let label = format!("{self:?}");
        let turns = Arc::new(Turns::new(self.deeds.len(), &self.schedule, label.clone()));
        let hook = turns.clone();
        vm.machine().on_wait(Box::new(move || hook.pass())).map_err(|_| "the machine has a hook")?;
        let before = {
            let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
            nr_free_pages(&vm)
        };
        let problems = self.play_on(&vm, turns.clone())?;
        let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        let after = nr_free_pages(&vm);
        match problems.first() {
            Some(first) => Err(format!("{label}: {first}")),
            None if after != before => Err(format!("{label}: {before} frames were free, now {after}")),
            None => Ok(turns.choices()),
        }
    }

    fn play_on(&self, vm: &Vm<Hosted>, turns: Arc<Turns>) -> Result<Vec<String>, String> {
        let world = {
            let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
            World::new(vm, turns, self.seed, self.deeds.iter().flatten().any(|deed| *deed == Deed::SwapOut))?
        };
        vm.fail_allocation(self.frames_left);
        world.history().is_starved = self.frames_left.is_some();
        let play = |i: usize| {
            let played = catch_unwind(AssertUnwindSafe(|| Actor::new(&world, i, self.seed).play(&self.deeds[i])));
            if let Err(panic) = played {
                let text = panic.downcast_ref::<String>().cloned();
                world.history().problems.push(format!("actor {i} panicked: {}", text.unwrap_or_default()));
            }
        };
        thread::scope(|scope| {
            let play = &play;
            (0..self.deeds.len()).for_each(|i| drop(scope.spawn(move || play(i))));
        });
        vm.fail_allocation(None);
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

impl<'vm> World<'vm> {
    fn new(vm: &'vm Vm<Hosted>, turns: Arc<Turns>, seed: u64, has_pager: bool) -> Result<World<'vm>, String> {
        let space = vm.new_space().map_err(|e| e.to_string())?;
        let object = vm.new_shared_object(OBJECT_PAGES * PAGE).map_err(|e| e.to_string())?;
        let history = Mutex::new(History::new(heap_pages().end));
        let place = Mutex::new(Place { base: PLACES[0], is_changing: false });
        let world = World { vm, space, object, known: known(seed), turns, history, place, has_pager };
        world.map(PLACES[0], 0, NR_PAGES).map_err(|e| e.to_string())?;
        world.map_object().map_err(|e| e.to_string())?;
        world.space.set_brk(HEAP);
        if world.space.brk(HEAP + HEAP_PAGES * PAGE) == HEAP {
            return Err("no heap".into());
        }
        // Some pages are there from the beginning.
        let mut random = Random::new(seed ^ 0x5eed);
        for (page, number) in world.known.into_iter().enumerate() {
            if random.chance(40) {
                let value = 1 + page as u64;
                let id = world.history().begin(page, value);
                let addr = PLACES[0] + number * PAGE + offset_of(page);
                world.space.write(addr, &value.to_ne_bytes()).map_err(|e| e.to_string())?;
                world.history().end(id, true);
            }
        }
        Ok(world)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, base: u64, first: u64, nr: u64) -> Result<(), softfault::MmapError> {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
        self.space.mmap(base + first * PAGE, nr * PAGE, RW, flags).map(drop)
    }

    fn map_object(&self) -> Result<(), softfault::MmapError> {
        let part = softfault::ObjectPart::new(&self.object);
        self.space.mmap_object(OBJECT, OBJECT_PAGES * PAGE, RW, MapFlags::SHARED | MapFlags::FIXED, part).map(drop)
    }

    /// The known ones among these pages of private memory.
    fn known_in(&self, range: &Range<u64>) -> impl Iterator<Item = usize> + use<> {
        let (known, range) = (self.known, range.clone());
        (0..NR_KNOWN).filter(move |page| range.contains(&known[*page]))
    }

    /// Where a known page is, given where private memory is.
    fn addr_of(&self, page: usize, base: u64) -> u64 {
        let at = match self.known.get(page) {
            Some(number) => base + number * PAGE,
            None if object_pages().contains(&page) => OBJECT + (page - object_pages().start) as u64 * PAGE,
            None => HEAP + (page - heap_pages().start) as u64 * PAGE,
        };
        at + offset_of(page)
    }

    /// At the end everything is mapped, and nothing is under way.
    fn look_at_all(&self) {
        let base = self.place.lock().unwrap_or_else(PoisonError::into_inner).base;
        for page in 0..heap_pages().end {
            let mut bytes = [0; 8];
            let read = self.space.read(self.addr_of(page, base), &mut bytes);
            let mut history = self.history();
            let now = history.tick();
            match read {
                Ok(()) => history.saw(page, u64::from_ne_bytes(bytes), now, now + 1, "at the end"),
                Err(error) => history.problems.push(format!("at the end: page {page}: {error}")),
            }
        }
    }
}

/// Words of all places in a page are used.
fn offset_of(page: usize) -> u64 {
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
    let mut tunables = Tunables::default().with_thp(thp);
    // The host's clock would decide otherwise.
    tunables.compact_fault.time_ns = u64::MAX;
    Vm::new(hosted, tunables).map_err(|e| e.to_string())
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
