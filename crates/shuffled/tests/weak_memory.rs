//! The real code on CPUs whose stores wait in buffers (x86's total store order),
//! with TLBs that go stale: pairs of operations, each under many random schedules.
//!
//! The plain stores that ship are run as they are: entering and leaving a section,
//! taking frames from a frame cache, hints, generations. What a program stores waits in the
//! same buffers. Each barrier of these protocols has a mutant that a test here kills.

mod common;

use common::{FIXED_PRIVATE, NR_SLOTS, READ, RW, Shuffled, access, be, run, shuffled, vm};
use softfault_shuffled::sync::quietly;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{Access, AddressSpace, FaultError, ObjectPart, SharedObject, Term, Tunables, Vm};
use softfault_shuffled::{Advice, MapFlags, MremapFlags, Prot};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Actor = Box<dyn FnOnce() + Send>;

const BASE: u64 = 0x4000_0000;
/// In a leaf table of its own.
const ELSEWHERE: u64 = BASE + (2 << 20);
const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
/// mremap(2): may move, to a fixed place.
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
/// The same, and the source stays mapped (MREMAP_DONTUNMAP).
const KEEP: MremapFlags = MOVE.union(MremapFlags::DONTUNMAP);
const NR_CPUS: usize = 3;
const NR_FRAMES: u64 = 128;
const SCHEDULES: usize = 2500;
/// A visit has few moments at which its set of CPUs is behind.
const VISITS: usize = 10_000;
/// The value with which counting up ends.
const LAST: u64 = 8;

/// What threads share; leaked, since threads ask for `'static`.
#[derive(Clone, Copy)]
struct World {
    vm: &'static Vm<Machine>,
    space: &'static Space,
}

fn at(page: u64) -> u64 {
    BASE + page * 4096
}

impl World {
    /// Two mappings of four pages; one page of each is there, and so are all tables. Frames
    /// are claimed one at a time, so that a frame that was freed is soon used again.
    fn new() -> World {
        World::tuned(Tunables::default().with_zero_batch(1))
    }

    fn tuned(tunables: Tunables) -> World {
        be(0);
        let vm = vm(NR_CPUS, NR_FRAMES, tunables);
        let space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(at(0), 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.mmap(ELSEWHERE, 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.handle_fault(at(1), Access::Write).unwrap();
        space.handle_fault(ELSEWHERE + 3 * 4096, Access::Write).unwrap();
        World { vm, space }
    }

    fn store(&self, addr: u64, value: u64) -> Result<u64, FaultError> {
        access(self.space, self.vm, addr, Some(value))
    }

    fn load(&self, addr: u64) -> Result<u64, FaultError> {
        access(self.space, self.vm, addr, None)
    }

    fn check(&self, others: &[&Space]) {
        let mut spaces = vec![self.space];
        spaces.extend(others);
        self.vm.check(&spaces, &mut vec![0; NR_FRAMES as usize + NR_SLOTS]).unwrap();
    }

    /// Fresh pages are zero, and nobody else writes to their frames.
    fn use_fresh_pages(&self) {
        for page in 0..3 {
            let addr = ELSEWHERE + page * 4096;
            assert_eq!(self.load(addr), Ok(0), "a fresh page shows what another wrote");
            self.store(addr, 1000 + page).unwrap();
        }
        for page in 0..3 {
            let addr = ELSEWHERE + page * 4096;
            assert_eq!(self.load(addr), Ok(1000 + page), "a frame was used again while another CPU wrote to it");
        }
    }
}

/// Runs the actor as a CPU that runs the space.
fn inside(w: World, actor: impl FnOnce() + Send + 'static) -> Actor {
    Box::new(move || {
        let active = w.space.activate();
        actor();
        drop(active);
    })
}

/// CPU 1 stores to page 0 again and again, through its TLB or through a fault. CPU 0
/// takes the page or its rights away, and uses the frames again. A store that begins
/// after `op` has returned is refused if `is_final`. CPU 1 faults before, during and
/// after: its hint must not outlive the removal.
fn store_against(is_final: bool, op: impl Fn(World) + Sync + Send + Copy + 'static) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let remover = inside(w, move || {
            op(w);
            done.store(true, SeqCst);
            w.use_fresh_pages();
        });
        let program = inside(w, move || {
            for value in 1..=5 {
                let is_late = is_final && seen.load(SeqCst);
                match w.store(at(0), value) {
                    Ok(now) => assert!(now == value && !is_late, "a store after the removal"),
                    Err(FaultError::NotMapped | FaultError::NoRights | FaultError::Guard) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![remover, program]);
        w.check(&[]);
    });
}

#[test]
fn store_against_munmap_of_a_page() {
    store_against(true, |w| w.space.munmap(at(0), 4096).unwrap());
}

/// The tables go, too.
#[test]
fn store_against_munmap_of_everything() {
    store_against(true, |w| w.space.munmap(at(0), 4 * 4096).unwrap());
}

#[test]
fn store_against_mprotect() {
    store_against(true, |w| w.space.mprotect(at(0), 4096, READ).unwrap());
}

#[test]
fn store_against_another_mapping() {
    store_against(true, |w| {
        w.space.munmap(at(0), 4096).unwrap();
        w.space.mmap(at(0), 4096, READ, FIXED_PRIVATE).unwrap();
        assert_eq!(w.load(at(0)), Ok(0), "F4: what was written before munmap");
    });
}

#[test]
fn store_against_dontneed_of_a_whole_table() {
    store_against(false, |w| w.space.madvise(at(0), 4 * 4096, Advice::DontNeed).unwrap());
}

#[test]
fn store_against_mremap() {
    store_against(true, |w| _ = w.space.mremap(at(0), 4096, 4096, MOVE, at(8)).unwrap());
}

/// System calls of a CPU that does not run the space (F7).
fn visit_against(op: impl Fn(World) + Sync + Send + Copy + 'static) {
    shuffled(VISITS, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[1; 8]).unwrap();
        let remover = inside(w, move || {
            op(w);
            w.use_fresh_pages();
        });
        let visitor: Actor = Box::new(move || {
            for value in 1..=12u64 {
                let _ = w.space.write(at(0), &value.to_ne_bytes());
            }
        });
        run(NR_CPUS, vec![remover, visitor]);
        w.check(&[]);
    });
}

#[test]
fn visit_against_munmap() {
    visit_against(|w| {
        for round in 0..4 {
            w.space.munmap(at(0), 4096).unwrap();
            for _ in 0..3 {
                assert_eq!(w.load(at(0)), Err(FaultError::NotMapped), "I7: a page outside every VMA");
            }
            if round < 3 {
                w.space.mmap(at(0), 4096, RW, FIXED_PRIVATE).unwrap();
            }
        }
    });
}

/// The VMA stays: a section that begins late may find the old entry still.
#[test]
fn visit_against_dontneed() {
    visit_against(|w| w.space.madvise(at(0), 4096, Advice::DontNeed).unwrap());
}

type Child = Arc<Mutex<Option<Space>>>;

fn word_of(space: &Space, addr: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(addr, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Page 0 is written, and CPU 0 forks while the other CPUs do what they do. The child
/// has one moment's page: what it shows does not change.
fn fork_against(others: impl Fn(World) -> Vec<Actor> + Sync + Send + Copy + 'static) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[0; 16]).unwrap();
        let child = Child::default();
        let slot = child.clone();
        let forker = inside(w, move || {
            let child = w.space.fork().unwrap();
            let first = word_of(&child, at(0));
            for _ in 0..4 {
                assert_eq!(word_of(&child, at(0)), first, "F5: the child sees a later write");
            }
            *slot.lock().unwrap() = Some(child);
        });
        let mut actors = vec![forker];
        actors.extend(others(w));
        run(NR_CPUS, actors);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

/// Writes ever higher values to a word, which nobody else writes, and reads them.
fn count_up(w: World, addr: u64, write: impl Fn(World, u64, u64) + Send + 'static) -> Actor {
    inside(w, move || {
        for value in 1..=LAST {
            write(w, addr, value);
            assert_eq!(w.load(addr), Ok(value), "a write is lost");
        }
    })
}

/// By an instruction of the program's.
fn by_store(w: World, addr: u64, value: u64) {
    assert_eq!(w.store(addr, value), Ok(value));
}

/// By a system call: through the direct map, in a section.
fn by_call(w: World, addr: u64, value: u64) {
    w.space.write(addr, &value.to_ne_bytes()).unwrap();
}

#[test]
fn store_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_store)]);
}

#[test]
fn call_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_call)]);
}

/// While one forks, two write to one page: each copies what the other has written.
#[test]
fn two_writers_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_call), count_up(w, at(0) + 8, by_store)]);
}

/// A pinned page stays the parent's, and the child has another frame.
#[test]
fn pin_against_fork() {
    fork_against(|w| {
        let by_pin = |w: World, addr: u64, value: u64| {
            let pin = w.space.pin_page_mut(addr, Term::Short).unwrap();
            pin.write(0, &value.to_ne_bytes());
        };
        vec![count_up(w, at(0), by_pin)]
    });
}

/// The page moves to other frames under the CPU that uses it.
fn use_against_moves(write: fn(World, u64, u64)) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[0; 8]).unwrap();
        let mover: Actor = Box::new(move || {
            for _ in 0..3 {
                if let Some(there) = quietly(|| common::walk(w.space, w.vm, at(0))) {
                    let _ = w.vm.migrate_frame(there.pfn);
                }
            }
        });
        run(NR_CPUS, vec![mover, count_up(w, at(0), write)]);
        w.check(&[]);
        assert_eq!(word_of(w.space, at(0)), LAST);
    });
}

#[test]
fn store_against_moves() {
    use_against_moves(by_store);
}

#[test]
fn call_against_moves() {
    use_against_moves(by_call);
}

/// The mapping moves, from two leaf tables to two others, while a CPU stores in it. A
/// store that was done is at the new place (or, if the source stays, was done after
/// the move and is at the old one).
fn stores_against_mremap(flags: MremapFlags) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        let (old, new) = (BASE + (6 << 20) - 2 * 4096, BASE + (10 << 20) - 2 * 4096);
        w.space.mmap(old, 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        let stored: Arc<Mutex<[u64; 4]>> = Arc::default();
        let results = stored.clone();
        let mover = inside(w, move || _ = w.space.mremap(old, 4 * 4096, 4 * 4096, flags, new).unwrap());
        let program = inside(w, move || {
            for value in 1..=LAST {
                let page = value % 4;
                match w.store(old + page * 4096, value) {
                    Ok(_) => results.lock().unwrap()[page as usize] = value,
                    Err(FaultError::NotMapped) => return,
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![mover, program]);
        w.check(&[]);
        let stored = *stored.lock().unwrap();
        be(0);
        for (page, value) in (0..4).zip(stored) {
            let mut found = word_of(w.space, new + page * 4096);
            if flags == KEEP && value > 0 && found != value {
                found = word_of(w.space, old + page * 4096);
            }
            assert_eq!(found, value, "a page that was written is lost");
        }
    });
}

#[test]
fn stores_against_a_move_of_the_mapping() {
    stores_against_mremap(MOVE);
}

#[test]
fn stores_against_a_move_that_keeps_the_source() {
    stores_against_mremap(KEEP);
}

/// Nothing is put into an object beyond its size after the size has shrunk.
#[test]
fn store_against_a_smaller_object() {
    // The window is a few operations wide, and a schedule is short.
    shuffled(5 * SCHEDULES, || {
        let w = World::new();
        let object: &'static SharedObject<'static, Machine> =
            Box::leak(Box::new(w.vm.new_shared_object(2 * 4096).unwrap()));
        let part = ObjectPart::new(object);
        w.space.mmap_object(at(8), 2 * 4096, RW, FIXED_SHARED, part).unwrap();
        object.write(0, &[7; 8]).unwrap();
        let shrinker = inside(w, move || {
            for _ in 0..3 {
                object.set_size_bytes(2 * 4096);
                object.set_size_bytes(4096);
                assert_eq!(object.nr_resident_pages(), 1, "I22: a page beyond the size");
            }
        });
        let program = inside(w, move || {
            for value in 1..=12 {
                match w.store(at(9), value) {
                    Ok(_) | Err(FaultError::BeyondObject) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        run(NR_CPUS, vec![shrinker, program]);
        assert_eq!(object.nr_resident_pages(), 1, "I22: a page beyond the size");
        w.check(&[]);
    });
}

/// Page 14 may be read and page 15 written, all the time. What comes lies below, in
/// the same node, and moves their records in it. Two retired nodes are freed.
#[test]
fn lookups_against_deferred_nodes() {
    shuffled(SCHEDULES, || {
        let w = World::tuned(Tunables::default().with_deferred_nodes_max(2));
        w.space.mmap(at(14), 4096, READ, FIXED_PRIVATE).unwrap();
        w.space.mmap(at(15), 4096, RW, FIXED_PRIVATE).unwrap();
        let mapper = inside(w, move || {
            for page in [12, 10, 8, 6] {
                w.space.mmap(at(page), 4096, Prot::NONE, FIXED_PRIVATE).unwrap();
            }
        });
        let program = inside(w, move || {
            for _ in 0..8 {
                assert_eq!(w.space.handle_fault(at(14), Access::Write), Err(FaultError::NoRights), "F6");
                assert!(w.space.handle_fault(at(15), Access::Write).is_ok(), "F6");
            }
        });
        run(NR_CPUS, vec![mapper, program]);
        w.check(&[]);
    });
}

/// Few frames are free, and three CPUs want them, each for pages of its own. Groups
/// are robbed; no frame is had twice or lost, and what was written stays.
#[test]
fn thieves() {
    shuffled(SCHEDULES, || {
        let w = nearly_nothing(4);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let taker = |cpu: u64| {
            inside(w, move || {
                let mut has = [false; 2];
                for turn in 0..6u64 {
                    let i = (turn % 2) as usize;
                    let addr = ELSEWHERE + (1 + cpu) * 8 * 4096 + i as u64 * 4096;
                    if has[i] {
                        assert_eq!(w.load(addr), Ok(cpu * 100 + turn - 2), "I10: a frame was had twice");
                        w.space.madvise(addr, 4096, Advice::DontNeed).unwrap();
                        has[i] = false;
                    }
                    match w.store(addr, cpu * 100 + turn) {
                        Ok(_) => has[i] = true,
                        Err(FaultError::OutOfFrames) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        };
        run(NR_CPUS, (0..3).map(taker).collect());
        w.check(&[]);
        let nr_used = (0..3).flat_map(|cpu| [0, 1].map(|i| ELSEWHERE + (1 + cpu) * 8 * 4096 + i * 4096));
        let nr_used = nr_used.filter(|addr| common::walk(w.space, w.vm, *addr).is_some()).count() as u64;
        assert_eq!(w.vm.vmstat().nr_free_pages + nr_used, nr_free, "I10: a frame is lost");
    });
}

/// Each of two faults claims what it finds. Neither is refused: there are frames for
/// both, in the blocks, on their way, or in the other's frame cache.
#[test]
fn frames_on_their_way() {
    shuffled(SCHEDULES, || {
        let w = nearly_nothing(2);
        let taker = |cpu: u64| inside(w, move || by_store(w, ELSEWHERE + (1 + cpu) * 8 * 4096, 1));
        run(NR_CPUS, (0..2).map(taker).collect());
        w.check(&[]);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0);
    });
}

/// All frames are in use but for `nr_left`, which lie in the blocks: every frame cache is
/// empty.
fn nearly_nothing(nr_left: u64) -> World {
    let w = World::tuned(Tunables::default().with_zero_batch(4));
    w.space.mmap(ELSEWHERE + 8 * 4096, 64 * 4096, RW, FIXED_PRIVATE).unwrap();
    w.space.mmap(at(64), 256 * 4096, RW, FIXED_PRIVATE).unwrap();
    let nr_pages = (0..256).take_while(|page| w.space.handle_fault(at(64 + page), Access::Write).is_ok()).count();
    assert!(nr_pages > 8 && nr_pages < 256);
    w.space.madvise(at(64), nr_left * 4096, Advice::DontNeed).unwrap();
    assert_eq!(w.vm.vmstat().nr_free_pages, nr_left);
    w
}
