//! Threads on a machine of 512 frames, for Miri and ThreadSanitizer (`cargo xtask miri`, `tsan`), which follow each access: a race that no
//! assertion sees fails there. Without them each play is a short test of the counts.
//!
//! `SOFTFAULT_ROUNDS` is the number of rounds of each play; one without it.
#![allow(unsafe_code)] // the planted race

use softfault::addr::PAGE_SIZE;
use softfault::machine::{CpuId, Machine};
use softfault::{
    AddressSpace, Advice, MapFlags, MremapFlags, ObjectPart, Pfn, Prot, SharedObject, Term, Tunables, Vm, policy,
};
use softfault_host::{CpuGuard, Hosted, HostedConfig, Mode};

const ARENA_BYTES: u64 = 512 * PAGE_SIZE;
const RW: Prot = Prot::READ.union(Prot::WRITE);
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);
const NR_PAGES: u64 = 4;
/// Of accesses of all sizes, in one play.
const ROUNDS: u8 = if cfg!(miri) { 2 } else { 20 };

type Space<'vm> = AddressSpace<'vm, Hosted>;

fn vm() -> Vm<Hosted> {
    let config = HostedConfig::default()
        .with_nr_cpus(3)
        .with_arena_bytes(ARENA_BYTES)
        .with_swap_bytes(16 * PAGE_SIZE)
        .with_tlb_entries(16)
        .with_mode(Mode::Broadcast);
    let mut tunables = Tunables::default();
    tunables.thp.enabled = policy::huge::Enabled::Never;
    Vm::new(Hosted::new(config).unwrap(), tunables).unwrap()
}

fn rounds() -> u64 {
    std::env::var("SOFTFAULT_ROUNDS").map_or(1, |n| n.parse().expect("SOFTFAULT_ROUNDS: a number"))
}

fn at(page: u64) -> u64 {
    page % NR_PAGES * PAGE_SIZE
}

/// A space with four pages, which have been written, and as many of an object.
struct Play<'vm> {
    vm: &'vm Vm<Hosted>,
    space: Space<'vm>,
    object: SharedObject<'vm, Hosted>,
    private: u64,
    shared: u64,
}

impl<'vm> Play<'vm> {
    fn begin(vm: &'vm Vm<Hosted>) -> Play<'vm> {
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let object = vm.new_shared_object(NR_PAGES * PAGE_SIZE).unwrap();
        let private = space.mmap(0, NR_PAGES * PAGE_SIZE, RW, PRIVATE).unwrap();
        let part = ObjectPart::new(&object);
        let shared = space.mmap_object(0, NR_PAGES * PAGE_SIZE, RW, MapFlags::SHARED, part).unwrap();
        for page in 0..NR_PAGES {
            space.write(private + at(page), &[1; 16]).unwrap();
            space.write(shared + at(page), &[1; 16]).unwrap();
        }
        Play { vm, space, object, private, shared }
    }

    fn frames(&self) -> Vec<Pfn> {
        (0..NR_PAGES)
            .filter_map(|page| self.space.translate_at_rest(self.private + at(page)))
            .map(|leaf| leaf.pfn)
            .collect()
    }
}

/// The part of one CPU.
type Part<'a> = &'a (dyn Fn(&Play<'_>, &CpuGuard<'_>) + Sync);

/// Plays three CPUs against each other, then compares the free frames with those of the beginning.
fn play(cpus: [Part<'_>; 3]) {
    let vm = vm();
    let free = || {
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        vm.vmstat().nr_free_pages
    };
    let before = free();
    for _ in 0..rounds() {
        let play = Play::begin(&vm);
        std::thread::scope(|scope| {
            for (cpu, run) in cpus.into_iter().enumerate() {
                let play = &play;
                scope.spawn(move || {
                    run(play, &play.vm.machine().bind(CpuId(cpu as u16)).unwrap());
                });
            }
        });
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        // Five sixths of a play's time under Miri, while no other CPU runs: other tools check that.
        if !cfg!(miri) {
            softfault_testkit::at_rest::check(&vm, &[&play.space], &mut [0; 512 + 16]).unwrap();
        }
        drop(play);
    }
    assert_eq!(free(), before);
}

/// Stores of parts of one word, in all ways that a safe caller has, against loads of whole words.
#[test]
fn accesses_of_all_sizes_meet_in_one_word() {
    let part = |play: &Play<'_>, from: u64, len: usize| {
        let mut bytes = [0; 16];
        play.space.read(play.shared, &mut bytes).unwrap();
        bytes[from as usize..][..len].to_vec()
    };
    play([
        // Bytes 1 to 3, by system calls and a program's stores.
        &|play, cpu| {
            let running = cpu.enter(&play.space).unwrap();
            for round in 1..=ROUNDS {
                play.space.write(play.shared + 1, &[round; 3]).unwrap();
                assert_eq!(part(play, 1, 3), [round; 3]);
                running.store(play.shared + 2, &[round + 1]).unwrap();
                assert_eq!(part(play, 1, 3), [round, round + 1, round]);
                _ = running.read_u64(play.shared).unwrap();
                _ = running.fetch(play.shared);
            }
        },
        // Bytes 4 to 7, as a futex word; a pin and a handle on the next word.
        &|play, _| {
            for round in 1..=u32::from(ROUNDS) {
                play.space.update_u32(play.shared + 4, &mut |_| Some(round)).unwrap();
                assert_eq!(part(play, 4, 4), round.to_ne_bytes());
                let pin = play.space.pin_page_mut(play.shared, Term::Short).unwrap();
                pin.write(13, &[round as u8; 3]);
                let mut seen = [0; 11];
                pin.read(5, &mut seen);
                assert_eq!(seen[8..], [round as u8; 3]);
            }
        },
        // Byte 0, and bytes 8 to 12, by the handle of the object.
        &|play, _| {
            for round in 1..=ROUNDS {
                play.space.write(play.shared, &[round]).unwrap();
                assert_eq!(part(play, 0, 1), [round]);
                play.object.write(8, &[round; 5]).unwrap();
                assert_eq!(part(play, 8, 5), [round; 5]);
            }
        },
    ]);
}

/// Faults, removals, forks and changes of rights in private memory.
#[test]
fn faults_meet_removals_and_forks() {
    play([
        &|play, _| {
            for page in 0..3 {
                _ = play.space.write(play.private + at(page), &9u64.to_ne_bytes());
                match page {
                    1 => play.space.munmap(play.private + at(3), PAGE_SIZE).unwrap(),
                    2 => _ = play.space.mmap(play.private + at(3), PAGE_SIZE, RW, PRIVATE | MapFlags::FIXED).unwrap(),
                    _ => {}
                }
            }
        },
        &|play, _| {
            for page in 0..6 {
                _ = play.space.write(play.private + at(page), &page.to_ne_bytes());
                _ = play.space.read(play.private + at(page + 1), &mut [0; 3]);
            }
        },
        &|play, _| {
            let child = play.space.fork().unwrap();
            _ = child.write(play.private, &7u16.to_ne_bytes());
            play.space.madvise(play.private, 2 * PAGE_SIZE, Advice::DontNeed).unwrap();
            _ = play.space.mprotect(play.private, 2 * PAGE_SIZE, Prot::READ);
            _ = play.space.mprotect(play.private, 2 * PAGE_SIZE, RW);
        },
    ]);
}

/// Pages move, go to the swap area, and come back, under programs that store to them and pin them.
#[test]
fn stores_meet_moves_and_swap() {
    play([
        &|play, _| {
            for frame in play.frames() {
                _ = play.vm.migrate_frame(frame);
                _ = play.vm.swap_out_frame(frame);
            }
        },
        &|play, cpu| {
            let running = cpu.enter(&play.space).unwrap();
            for page in 0..NR_PAGES {
                // Where the page is while it is not away.
                let (place, mut seen) = (play.private + at(page) + 3, [0; 7]);
                if running.store(place, &[5; 7]).and_then(|()| running.load(place, &mut seen)).is_ok() {
                    assert_eq!(seen, [5; 7]);
                }
            }
        },
        &|play, _| {
            for page in 0..NR_PAGES {
                if let Ok(pin) = play.space.pin_page_mut(play.private + at(page), Term::Short) {
                    pin.write(24, &[3; 9]);
                }
            }
            let (away, len) = (play.private - (1 << 30), NR_PAGES * PAGE_SIZE);
            let fixed = MremapFlags::MAYMOVE | MremapFlags::FIXED;
            _ = play.space.mremap(play.private, len, len, fixed, away).unwrap();
            _ = play.space.mremap(away, len, len, fixed, play.private).unwrap();
        },
    ]);
}

/// Stores to an object meet holes and sizes of it.
#[test]
fn stores_meet_holes_and_sizes() {
    play([
        &|play, _| {
            for page in 0..3 {
                play.object.discard(page..page + 1);
                play.object.set_size_bytes(2 * PAGE_SIZE);
                play.object.set_size_bytes(NR_PAGES * PAGE_SIZE);
            }
        },
        &|play, _| {
            for page in 0..NR_PAGES {
                _ = play.space.write(play.shared + at(page) + 5, &[page as u8; 6]);
                _ = play.space.read(play.shared + at(page), &mut [0; 8]);
            }
        },
        &|play, _| {
            for page in 0..NR_PAGES {
                _ = play.object.write(at(page) + 4, &[7; 9]);
                _ = play.object.read(at(page), &mut [0; 13]);
            }
        },
    ]);
}

/// Breaks I6: a plain store to a byte that a program stores to.
#[test]
#[ignore = "a race on purpose, which Miri and ThreadSanitizer must report"]
fn a_planted_race_is_reported() {
    // Between the barriers neither CPU gives anything to the other one, so nothing orders the two in any schedule. With one
    // barrier a CPU that wakes late would take its lock after the other one, which has come to it again.
    let [before, after] = [(); 2].map(|()| std::sync::Barrier::new(2));
    let between = |access: &dyn Fn()| {
        before.wait();
        access();
        after.wait();
    };
    let plain = |play: &Play<'_>| {
        let frame = play.space.translate_at_rest(play.private).unwrap().pfn;
        // SAFETY: I1: in the frame. Not I6: that is what the tools are asked about.
        unsafe { play.vm.machine().frame_ptr(frame).write(7) };
    };
    play([
        &|play, _| between(&|| plain(play)),
        &|play, _| between(&|| play.space.write(play.private, &[1; 8]).unwrap()),
        &|_, _| (),
    ]);
}
