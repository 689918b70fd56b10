//! I28, where several CPUs are at work: a call is refused frames in a bounded number of
//! attempts whatever the others do, and only if there are none. `last_frames.rs` has
//! one CPU.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, huge_pages, map};
use common::turns::TwoCpus;
use common::{DONTNEED, FIXED, GUARD_INSTALL, PAGE, PRIVATE, READ, RW, SHARED, Space, check};
use softfault::policy::huge::{Defrag, Enabled};
use softfault::{Access, Advice, CpuId, Errno, Event, HugeKnobs, Machine, MadviseError, MmapError, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

const NO_HUGE_PAGES: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
/// Pages of the other program.
const OTHER: u64 = 0x30_0000_0000;

fn machine(nr_cpus: usize, arena_bytes: u64, thp: HugeKnobs) -> Vm<Hosted> {
    let hosted = Hosted::new(HostedConfig::default().with_nr_cpus(nr_cpus).with_arena_bytes(arena_bytes)).unwrap();
    Vm::new(hosted, Tunables::default().with_thp(thp).with_min_free_kbytes(Some(0)).with_watermark_scale_factor(0))
        .unwrap()
}

// Nobody is refused for frames in the hand of a call that does not get all it needs.

/// One frame is free, which `call` takes and which is not enough for it. CPU 1 touches a
/// page at each moment of the call at which others run.
fn leaves_a_frame_to_others(prepare: impl Fn(&Space<'_>), call: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    // So many blocks that a search for a frame lets others run.
    let cpus = TwoCpus::new(64 << 20);
    let mut nr_found = 0;
    for begin in 0.. {
        let prepare = |space: &Space<'_>| {
            map(space, AT, 2 * PAGE);
            (0..2).for_each(|page| space.write(AT + page * PAGE, &[1]).unwrap());
            cpus.vm.age(0, 1);
            prepare(space);
            space.madvise(AT, PAGE, DONTNEED).unwrap();
            assert_eq!(cpus.vm.vmstat().nr_free_pages, 1);
        };
        let first = |space: &Space<'_>| call(&cpus.vm, space);
        let second = |space: &Space<'_>| space.handle_fault(AT, Access::Write).is_ok();
        let look = |_: &Space<'_>, (), found| {
            nr_found += u64::from(found);
            assert!(found || cpus.vm.vmstat().nr_free_pages == 0, "I28: refused at wait {begin} with a frame free");
        };
        if !cpus.play(begin, prepare, first, second, look) {
            break;
        }
    }
    assert!(nr_found > 0);
}

#[test]
fn a_space_that_is_not_made_leaves_its_frame() {
    leaves_a_frame_to_others(|_| (), |vm, _| assert!(vm.new_space().is_err()));
}

#[test]
fn an_object_without_a_node_leaves_its_frame() {
    let at = |i: u64| AT + HUGE + 2 * i * PAGE;
    let refused = |space: &Space<'_>, i, flags| {
        let result = space.mmap(at(i), PAGE, if i % 2 == 0 { RW } else { READ }, flags | FIXED);
        assert!(matches!(result, Ok(_) | Err(MmapError::OutOfFrames(_))), "{result:?}");
        result.is_err()
    };
    // Until the pool has no node for one mapping more.
    let prepare = |space: &Space<'_>| assert!((0..1000).any(|i| refused(space, i, PRIVATE)));
    let call = |_: &Vm<Hosted>, space: &Space<'_>| {
        let next = (0..1000).find(|i| space.vma(at(*i)).is_none()).unwrap();
        assert!(refused(space, next, SHARED), "an object and a node need two frames");
    };
    leaves_a_frame_to_others(prepare, call);
}

/// A program in full memory, with `nr_free` frames free and hardly a node in its pool,
/// and where its next mapping goes.
fn with_frames_free(vm: &Vm<Hosted>, space: &Space<'_>, nr_free: u64) -> u64 {
    map(space, AT, 16 * PAGE);
    (0..16).for_each(|page| space.write(AT + page * PAGE, &[1]).unwrap());
    map(space, AT + HUGE, 64 * HUGE);
    vm.age(0, 1);
    let at = |i: u64| AT + 128 * HUGE + 2 * i * PAGE;
    let next = (0..1000).find(|i| space.mmap(at(*i), PAGE, RW, PRIVATE | FIXED).is_err()).unwrap();
    (0..nr_free).for_each(|page| space.madvise(AT + page * PAGE, PAGE, DONTNEED).unwrap());
    assert_eq!(vm.vmstat().nr_free_pages, nr_free);
    at(next)
}

#[test]
fn a_refused_call_keeps_no_frame() {
    const MAPPED: u64 = AT + HUGE;
    type Call = fn(&Space<'_>, u64) -> Result<(), Errno>;
    let calls: [(&str, Call); 9] = [
        ("mmap", |space, at| space.mmap(at, PAGE, RW, PRIVATE | FIXED).map(drop).map_err(|e| e.errno())),
        ("mmap, shared", |space, at| space.mmap(at, PAGE, RW, SHARED | FIXED).map(drop).map_err(|e| e.errno())),
        ("mmap, over", |space, _| space.mmap(MAPPED, PAGE, READ, PRIVATE | FIXED).map(drop).map_err(|e| e.errno())),
        ("mmap, over, shared", |space, _| {
            space.mmap(MAPPED + PAGE, PAGE, READ, SHARED | FIXED).map(drop).map_err(|e| e.errno())
        }),
        ("munmap", |space, _| space.munmap(MAPPED + PAGE, PAGE).map_err(|e| e.errno())),
        ("mprotect", |space, _| space.mprotect(MAPPED + PAGE, PAGE, READ).map_err(|e| e.errno())),
        ("madvise", |space, _| space.madvise(MAPPED + PAGE, PAGE, Advice::NoHugePage).map_err(|e| e.errno())),
        ("guards", |space, _| space.madvise(MAPPED, 5 * HUGE, GUARD_INSTALL).map_err(|e| e.errno())),
        ("fork", |space, _| space.fork().map(drop).map_err(|e| e.errno())),
    ];
    for (name, call) in calls {
        let refused = |nr_free: &u64| {
            let vm = machine(1, 16 << 20, NO_HUGE_PAGES);
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            let space = vm.new_space().unwrap();
            let at = with_frames_free(&vm, &space, *nr_free);
            let result = call(&space, at);
            assert!(matches!(result, Ok(()) | Err(Errno::ENOMEM)), "{name}: {result:?}");
            if result.is_err() {
                assert_eq!(vm.vmstat().nr_free_pages, *nr_free, "I28: {name} was refused, and keeps frames");
            }
            check(&vm, &[&space]);
            result.is_err()
        };
        let nr_refused = (0..16).take_while(refused).count();
        assert!((1..16).contains(&nr_refused), "{name}: {nr_refused} frames are too few");
    }
}

std::thread_local! {
    /// Which of two CPUs the thread is, while they take turns as a seed says.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Two CPUs of which one runs at a time, until a wait at which the seed says so.
struct Dice {
    random: AtomicU64,
    turn: AtomicUsize,
    done: [AtomicBool; 2],
}

impl Dice {
    fn new(seed: u64) -> Dice {
        let random = AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Dice { random, turn: AtomicUsize::new(0), done: Default::default() }
    }

    fn pass(&self) {
        let Some(me) = ME.get() else { return };
        let mut random = self.random.load(SeqCst);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, SeqCst);
        if random >> 60 & 1 == 1 {
            self.turn.store(1 - me, SeqCst);
        }
        self.await_turn(me);
    }

    fn await_turn(&self, me: usize) {
        while self.turn.load(SeqCst) != me && !self.done[1 - me].load(SeqCst) {
            std::thread::yield_now();
        }
    }

    fn take_turns<T>(&self, me: usize, f: impl FnOnce() -> T) -> T {
        self.await_turn(me);
        ME.set(Some(me));
        let result = f();
        ME.set(None);
        self.done[me].store(true, SeqCst);
        result
    }
}

/// Each of two programs needs an object, a member and a node, for which there are frames once.
#[test]
fn of_two_calls_one_gets_what_is_there() {
    let mut nr_of_one = 0;
    for seed in 0..200 {
        let vm = machine(2, 64 << 20, NO_HUGE_PAGES);
        let dice = Arc::new(Dice::new(seed));
        let hook = dice.clone();
        assert!(vm.machine().on_wait(Box::new(move || hook.pass())).is_ok());
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
        let nodes = |space: &Space<'_>, i| space.mmap(AT + 128 * HUGE + 2 * i * PAGE, PAGE, RW, PRIVATE | FIXED);
        // Until the pool of the other one is as empty as the first one's will be.
        map(&space, AT, 300 * PAGE);
        (0..300).for_each(|page| space.write(AT + page * PAGE, &[1]).unwrap());
        vm.age(0, 1);
        let next = [&space, &other].map(|space| (0..2000).find(|i| nodes(space, *i).is_err()).unwrap());
        // In different words of the bitmap.
        [0, 100, 200].iter().for_each(|page| space.madvise(AT + page * PAGE, PAGE, DONTNEED).unwrap());
        assert_eq!(vm.vmstat().nr_free_pages, 3);
        drop(cpu);
        let call = |me: usize, space: &Space<'_>| {
            let _cpu = vm.machine().bind(CpuId(me as u16)).unwrap();
            let at = AT + 128 * HUGE + 2 * next[me] * PAGE;
            dice.take_turns(me, || space.mmap(at, PAGE, RW, SHARED | FIXED).is_ok())
        };
        let (one, two) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| call(1, &other));
            (call(0, &space), theirs.join().unwrap())
        });
        assert!(one || two, "I28: each was refused for what the other had, with seed {seed}");
        nr_of_one += u64::from(one != two);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        check(&vm, &[&space, &other]);
        drop((space, other));
    }
    assert!(nr_of_one > 100, "{nr_of_one} seeds with frames for one");
}

// Large reserves.

/// Memory is full of huge pages with one page in use each, but for 20 frames.
fn with_underused(nr_tables: u64, test: impl Fn(&Vm<Hosted>, &Space<'_>, &Space<'_>)) {
    let khugepaged = HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(400);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Never).with_khugepaged(khugepaged);
    let vm = machine(1, 32 << 20, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    map(&other, OTHER, 64 * HUGE);
    map(&space, AT, nr_tables * HUGE);
    space.madvise(AT, PAGE, GUARD_INSTALL).unwrap();
    let is_huge = |i: &u64| {
        other.write(OTHER + i * HUGE, &[1]).unwrap();
        huge_pages(&other) == i + 1
    };
    let nr_huge = (0..64).take_while(is_huge).count() as u64;
    assert!(nr_huge > 10);
    other.madvise(OTHER + nr_huge * HUGE, (64 - nr_huge) * HUGE, Advice::NoHugePage).unwrap();
    let mut pages = (OTHER + nr_huge * HUGE..).step_by(PAGE as usize);
    while vm.vmstat().nr_free_pages > 20 {
        other.write(pages.next().unwrap(), &[1]).unwrap();
    }
    test(&vm, &space, &other);
    check(&vm, &[&space, &other]);
}

#[test]
fn reserves_of_any_size_get_what_huge_pages_do_not_use() {
    for nr_tables in [60, 100, 2000, 5000] {
        with_underused(nr_tables, |vm, space, other| {
            let nr_huge = huge_pages(other);
            assert_eq!(space.madvise(AT, nr_tables * HUGE, GUARD_INSTALL), Ok(()), "{nr_tables} tables");
            let nr_split = vm.event(Event::ThpUnderusedSplitPage);
            let nr_needed = nr_tables.div_ceil(511);
            assert_eq!((nr_split, huge_pages(other)), (nr_needed, nr_huge - nr_needed), "{nr_tables} tables");
        });
    }
}

/// More tables than the machine has frames: refused before anything is done for it.
#[test]
fn an_impossible_request_splits_no_huge_page() {
    let nr_tables = 10_000;
    with_underused(nr_tables, |vm, space, other| {
        let nr_huge = huge_pages(other);
        assert!(nr_tables > vm.vmstat().nr_total_pages);
        let refused = space.madvise(AT, nr_tables * HUGE, GUARD_INSTALL);
        assert!(matches!(refused, Err(MadviseError::OutOfFrames(_))), "{refused:?}");
        assert_eq!(huge_pages(other), nr_huge);
    });
}

// A refusal comes while others go on.

/// Rounds of another program during one refusal: sixteen attempts in noise, in each of
/// which the other has up to six turns.
const MOST_ROUNDS: u64 = 110;
/// Pages for twice as many rounds of a test, and for those before.
const NR_PAGES: u64 = 235 * 65;

/// CPU 0 does `round` again and again in a space of its own; CPU 1 is refused guards
/// meanwhile, and gets the answer although frames are claimed and given back all the time.
fn refused_beside(prepare: impl Fn(&Space<'_>), round: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let cpus = TwoCpus::new(64 << 20);
    // With the upper tables nearly all frames there are, of which each space has some.
    let nr_total = cpus.vm.vmstat().nr_total_pages;
    let len = (nr_total - nr_total / 512 - 3) * HUGE;
    for begin in [0, 1, 2, 5, 10] {
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let other = |_: &Space<'_>| {
            let space = cpus.vm.new_space().unwrap();
            prepare(&space);
            let mut nr_rounds = 0;
            while !done.load(SeqCst) && nr_rounds < 2 * MOST_ROUNDS {
                nr_rounds += u64::from(begun.load(SeqCst));
                round(&cpus.vm, &space);
            }
            nr_rounds
        };
        let refused = |space: &Space<'_>| {
            begun.store(true, SeqCst);
            let result = space.madvise(AT, len, GUARD_INSTALL);
            done.store(true, SeqCst);
            assert!(matches!(result, Err(MadviseError::OutOfFrames(_))), "{result:?}");
        };
        let look = |_: &Space<'_>, nr_rounds, ()| {
            assert!(nr_rounds <= MOST_ROUNDS, "I28: the refusal was put off for {nr_rounds} rounds from wait {begin}");
        };
        cpus.play(begin, |space| map(space, AT, len), other, refused, look);
    }
}

/// Each turn of the other CPU ends a refill. None of the pages goes, since that would
/// give the refusal a quiet moment.
#[test]
fn a_refusal_comes_beside_faults() {
    let next = AtomicU64::new(0);
    let prepare = |space: &Space<'_>| {
        next.store(0, SeqCst);
        map(space, OTHER, NR_PAGES * PAGE);
    };
    let touch_some = |vm: &Vm<Hosted>, space: &Space<'_>| {
        let from = next.fetch_add(65, SeqCst);
        (from..from + 65).for_each(|page| _ = space.handle_fault(OTHER + page * PAGE, Access::Write).unwrap());
        vm.machine().relax();
    };
    refused_beside(prepare, touch_some);
}

#[test]
fn a_refusal_comes_beside_new_spaces() {
    let fork = |_: &Vm<Hosted>, space: &Space<'_>| drop(space.fork().unwrap());
    refused_beside(|space| map(space, OTHER, PAGE), fork);
}
