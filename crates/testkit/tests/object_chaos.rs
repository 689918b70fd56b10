//! Everything that can be done to pages of objects, by four CPUs at once, at random: accesses, discards, sizes, moves,
//! swap, failing memory and allocations, pins, descriptors of tails.
//!
//! A page shows zeroes or what was written to it, and pages of an object from which nothing is taken show what was
//! written last. Invariants, zeroes and counts of frames are checked after each round. A round takes a second and a
//! half, so that none is run unless it is asked for:
//!
//! ```sh
//! CHAOS_SEED=1 cargo test -p softfault-testkit --test object_chaos -- --ignored
//! ```
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, orders};
use common::*;
use softfault::policy::compact::CompactBudget;
use softfault::policy::folio::FolioOrders;
use softfault::policy::huge::Enabled;
use softfault::{Access, CpuId, FaultLocking, HugeKnobs, MlockFlags, ObjectPart, Pfn, PinMut, Term, Tunables, Vm};
use softfault_host::Mode;
use softfault_testkit::formats::Tested;
use softfault_testkit::random::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const AT: u64 = 0x20_0000_0000;
/// Where the object is mapped from which nothing is taken.
const SAFE: u64 = 0x28_0000_0000;
const NR_SAFE: u64 = 512;
const NR_CPUS: u16 = 4;
const ROUND: Duration = Duration::from_millis(1500);
/// Most frames that fail in a round.
const MOST_POISONED: u64 = 60;

/// The sizes of a machine and of its object.
#[derive(Clone, Copy)]
struct Size {
    nr_pages: u64,
    arena_bytes: u64,
    /// Pages of a long discard.
    nr_discarded: u64,
}

const SMALL: Size = Size { nr_pages: 3 * 512, arena_bytes: 24 << 20, nr_discarded: 700 };
const GIB: Size = Size { nr_pages: 262_144 + 1024, arena_bytes: 3200 << 20, nr_discarded: 250_000 };

/// Returns the word that a page shows once it was written.
fn tag(page: u64) -> u64 {
    page * 0x0101_0101_0001 + 0x77
}

fn is_of(page: u64, bytes: [u8; 8]) {
    let word = u64::from_le_bytes(bytes);
    assert!(word == 0 || word == tag(page), "page {page}: {word:x}");
}

#[test]
#[ignore = "takes 21 s"]
fn folios_up_to_2_mib() {
    for seed in 0..2 {
        for (i, (least, most)) in [(0, 9), (0, 0), (0, 3), (1, 9), (2, 5), (9, 9), (3, 3)].into_iter().enumerate() {
            round(seed * 7 + i as u64, SMALL, orders(least, most), orders(least, most));
        }
    }
}

#[test]
#[ignore = "takes a minute and 3 GiB"]
fn folios_up_to_1_gib() {
    for (i, (least, most)) in [(0, 18), (9, 18), (18, 18)].into_iter().enumerate() {
        round(100 + i as u64, GIB, orders(least, most), orders(0, 9));
    }
}

fn vm(seed: u64, size: Size) -> Vm<Hosted> {
    let config = Format::config()
        .with_nr_cpus(NR_CPUS as usize + 1)
        .with_arena_bytes(size.arena_bytes + (seed % 2) * (16 << 20))
        .with_swap_bytes(100 * PAGE)
        .with_tlb_entries(64)
        .with_mode([Mode::Interrupt, Mode::Broadcast][(seed / 2 % 2) as usize])
        .with_strict_bbm(seed / 4 % 2 == 1);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
    let tunables = Tunables::default().with_thp(thp).with_fault_locking(FaultLocking::ALL[seed as usize % 4]);
    Vm::new(Hosted::with_format(config).unwrap(), tunables).unwrap()
}

/// Other rounds for each number in `CHAOS_SEED`.
fn first_seed() -> u64 {
    std::env::var("CHAOS_SEED").map_or(0, |number| 1000 * number.parse::<u64>().expect("CHAOS_SEED: a number"))
}

fn round(seed: u64, size: Size, orders: FolioOrders, safe_orders: FolioOrders) {
    let seed = first_seed() + seed;
    eprintln!("seed {seed}, {orders:?}");
    let vm = &vm(seed, size);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_used = || vm.vmstat().nr_total_pages - vm.vmstat().nr_free_pages;
    let before = nr_used();
    let nr_poisoned = &AtomicU64::new(0);
    {
        let object = &vm.new_shared_object_of(size.nr_pages * PAGE, orders).unwrap();
        let safe = &vm.new_shared_object_of(NR_SAFE * PAGE, safe_orders).unwrap();
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            for id in 1..=NR_CPUS {
                let random = Random::new(seed * 16 + u64::from(id));
                let world = Shared { vm, size, object, safe, nr_poisoned };
                scope.spawn(move || {
                    Actor { world, id, random, pins: Vec::new(), mine: [0; NR_SAFE as usize] }.act(stop)
                });
            }
            thread::sleep(ROUND);
            stop.store(true, SeqCst);
        });
        vm.machine().fail_swap(false, false);
        vm.fail_allocation(None);
        check(vm, &[]);
        let mut bytes = [0; 8];
        for page in 0..object.size_bytes() / PAGE {
            if object.read(page * PAGE, &mut bytes) == 8 {
                is_of(page, bytes);
            }
        }
        check(vm, &[]);
    }
    check(vm, &[]);
    assert_eq!(nr_used(), before + nr_poisoned.load(SeqCst));
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(vm), Ok(()));
    assert_eq!(vm.machine().violations(), (0, None));
}

#[derive(Clone, Copy)]
struct Shared<'a, 'vm> {
    vm: &'vm Vm<Hosted>,
    size: Size,
    object: &'a Object<'vm>,
    safe: &'a Object<'vm>,
    nr_poisoned: &'a AtomicU64,
}

/// One CPU.
struct Actor<'a, 'vm> {
    world: Shared<'a, 'vm>,
    id: u16,
    random: Random,
    pins: Vec<(u64, PinMut<'vm, Hosted>)>,
    /// Its last stores to its own pages of the safe object.
    mine: [u64; NR_SAFE as usize],
}

impl<'vm> Actor<'_, 'vm> {
    /// Lives in one space after the other.
    fn act(&mut self, stop: &AtomicBool) {
        let vm = self.world.vm;
        let cpu = vm.machine().bind(CpuId(self.id)).unwrap();
        while !stop.load(SeqCst) {
            if self.id == 1 {
                vm.fail_allocation(None);
            }
            let Ok(space) = vm.new_space() else { continue };
            if self.map(&space).is_none() {
                continue;
            }
            let running = cpu.enter(&space).unwrap();
            for _ in 0..400 {
                self.step(&space, &running);
            }
            self.pins.truncate(6);
        }
        self.pins.clear();
    }

    fn map(&self, space: &Space<'vm>) -> Option<()> {
        let Shared { object, safe, size, .. } = self.world;
        let flags = softfault::MapFlags::SHARED | FIXED;
        space.mmap_object(AT, size.nr_pages * PAGE, RW, flags, ObjectPart::new(object)).ok()?;
        space.mmap_object(SAFE, NR_SAFE * PAGE, RW, flags, ObjectPart::new(safe)).ok()?;
        space.mmap(BASE, 64 * PAGE, RW, PRIVATE | FIXED).ok().map(drop)
    }

    fn step(&mut self, space: &Space<'vm>, running: &Running<'_>) {
        // Near one of the ends.
        let near = self.random.below(1536);
        let page = if self.random.below(2) == 0 { near } else { self.world.size.nr_pages - 1 - near };
        match self.random.below(34) {
            0..=7 => self.access(page, running),
            8..=10 => self.remove(page),
            11..=18 => self.go_away(page, space),
            19..=20 => self.pin(page, space),
            21 => _ = self.world.object.free_tail_descs(page),
            22 => _ = self.world.object.restore_tail_descs(page),
            23..=29 => self.beside(page, space, running),
            _ => self.access_own(space, running),
        }
    }

    fn access(&mut self, page: u64, running: &Running<'_>) {
        let (object, at, mut bytes) = (self.world.object, AT + page * PAGE, [0; 8]);
        match self.random.below(8) {
            0..=2 => _ = running.store(at, &tag(page).to_le_bytes()),
            3..=5 if running.load(at, &mut bytes).is_ok() => is_of(page, bytes),
            6 => _ = object.write(page * PAGE, &tag(page).to_le_bytes()),
            7 if object.read(page * PAGE, &mut bytes) == 8 => is_of(page, bytes),
            _ => {}
        }
    }

    fn remove(&mut self, page: u64) {
        let Shared { object, size, .. } = self.world;
        match self.random.below(3) {
            0 => {
                let nr = [1, 3, 100, size.nr_discarded][self.random.below(4) as usize];
                object.discard(page..page + nr);
            }
            1 => object.set_size_bytes(self.random.below(size.nr_pages * PAGE) + 1),
            _ => object.set_size_bytes(size.nr_pages * PAGE),
        }
    }

    /// Moves, swap, failures.
    fn go_away(&mut self, page: u64, space: &Space<'vm>) {
        let Shared { vm, nr_poisoned, .. } = self.world;
        let there = |at: u64| space.translate_at_rest(at).map(|there| there.pfn);
        let own = self.own();
        match self.random.below(8) {
            0 | 1 => _ = there(AT + page * PAGE).map(|pfn| vm.migrate_frame(Pfn(pfn.0 + self.random.below(4) as u32))),
            2 => _ = vm.migrate_frame(Pfn(self.random.below(vm.nr_frames()) as u32)),
            3 | 4 => _ = there(AT + page * PAGE).map(|pfn| vm.swap_out_frame(pfn)),
            5 => _ = there(SAFE + own * PAGE).map(|pfn| vm.swap_out_frame(pfn)),
            6 => _ = there(BASE + page % 64 * PAGE).map(|pfn| vm.swap_out_frame(pfn)),
            _ if self.random.below(8) == 0 && nr_poisoned.load(SeqCst) < MOST_POISONED => {
                if let Some(pfn) = there(AT + page * PAGE) {
                    nr_poisoned.fetch_add(u64::from(vm.poison_frame(pfn).is_ok()), SeqCst);
                }
            }
            _ => {}
        }
    }

    fn pin(&mut self, page: u64, space: &Space<'vm>) {
        if self.random.below(2) == 0 && !self.pins.is_empty() {
            let (page, pin) = self.pins.swap_remove(self.random.below(self.pins.len() as u64) as usize);
            pin.write(0, &tag(page).to_le_bytes());
            return;
        }
        let term = if self.random.below(2) == 0 { Term::Short } else { Term::Long };
        if let Ok(pin) = space.pin_page_mut(AT + page * PAGE, term) {
            pin.write(0, &tag(page).to_le_bytes());
            self.pins.push((page, pin));
        }
    }

    /// Other work at the same time: private pages, forks, compaction, locks, failures.
    fn beside(&mut self, page: u64, space: &Space<'vm>, running: &Running<'_>) {
        let vm = self.world.vm;
        match self.random.below(7) {
            0 => drop(space.fork()),
            1 => (0..16).for_each(|i| _ = running.store(BASE + (page + i) % 64 * PAGE, &[1; 8])),
            2 => _ = space.madvise(BASE, 64 * PAGE, DONTNEED),
            3 => _ = space.madvise(AT + page / 512 * 512 * PAGE, 512 * PAGE, DONTNEED),
            4 => _ = vm.compact_step(&CompactBudget::BACKGROUND),
            5 => {
                _ = space.mlock(AT + page * PAGE, PAGE, MlockFlags::empty());
                _ = space.munlock(AT + page * PAGE, PAGE);
            }
            _ if self.random.below(3) == 0 => vm.fail_allocation(Some(self.random.below(5))),
            _ => vm.machine().fail_swap(self.random.below(4) == 0, self.random.below(4) == 0),
        }
    }

    /// A page of the safe object that only this actor writes.
    fn own(&mut self) -> u64 {
        self.random.below(NR_SAFE / 4) * 4 + u64::from(self.id - 1)
    }

    fn access_own(&mut self, space: &Space<'vm>, running: &Running<'_>) {
        let own = self.own();
        let (at, mine) = (SAFE + own * PAGE + 8, &mut self.mine[own as usize]);
        let mut bytes = [0; 8];
        match self.random.below(4) {
            0 | 1 if running.store(at, &(*mine + 1).to_le_bytes()).is_ok() => *mine += 1,
            2 if running.load(at, &mut bytes).is_ok() => assert_eq!(u64::from_le_bytes(bytes), *mine, "page {own}"),
            3 => {
                _ = space.handle_fault(at, Access::Read);
                _ = space.translate_at_rest(at).map(|there| self.world.vm.migrate_frame(there.pfn));
                _ = self.world.safe.free_tail_descs(0);
            }
            _ => {}
        }
    }
}
