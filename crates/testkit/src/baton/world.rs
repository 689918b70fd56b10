//! The state that the actors of a round share: the space, its mappings, and their known contents.

use super::actor::{At, Place};
use super::deed::Deed;
use super::file::{Answers, Reads, RoundFile};
use super::history::History;
use super::turns::Turns;
use super::{
    FILE, FILE_PAGES, HEAP, HEAP_PAGES, NR_KNOWN, NR_PAGES, OBJECT, OBJECT_PAGES, PLACES, PRIVATE_FILE, RW, file_pages,
    heap_pages, known, nr_known_pages, object_pages, offset_of, private_pages,
};
use crate::op::PAGE;
use crate::random::Random;
use softfault::policy::folio::FolioOrders;
use softfault::{AddressSpace, CpuId, MapFlags, MmapError, ObjectPart, Order, SharedObject, Vm};
use softfault_host::Hosted;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Turns without the end of any operation after which those who may wait for reads probably do.
const STUCK: u64 = 300;
/// And after which others do, who may not: a collapse takes thousands of turns.
const STUCK_FOR_GOOD: u64 = 100_000;

/// State that all actors share.
pub(super) struct World<'vm> {
    pub(super) vm: &'vm Vm<Hosted>,
    pub(super) space: AddressSpace<'vm, Hosted>,
    pub(super) object: SharedObject<'vm, Hosted>,
    pub(super) file: Arc<RoundFile>,
    pub(super) file_object: SharedObject<'vm, Hosted>,
    /// Whether a hole may have new bytes: a pinned folio stays whole, and is zeroed.
    pub(super) has_small_folios: bool,
    /// The present deed of each actor.
    pub(super) doing: Mutex<Vec<Option<Deed>>>,
    pub(super) known: [u64; NR_KNOWN],
    pub(super) turns: Arc<Turns>,
    pub(super) history: Mutex<History>,
    pub(super) place: Mutex<Place>,
    /// Whether some actor swaps pages out.
    pub(super) has_pager: bool,
}

impl<'vm> World<'vm> {
    pub(super) fn new(
        vm: &'vm Vm<Hosted>,
        turns: Arc<Turns>,
        seed: u64,
        deeds: &[Vec<Deed>],
    ) -> Result<World<'vm>, String> {
        let space = vm.new_space().map_err(|e| e.to_string())?;
        let object = vm.new_shared_object(OBJECT_PAGES * PAGE).map_err(|e| e.to_string())?;
        let file = Arc::new(RoundFile::new(seed, turns.clone()));
        let orders = if (seed / 2).is_multiple_of(2) {
            Some(FolioOrders::BASE)
        } else {
            FolioOrders::new(Order(0), Order(2)).ok()
        };
        let (has_small_folios, orders) = (orders == Some(FolioOrders::BASE), orders.ok_or("no such folios")?);
        let file_object = vm
            .new_file_object(FILE_PAGES * PAGE, orders, vm.machine().add_file(file.clone()))
            .map_err(|e| e.to_string())?;
        let mut history = History::new(nr_known_pages());
        for (index, (page, private)) in file_pages().zip(private_pages()).enumerate() {
            history.has_at_first(page, file.word(index as u64));
            history.is_before(private, page);
        }
        let at = At { base: PLACES[0], file: PRIVATE_FILE[0] };
        let world = World {
            vm,
            space,
            object,
            file,
            file_object,
            has_small_folios,
            doing: Mutex::new(vec![None; deeds.len()]),
            known: known(seed),
            turns,
            history: Mutex::new(history),
            place: Mutex::new(Place { at, is_changing: false }),
            has_pager: deeds.iter().flatten().any(|deed| *deed == Deed::SwapOut),
        };
        world.map(PLACES[0], 0, NR_PAGES).map_err(|e| e.to_string())?;
        world.map_object().map_err(|e| e.to_string())?;
        world.map_file(FILE, MapFlags::SHARED).map_err(|e| e.to_string())?;
        world.map_file(PRIVATE_FILE[0], MapFlags::PRIVATE).map_err(|e| e.to_string())?;
        world.space.set_brk(HEAP);
        if world.space.brk(HEAP + HEAP_PAGES * PAGE) == HEAP {
            return Err("no heap".into());
        }
        // Some pages are there from the beginning.
        let mut random = Random::new(seed ^ 0x5eed);
        for page in (0..NR_KNOWN).chain(file_pages()).chain(private_pages()) {
            let addr = world.addr_of(page, at);
            if page >= NR_KNOWN && random.chance(30) {
                world.space.read(addr, &mut [0]).map_err(|e| e.to_string())?;
            } else if random.chance(40) {
                let value = 1 + page as u64;
                let id = world.history().begin(page, value);
                world.space.write(addr, &value.to_ne_bytes()).map_err(|e| e.to_string())?;
                world.history().end(id, true);
            }
        }
        Ok(world)
    }

    pub(super) fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine's part, where it ends reads later: actor `me`, which has no deeds.
    pub(super) fn end_reads(&self, me: usize, reads: Reads) {
        let _cpu = self.vm.machine().bind(CpuId(me as u16)).expect("a CPU for it");
        let playing = self.turns.begin(me);
        loop {
            let is_last = self.turns.is_last(me);
            let are_stuck = reads.answers == Answers::Never && self.file.has_reads() && self.are_stuck();
            if is_last || are_stuck || reads.answers == Answers::Late {
                self.file.answer(self.vm, is_last || are_stuck);
            }
            if is_last && !self.file.has_reads() {
                break;
            }
            if self.file.has_reads() { self.turns.pass() } else { self.turns.rest(me) }
        }
        drop(playing);
    }

    /// Whether no actor can go on, since reads do not end. Then each that still runs must want a page.
    pub(super) fn are_stuck(&self) -> bool {
        let nr_idle = self.turns.nr_idle();
        if nr_idle < STUCK {
            return false;
        }
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(other) = doing.into_iter().flatten().find(|deed| !deed.may_want_a_page()) else { return true };
        if nr_idle > STUCK_FOR_GOOD {
            self.history().problems.push(format!("{other:?} waits for a read that does not end"));
        }
        nr_idle > STUCK_FOR_GOOD
    }

    pub(super) fn map_file(&self, at: u64, kind: MapFlags) -> Result<(), MmapError> {
        let part = ObjectPart::new(&self.file_object);
        self.space.mmap_object(at, FILE_PAGES * PAGE, RW, kind | MapFlags::FIXED, part).map(drop)
    }

    pub(super) fn map(&self, base: u64, first: u64, nr: u64) -> Result<(), MmapError> {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
        self.space.mmap(base + first * PAGE, nr * PAGE, RW, flags).map(drop)
    }

    pub(super) fn map_object(&self) -> Result<(), MmapError> {
        let part = ObjectPart::new(&self.object);
        self.space.mmap_object(OBJECT, OBJECT_PAGES * PAGE, RW, MapFlags::SHARED | MapFlags::FIXED, part).map(drop)
    }

    /// The known ones among these pages of private memory.
    pub(super) fn known_in(&self, range: &Range<u64>) -> impl Iterator<Item = usize> + use<> {
        let (known, range) = (self.known, range.clone());
        (0..NR_KNOWN).filter(move |page| range.contains(&known[*page]))
    }

    /// Where a known page is, given where private memory and the private mapping of the file are.
    pub(super) fn addr_of(&self, page: usize, at: At) -> u64 {
        let areas = [(object_pages(), OBJECT), (heap_pages(), HEAP), (file_pages(), FILE), (private_pages(), at.file)];
        let start = match areas.into_iter().find(|(pages, _)| pages.contains(&page)) {
            Some((pages, start)) => start + (page - pages.start) as u64 * PAGE,
            None => at.base + self.known[page] * PAGE,
        };
        start + offset_of(page)
    }

    /// At the end everything is mapped, and nothing is under way.
    pub(super) fn look_at_all(&self) {
        let at = self.place.lock().unwrap_or_else(PoisonError::into_inner).at;
        for page in 0..nr_known_pages() {
            let mut bytes = [0; 8];
            let read = self.space.read(self.addr_of(page, at), &mut bytes);
            let mut history = self.history();
            let now = history.tick();
            match read {
                Ok(()) => history.saw(page, u64::from_ne_bytes(bytes), now, now + 1, "at the end"),
                Err(error) => history.problems.push(format!("at the end: page {page}: {error}")),
            }
        }
    }
}
