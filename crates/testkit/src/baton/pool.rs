//! Rounds about pools of huge pages: a file and private memory that have the last pages of a pool, which is resized.
//!
//! Both mappings have their reservation. So no store may be refused but beyond the end of the file, whoever drops, forks,
//! maps or resizes meanwhile, nor after an allocation has failed, once there are frames again. As on Linux, a hole takes a page
//! with its claim: then others may get it. A page that nobody has touched stays promised, whatever holes there are. In
//! every second round there may be surplus pages.

mod calls;

use super::stage::{self, Stage};
use super::turns::Turns;
use super::{RW, Schedule};
use crate::judge::{check_after_exit, check_some};
use crate::random::Random;
use softfault::{
    Access, AddressSpace, Advice, CpuId, FaultError, HugetlbCounts, MapFlags, MigrateRefusal, ObjectPart, Order, Pfn,
    SharedObject, Vm,
};
use softfault_host::{Hosted, Running, Trap};
use std::sync::{Mutex, PoisonError};

const HUGE: u64 = 512 * 4096;
const SHARED: u64 = 0x10_0000_0000;
const OWN: u64 = 0x10_4000_0000;
const OTHER: u64 = 0x10_8000_0000;
const OWN_FLAGS: MapFlags =
    MapFlags::PRIVATE.union(MapFlags::FIXED).union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);
/// Pages of the pool: those that are reserved.
const NR_PAGES: u64 = 2;

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // named after what they do
pub enum PoolDeed {
    StoreShared,
    StoreOwn,
    Punch,
    Shorten,
    Drop,
    Fork,
    MapAndUnmap,
    Resize,
    Move,
    Report,
    Allocate,
    MapFile,
    Subpool,
    Overcommit,
}

impl PoolDeed {
    /// All of them.
    #[rustfmt::skip] // a line each would be the list above
    pub const ALL: [PoolDeed; 14] = {
        use PoolDeed::*;
        [
            StoreShared, StoreOwn, Punch, Shorten, Drop, Fork, MapAndUnmap, Resize, Move, Report, Allocate, MapFile,
            Subpool, Overcommit,
        ]
    };
    /// Those that may have a page to which others have lost their claim.
    const TAKING: [PoolDeed; 5] = {
        use PoolDeed::*;
        [Fork, MapAndUnmap, Resize, MapFile, Subpool]
    };
    /// Those after which the file may have had its page, or was smaller.
    const BRINGING: [PoolDeed; 4] = {
        use PoolDeed::*;
        [StoreShared, Shorten, Allocate, MapFile]
    };
}

/// One round.
#[derive(Clone, Debug)]
pub struct PoolRound {
    /// The deeds of each actor.
    pub deeds: Vec<Vec<PoolDeed>>,
    /// Decides machine and places.
    pub seed: u64,
    /// The actor that continues at each wait.
    pub schedule: Schedule,
    /// Allocations that still succeed once the round has begun.
    pub frames_left: Option<u64>,
}

struct World<'vm> {
    vm: &'vm Vm<Hosted>,
    space: AddressSpace<'vm, Hosted>,
    file: SharedObject<'vm, Hosted>,
    is_starved: bool,
    /// A hole may remove a page with its claim, and others want the page.
    may_lack: bool,
    /// There are holes in the file, and no deed brings its page or ends its reservation.
    stays_promised: bool,
    /// The file is empty now and then.
    shortens: bool,
    /// Where a deed of the round removes pages, so that zeroes may be read.
    removes: Vec<u64>,
    problems: Mutex<Vec<String>>,
}

impl PoolRound {
    /// Three actors with random deeds.
    pub fn random(seed: u64) -> PoolRound {
        let mut random = Random::new(seed);
        let deeds = (0..3).map(|_| (0..4).map(|_| random.pick(&PoolDeed::ALL)).collect()).collect();
        let frames_left = random.chance(40).then(|| random.below(12));
        PoolRound { deeds, seed, schedule: Schedule::Seeded(seed), frames_left }
    }

    /// Plays it; gives the number of choices that each listed decision had.
    ///
    /// # Errors
    ///
    /// The defect, and how to see it again.
    pub fn play(&self) -> Result<Vec<usize>, String> {
        let nr_cpus = self.deeds.len();
        let stage = Stage { label: format!("{self:?}"), seed: self.seed, nr_cpus, schedule: &self.schedule };
        stage.play(|vm, turns| self.play_on(vm, turns))
    }

    fn play_on(&self, vm: &Vm<Hosted>, turns: &Turns) -> Result<Vec<String>, String> {
        let nr_actors = self.deeds.len() as u64;
        let world = {
            let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
            let has = |some: &[PoolDeed]| self.deeds.iter().flatten().any(|deed| some.contains(deed));
            let may_lack = has(&[PoolDeed::Punch, PoolDeed::Shorten]) && has(&PoolDeed::TAKING);
            let shared = has(&[PoolDeed::Punch, PoolDeed::Shorten]).then_some(SHARED);
            let own = has(&[PoolDeed::Drop]).then_some(OWN);
            let shortens = has(&[PoolDeed::Shorten]);
            let stays_promised = has(&[PoolDeed::Punch]) && !has(&PoolDeed::BRINGING);
            let nr_private = if shortens { nr_actors } else { 0 };
            let removes = shared.into_iter().chain(own).chain((0..nr_private).map(calls::private_of_file)).collect();
            let is_starved = self.frames_left.is_some();
            World { is_starved, may_lack, stays_promised, shortens, removes, ..World::new(vm, self.seed)? }
        };
        vm.fail_allocation(self.frames_left);
        let act = |me: usize| {
            let cpu = vm.machine().bind(CpuId(me as u16)).expect("each actor has its CPU");
            let playing = turns.begin(me);
            {
                let running = cpu.enter(&world.space).expect("the CPU is in no space");
                for (nr, deed) in self.deeds[me].iter().enumerate() {
                    world.act(*deed, me as u64, nr as u64 + 1, &running);
                    turns.progress();
                }
            }
            drop(playing);
        };
        stage::run(self.deeds.len(), &act, &|problem| world.problem(problem), None);
        vm.fail_allocation(None);
        let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        let mut problems = core::mem::take(&mut *world.problems.lock().unwrap_or_else(PoisonError::into_inner));
        if problems.is_empty() {
            problems.extend(check_some(vm, [&world.space].into_iter(), false));
            problems.extend(world.end()?);
        }
        drop(world);
        if problems.is_empty() {
            problems.extend(check_after_exit(vm));
        }
        Ok(problems)
    }
}

impl<'vm> World<'vm> {
    fn new(vm: &'vm Vm<Hosted>, seed: u64) -> Result<World<'vm>, String> {
        vm.set_nr_hugepages(Order::PMD, NR_PAGES).map_err(|e| e.to_string())?;
        vm.set_nr_overcommit_hugepages(Order::PMD, seed % 2).map_err(|e| e.to_string())?;
        let file = vm.new_hugetlb_object(HUGE, Order::PMD).map_err(|e| e.to_string())?;
        let space = vm.new_space().map_err(|e| e.to_string())?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        space.mmap_object(SHARED, HUGE, RW, flags, ObjectPart::new(&file)).map_err(|e| e.to_string())?;
        space.mmap(OWN, HUGE, RW, OWN_FLAGS).map_err(|e| e.to_string())?;
        Ok(World {
            vm,
            space,
            file,
            is_starved: false,
            may_lack: false,
            stays_promised: false,
            shortens: false,
            removes: vec![],
            problems: Mutex::default(),
        })
    }

    fn problem(&self, text: String) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn counts(&self) -> HugetlbCounts {
        self.vm.hugetlb_counts(Order::PMD).expect("it has a pool")
    }

    /// Does the operation once more if it failed for want of frames, with frames free again.
    fn insist<T, E: core::fmt::Debug>(
        &self,
        what: &str,
        may_be: impl Fn(&E) -> bool,
        mut once: impl FnMut() -> Result<T, E>,
    ) -> Option<T> {
        let mut done = once();
        if self.is_starved && done.as_ref().is_err_and(|e| !may_be(e)) {
            self.vm.fail_allocation(None);
            done = once();
        }
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                if !may_be(&error) {
                    self.problem(format!("{what}: {error:?}, {:?}", self.counts()));
                }
                None
            }
        }
    }

    fn act(&self, deed: PoolDeed, me: u64, nr: u64, running: &Running<'_>) {
        match deed {
            PoolDeed::StoreShared => {
                let may_be = |trap: &Trap| match trap.cause {
                    FaultError::BeyondObject => true,
                    FaultError::NoHugePage => self.may_lack,
                    _ => false,
                };
                self.store(SHARED, me, nr, running, &may_be);
            }
            PoolDeed::StoreOwn => self.store(OWN, me, nr, running, &|_| false),
            PoolDeed::Punch => self.file.discard(0..512),
            PoolDeed::Shorten => {
                self.file.set_size_bytes(0);
                self.file.set_size_bytes(HUGE);
            }
            PoolDeed::Drop => _ = self.insist("a drop", |_| false, || self.space.madvise(OWN, HUGE, Advice::DontNeed)),
            // The child ends with the deed.
            PoolDeed::Fork => drop(self.insist("fork", |_| false, || self.space.fork())),
            PoolDeed::MapAndUnmap => self.map_and_unmap(me, nr, running),
            PoolDeed::Resize => {
                _ = self.vm.set_nr_hugepages(Order::PMD, NR_PAGES + 1);
                _ = self.vm.set_nr_hugepages(Order::PMD, NR_PAGES - 1);
                self.insist("a larger pool", |_| false, || self.vm.set_nr_hugepages(Order::PMD, NR_PAGES));
            }
            PoolDeed::Move => self.move_all(),
            PoolDeed::Report => {
                // Nobody else goes on meanwhile: what is counted is exact.
                let [nr, free, unreserved] = self.vm.hugetlb_counts_as_they_are(Order::PMD).expect("it has a pool");
                if free > nr || unreserved > free || unreserved < 0 {
                    self.problem(format!("of {nr} pages {free} are free, and {unreserved} without a claim"));
                }
                self.space.smaps(&mut |_| {});
            }
            PoolDeed::Allocate => self.allocate(),
            PoolDeed::MapFile => self.map_file(me, nr, running),
            PoolDeed::Subpool => self.with_subpool(me, nr, running),
            PoolDeed::Overcommit => self.overcommit(),
        }
    }

    /// Moves each page of the pool, free or in use, and what else may lie where a huge page may begin.
    fn move_all(&self) {
        for first in (0..self.vm.nr_frames() as u32).step_by(512) {
            if let Err(MigrateRefusal::Hugetlb | MigrateRefusal::CannotSplit) = self.vm.migrate_frame(Pfn(first)) {
                self.problem(format!("frame {first} cannot move"));
            }
        }
    }

    /// Stores a word that only this actor writes. Afterwards it is there, or zero where an actor removes pages.
    fn store(&self, at: u64, me: u64, nr: u64, running: &Running<'_>, may_be: &dyn Fn(&Trap) -> bool) {
        let (addr, mut now) = (at + me * 4096 + 8 * nr, [0; 8]);
        let what = format!("a store to {addr:#x}");
        if self.insist(&what, may_be, || running.store(addr, &nr.to_ne_bytes())).is_none() {
            return;
        }
        if self.insist("a load", may_be, || running.load(addr, &mut now)).is_some()
            && now != nr.to_ne_bytes()
            && !(now == [0; 8] && self.removes.contains(&at))
        {
            self.problem(format!("{what}: {nr} was stored, {now:?} is there"));
        }
    }

    /// Everything is given back: the pool has its pages, and none is promised. Then it gives them up.
    fn end(&self) -> Result<Option<String>, String> {
        if self.stays_promised
            && let Err(refused) = self.space.handle_fault(SHARED, Access::Write)
        {
            return Ok(Some(format!("the first touch of a promised page: {refused:?}, {:?}", self.counts())));
        }
        for at in [SHARED, OWN] {
            self.space.munmap(at, HUGE).map_err(|e| e.to_string())?;
        }
        self.file.set_size_bytes(0);
        // It may have grown less than was asked for, while allocations failed.
        self.vm.set_nr_hugepages(Order::PMD, NR_PAGES).map_err(|e| e.to_string())?;
        let HugetlbCounts { nr, free, reserved, surplus, .. } = self.counts();
        let wrong = (nr, free, reserved, surplus) != (NR_PAGES, NR_PAGES, 0, 0);
        let counts = format!("at the end: {:?}", self.counts());
        self.vm.set_nr_hugepages(Order::PMD, 0).map_err(|e| e.to_string())?;
        Ok(wrong.then_some(counts))
    }
}
