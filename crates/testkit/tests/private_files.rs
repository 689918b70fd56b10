//! Private and shared mappings of one file, against this host's Linux: random sequences of calls, sizes,
//! holes, and accesses by mappings and by the file give the same. And a private mapping of a file that is read.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, content as byte_of, file};
use common::objects::{Object, bytes, content, whole};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, Errno, Event, FaultError, MapFlags, MremapFlags, Prot};
use softfault_testkit::native::file::{Answer, NativeFile, PLACE, PLACE_PAGES};
use softfault_testkit::random::Random;
use std::cell::Cell;

/// Pages of the file at most.
const FILE_PAGES: u64 = 8;
const NR_SEQUENCES: u64 = 40;
const NR_STEPS: usize = 120;

#[derive(Clone, Copy, Debug)]
enum Step {
    Map { page: u64, nr: u64, prot: u64, is_private: bool, first: u64 },
    Unmap { page: u64, nr: u64 },
    Protect { page: u64, nr: u64, prot: u64 },
    Move { from: u64, to: u64, flags: u64 },
    Advise { page: u64, nr: u64, advice: u64 },
    Load(u64),
    Store(u64, u8),
    FileLoad(u64),
    FileStore(u64, u8),
    SetSize(u64),
    Punch { page: u64, nr: u64 },
    Mincore { page: u64, nr: u64 },
}

/// `MADV_NORMAL`, `RANDOM`, `WILLNEED`, `DONTNEED`, `FREE`, `DONTFORK`, `DOFORK`, `WIPEONFORK`, `POPULATE_READ`,
/// `POPULATE_WRITE`.
const ADVICE: [u64; 12] = [0, 1, 3, 4, 4, 4, 8, 10, 11, 18, 22, 23];
/// `MREMAP_MAYMOVE` and `MREMAP_FIXED`, without and with `MREMAP_DONTUNMAP`.
const MOVES: [u64; 2] = [3, 7];

fn random_step(random: &mut Random) -> Step {
    let page = random.below(PLACE_PAGES - 4);
    let nr = 1 + random.below(4);
    let prot = random.pick(&[0, 1, 1, 3, 3, 3, 3]);
    let byte = 1 + random.below(255) as u8;
    match random.below(100) {
        0..8 => {
            let is_private = random.chance(70);
            Step::Map { page, nr, prot, is_private, first: random.below(FILE_PAGES) }
        }
        8..10 => Step::Unmap { page, nr },
        10..16 => Step::Protect { page, nr, prot },
        16..22 => Step::Move { from: page, to: random.below(PLACE_PAGES), flags: random.pick(&MOVES) },
        22..32 => Step::Advise { page, nr, advice: random.pick(&ADVICE) },
        32..48 => Step::Load(page),
        48..70 => Step::Store(page, byte),
        70..74 => Step::FileLoad(random.below(FILE_PAGES)),
        74..84 => Step::FileStore(random.below(FILE_PAGES), byte),
        84..89 => Step::SetSize(random.below(FILE_PAGES + 1) * PAGE + random.pick(&[0, 0, 1, 100])),
        89..92 => Step::Punch { page: random.below(FILE_PAGES), nr },
        _ => Step::Mincore { page, nr },
    }
}

fn on_linux(file: &NativeFile, step: Step, size: u64) -> Answer {
    match step {
        Step::Map { page, nr, prot, is_private, first } => file.map(page, nr, prot, is_private, first),
        Step::Unmap { page, nr } => file.unmap(page, nr),
        Step::Protect { page, nr, prot } => file.protect(page, nr, prot),
        Step::Move { from, to, flags } => file.move_page(from, to, flags),
        Step::Advise { page, nr, advice } => file.advise(page, nr, advice),
        Step::Load(page) => file.load(page),
        Step::Store(page, byte) => file.store(page, byte),
        Step::FileLoad(page) => file.file_load(page),
        // Nothing beyond the end: a write would make the file larger.
        Step::FileStore(page, byte) if page * PAGE < size => file.file_store(page, byte),
        Step::FileStore(..) => 0,
        Step::SetSize(bytes) => file.set_size(bytes),
        Step::Punch { page, nr } => file.punch(page, nr),
        Step::Mincore { page, nr } => file.mincore(page, nr),
    }
}

fn answer<T>(done: Result<T, Errno>, value: impl FnOnce(T) -> Answer) -> Answer {
    done.map_or_else(|errno| -i64::from(errno.0), value)
}

fn on_core(w: &World<'_>, object: &Object<'_>, step: Step) -> Answer {
    let at = |page: u64| PLACE + page * PAGE;
    let space = w.space;
    match step {
        Step::Map { page, nr, prot, is_private, first } => {
            let kind = if is_private { MapFlags::PRIVATE } else { MapFlags::SHARED };
            let part = whole(object).with_offset_bytes(first * PAGE);
            let mapped = space.mmap_object(at(page), nr * PAGE, Prot::from_linux(prot), kind | FIXED, part);
            answer(mapped.map_err(|e| e.errno()), |_| 0)
        }
        Step::Unmap { page, nr } => answer(space.munmap(at(page), nr * PAGE).map_err(|e| e.errno()), |()| 0),
        Step::Protect { page, nr, prot } => {
            answer(space.mprotect(at(page), nr * PAGE, Prot::from_linux(prot)).map_err(|e| e.errno()), |()| 0)
        }
        Step::Move { from, to, flags } => {
            let moved = space.mremap(at(from), PAGE, PAGE, MremapFlags::from_linux(flags), at(to));
            answer(moved.map_err(|e| e.errno()), |_| 0)
        }
        Step::Advise { page, nr, advice } => {
            let advice = Advice::from_linux(advice).unwrap();
            answer(space.madvise(at(page), nr * PAGE, advice).map_err(|e| e.errno()), |()| 0)
        }
        Step::Load(page) => {
            let mut byte = [0];
            answer(space.read(at(page), &mut byte).map_err(|e| e.errno()), |()| i64::from(byte[0]))
        }
        Step::Store(page, byte) => answer(space.write(at(page), &[byte]).map_err(|e| e.errno()), |()| 0),
        Step::FileLoad(page) => {
            let mut byte = [0];
            if object.read(page * PAGE, &mut byte) == 1 { i64::from(byte[0]) } else { -1 }
        }
        Step::FileStore(page, byte) => {
            object.write(page * PAGE, &[byte]).unwrap();
            0
        }
        Step::SetSize(bytes) => {
            object.set_size_bytes(bytes);
            0
        }
        Step::Punch { page, nr } => {
            object.discard(page..page + nr);
            0
        }
        Step::Mincore { page, nr } => {
            let (mut bits, mut at_bit) = (0i64, 0);
            let done = space.mincore(at(page), nr * PAGE, &mut |nr_pages, here| {
                (at_bit..at_bit + nr_pages).for_each(|bit| bits |= i64::from(here) << bit);
                at_bit += nr_pages;
            });
            answer(done.map_err(|e| e.errno()), |()| bits)
        }
    }
}

/// What Linux's answers depend on and the core has not is left out: the merging of mappings, by moves of one
/// page, and what is resident at a guess.
#[test]
fn sequences_give_the_same_as_on_linux() {
    let nr_copied = Cell::new(0);
    for seed in 0..NR_SEQUENCES {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let mut random = Random::new(seed);
            let (file, object) = (NativeFile::new().unwrap(), w.vm.new_shared_object(0).unwrap());
            let whole = |page, is_private| Step::Map { page, nr: FILE_PAGES, prot: 3, is_private, first: 0 };
            let mut steps = vec![Step::SetSize(FILE_PAGES * PAGE), whole(0, true), whole(12, false), whole(20, true)];
            steps.extend((0..NR_STEPS).map(|_| random_step(&mut random)));
            for (i, step) in steps.iter().enumerate() {
                let linux = on_linux(&file, *step, object.size_bytes());
                let core = on_core(w, &object, *step);
                assert_eq!((core, linux), (linux, linux), "seed {seed}, step {i} of {:?}", &steps[..=i]);
                if i % 16 == 0 {
                    check(w.vm, &[w.space]);
                }
            }
            nr_copied.set(nr_copied.get() + w.vm.event(Event::CowBreak));
        });
    }
    assert!(nr_copied.get() > 5 * NR_SEQUENCES, "{} pages were copied", nr_copied.get());
}

/// A private mapping shows the file until it is stored to, and its copies stay when clean folios go.
#[test]
fn a_private_mapping_copies_what_was_read() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, 8 * PAGE, FolioOrders::BASE);
        let part = whole(&object);
        assert_eq!(w.space.mmap_object(BASE, 8 * PAGE, RW, MapFlags::PRIVATE | FIXED, part), Ok(BASE));
        // Read for the store, and copied in the next turn: one fault.
        w.space.write(BASE + PAGE, &[0xaa]).unwrap();
        assert_eq!((file.log(), w.rss().major_faults), (vec![(1, 1)], 1));
        assert_eq!(bytes::<2>(w.space, BASE + PAGE), [0xaa, byte_of(1, 0)]);
        assert_eq!((content(&object, PAGE), bytes(w.space, BASE + 2 * PAGE)), ([byte_of(1, 0)], [byte_of(2, 0)]));
        file.set(Reads::Fail);
        assert_eq!(w.space.write(BASE + 3 * PAGE, &[1]).unwrap_err().errno(), Errno::EFAULT);
        file.set(Reads::End);
        file.change();
        object.discard(0..8);
        assert_eq!(bytes(w.space, BASE + PAGE), [0xaa], "a hole keeps copies");
        assert_eq!(bytes(w.space, BASE + 2 * PAGE), [byte_of(2, 1)]);
        object.set_size_bytes(PAGE);
        assert_eq!(w.space.handle_fault(BASE + PAGE, Access::Read), Err(FaultError::BeyondObject));
    });
}
