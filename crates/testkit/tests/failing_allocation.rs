//! For every operation, the first allocation fails, then the second, and so on
//! until it succeeds. After each failure everything is as it was before: mappings,
//! tables, counts, contents, free frames; and the same call then succeeds.
//!
//! Some frames may remain, since no call shows them and the next one uses them:
//! nodes in the tree's pool; for faults also tables and the inner nodes of a shared
//! object. Frames of these kinds are counted, so that no other can hide among them.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::{Access, CpuId, FaultError, MlockFlags, MlockallFlags, MremapFlags, PinMut, RssPages, Term, Vm, Vma};
use softfault_host::Hosted;

/// Where things lie in the state below, in pages from `BASE`.
const WRITTEN: u64 = 0;
const READ_ONLY: u64 = 40;
const MIXED: u64 = 60;
const MORE: u64 = 200;
const LONELY: u64 = 300;
const GUARDED: u64 = 310;
const GROWING: u64 = 600;
/// Above all else, with nothing behind it; another leaf table.
const LAST: u64 = 700;
const SHARED_AT: u64 = 800;
/// Far from all that, mapped and never touched: no table stands there.
const SPARSE: u64 = 1 << 25;
/// Farther still, a hole.
const FAR: u64 = 1 << 26;
/// The byte that calls write, and nobody else.
const STORED: u8 = 0x90;
const HEAP: u64 = BASE - (64 << 20);

const fn at(page: u64) -> u64 {
    BASE + page * PAGE
}

/// A space in which there is something of everything, a child that shares its
/// pages, and two dozen small mappings, so that the tree has two levels.
struct State<'a> {
    vm: &'a Vm<Hosted>,
    space: Space<'a>,
    child: Space<'a>,
    /// Spaces that calls make.
    others: Vec<Space<'a>>,
    /// Of pages that are the space's alone: a fork copies them.
    _pins: [PinMut<'a, Hosted>; 3],
}

impl<'a> State<'a> {
    /// With `nr_more` mappings more: nodes of the tree come from frames of four, so
    /// that it depends on their number which call needs the next frame.
    fn new(vm: &'a Vm<Hosted>, nr_more: u64) -> State<'a> {
        let space = vm.new_space().unwrap();
        let map = |page, nr, prot, flags| _ = space.mmap(at(page), nr * PAGE, prot, flags | FIXED).unwrap();
        map(WRITTEN, 32, RW, PRIVATE);
        map(READ_ONLY, 8, READ, PRIVATE);
        for i in 0..24 {
            map(MIXED + 4 * i, 4, if i % 2 == 0 { RW } else { READ }, PRIVATE);
        }
        map(LONELY, 4, RW, PRIVATE);
        map(GUARDED, 8, RW, PRIVATE);
        map(GROWING, 4, RW, PRIVATE | GROWSDOWN);
        map(LAST, 4, RW, PRIVATE);
        map(SHARED_AT, 8, RW, SHARED);
        map(SPARSE, 4, RW, PRIVATE);
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 4 * PAGE), HEAP + 4 * PAGE);
        (0..16).for_each(|i| space.write(at(WRITTEN + i), &[i as u8 + 1; 24]).unwrap());
        (16..20).for_each(|i| _ = space.handle_fault(at(WRITTEN + i), Access::Read).unwrap());
        space.write_forced(at(READ_ONLY), b"text").unwrap();
        (0..24).step_by(2).for_each(|i| space.write(at(MIXED + 4 * i), b"mixed").unwrap());
        space.write(at(GUARDED), b"guarded").unwrap();
        space.madvise(at(GUARDED + 1), 2 * PAGE, GUARD_INSTALL).unwrap();
        space.write(at(LAST + 3), b"last").unwrap();
        space.write(at(SHARED_AT), b"shared").unwrap();
        space.write(HEAP, b"heap").unwrap();
        let child = space.fork().unwrap();
        // Some pages are the parent's alone again.
        (0..6).for_each(|i| space.write(at(WRITTEN + i), b"own").unwrap());
        let _pins = [0, 1, 5].map(|i| space.pin_page_mut(at(WRITTEN + i), Term::Long).unwrap());
        // Last, so that the one that splits a node may leave the pool empty.
        let map = |page| _ = space.mmap(at(page), PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..nr_more).for_each(|i| map(MORE + 2 * i));
        State { vm, space, child, others: Vec::new(), _pins }
    }

    fn check(&self) {
        let mut spaces = vec![&self.space, &self.child];
        spaces.extend(&self.others);
        check(self.vm, &spaces);
    }
}

/// All that can be seen of a space, and some that cannot.
#[derive(PartialEq, Debug)]
struct Snapshot {
    maps: Vec<Vma>,
    brk: u64,
    nr_mapped_pages: u64,
    rss: RssPages,
    /// Page, frame, content of all that is present.
    pages: Vec<(u64, u32, Vec<u8>)>,
    guards: Vec<bool>,
}

impl Snapshot {
    fn of(space: &Space<'_>) -> Snapshot {
        let mut maps = Vec::new();
        space.maps(&mut |vma| maps.push(*vma));
        let mut pages = Vec::new();
        for vpn in maps.iter().flat_map(|vma| vma.range.start.0..vma.range.end.0) {
            if let Some(there) = space.translate_at_rest(vpn * PAGE) {
                let mut content = vec![0; PAGE as usize];
                space.read(vpn * PAGE, &mut content).unwrap();
                content.truncate(32);
                pages.push((vpn, there.pfn.0, content));
            }
        }
        // A fault on a guard changes nothing. Where there should be one and is
        // none, it does, and that is seen, too.
        let guard = |page| space.handle_fault(at(page), Access::Read) == Err(FaultError::Guard);
        let guards = [GUARDED + 1, GUARDED + 2].map(guard).to_vec();
        let mut rss = space.rss_pages();
        rss.minor_faults = 0;
        Snapshot { maps, brk: space.brk(0), nr_mapped_pages: space.nr_mapped_pages(), rss, pages, guards }
    }
}

/// Memory that a failed call may keep.
#[derive(Clone, Copy, PartialEq)]
enum Keeps {
    /// Nothing.
    Nothing,
    /// Tables and nodes of objects on the way to the page that failed.
    Way,
    /// Also the work for the pages before that one.
    Pages,
}

type Call = fn(&mut State<'_>) -> Result<(), String>;

/// Runs `call` with each number of allocations that succeed, on a fresh state each
/// time. Where it fails, `also` may have happened, and then as a whole. At least
/// `least` allocations have to fail, or the test would show nothing.
fn each_failure(least: u64, keeps: Keeps, also: Option<Call>, call: Call) {
    let mut nr_failures = 0;
    for nr_more in 0..48 {
        let mut k = 0;
        while fails_at(k, nr_more, keeps, also, call) {
            k += 1;
            assert!(k < 500, "it never succeeds");
        }
        nr_failures = nr_failures.max(k);
    }
    assert!(nr_failures >= least, "only {nr_failures} allocations failed");
}

fn machine() -> Vm<Hosted> {
    Setup::PLAIN.vm(1, 8 << 20)
}

/// Whether it failed with allocation number `k` and all after it refused.
fn fails_at(k: u64, nr_more: u64, keeps: Keeps, also: Option<Call>, call: Call) -> bool {
    let vm = machine();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_free = vm.vmstat().nr_free_pages;
    let failed;
    {
        let mut state = State::new(&vm, nr_more);
        cpu.arrive(&state.space).unwrap();
        state.check();
        let (child, before) = (Snapshot::of(&state.child), (Snapshot::of(&state.space), Frames::count(&vm)));
        vm.fail_allocation(Some(k));
        let result = call(&mut state);
        vm.fail_allocation(None);
        eprintln!("{nr_more} more mappings, allocation {k}: {result:?}");
        state.check();
        failed = result.is_err();
        if failed {
            assert!(result.is_err_and(|e| e.ends_with("out of frames")), "another error than expected");
            assert_eq!(Snapshot::of(&state.child), child);
            let now = (Snapshot::of(&state.space), Frames::count(&vm));
            match also {
                Some(also) if now.0 != before.0 => compare_with(also, nr_more, now.0),
                _ => compare(before, now, keeps),
            }
            call(&mut state).unwrap();
            state.check();
        }
        cpu.depart(&state.space);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, nr_free, "frames are lost");
    failed
}

fn compare(before: (Snapshot, Frames), now: (Snapshot, Frames), keeps: Keeps) {
    let ((mut before, frames), (mut now, frames_now)) = (before, now);
    let all = |f: Frames| f.nr_free + f.nr_tables + f.nr_tree + f.nr_objects;
    match keeps {
        Keeps::Nothing => {
            let some = |f: Frames| (f.nr_tables, f.nr_objects, f.nr_free + f.nr_tree);
            assert_eq!(some(frames_now), some(frames), "tables, nodes of objects, free frames and tree nodes");
        }
        Keeps::Way => assert_eq!(all(frames_now), all(frames)),
        Keeps::Pages => {
            for (vpn, _, content) in &before.pages {
                let (_, _, content_now) = now.pages.iter().find(|page| page.0 == *vpn).expect("the page stays");
                // Or what the call was to write.
                let good = |(now, before): (&u8, &u8)| now == before || *now == STORED;
                assert!(content_now.iter().zip(content).all(good), "page {vpn:#x}");
            }
            // A copy takes a frame and leaves the resident count.
            let resident = |s: &Snapshot| s.rss.anon + s.rss.shmem;
            assert!(all(frames_now) + resident(&now) - resident(&before) <= all(frames));
            (now.pages, before.pages) = Default::default();
            (now.rss.anon, now.rss.shmem) = (before.rss.anon, before.rss.shmem);
        }
    }
    if keeps != Keeps::Nothing {
        assert_eq!(frames_now.nr_tables - frames.nr_tables, now.rss.tables - before.rss.tables);
        now.rss.tables = before.rss.tables;
    }
    assert_eq!(now, before);
}

/// The state has to be what `also` alone makes of a fresh one.
fn compare_with(also: Call, nr_more: u64, now: Snapshot) {
    let twin = || {
        let vm = machine();
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let mut state = State::new(&vm, nr_more);
        also(&mut state).unwrap();
        Snapshot::of(&state.space)
    };
    // In a thread of its own: this one is a CPU of another machine.
    let twin = std::thread::scope(|scope| scope.spawn(twin).join().unwrap());
    let no_frames = |mut snapshot: Snapshot| {
        snapshot.pages.iter_mut().for_each(|page| page.1 = 0);
        snapshot
    };
    assert_eq!(no_frames(now), no_frames(twin));
}

/// `tests! { name: at least so many failures, what they keep, call }`.
macro_rules! tests {
    ($($(#[$doc:meta])* $name:ident: $least:literal, $keeps:ident, $call:expr;)*) => {
        $($(#[$doc])* #[test] fn $name() { each_failure($least, Keeps::$keeps, None, $call); })*
    };
}

fn brk(space: &Space<'_>, to: u64) -> Result<(), String> {
    if space.brk(to) == to { Ok(()) } else { Err("out of frames".into()) }
}

tests! {
    new_space: 2, Nothing, |s| keep(&mut s.others, s.vm.new_space());
    fork: 8, Nothing, |s| keep(&mut s.others, s.space.fork());

    mmap_private: 1, Nothing, |s| text(s.space.mmap(0, 4 * PAGE, READ, PRIVATE));
    mmap_shared: 2, Nothing, |s| text(s.space.mmap(0, 4 * PAGE, RW, SHARED));
    mmap_fixed_private_over_many: 1, Nothing, |s| text(s.space.mmap(at(MIXED + 2), 40 * PAGE, RW, PRIVATE | FIXED));
    mmap_fixed_shared_over_many: 2, Nothing, |s| text(s.space.mmap(at(MIXED + 2), 40 * PAGE, RW, SHARED | FIXED));
    mmap_fixed_inside_one: 1, Nothing, |s| text(s.space.mmap(at(WRITTEN + 2), 3 * PAGE, READ, PRIVATE | FIXED));
    mmap_over_shared: 1, Nothing, |s| text(s.space.mmap(at(SHARED_AT + 2), 3 * PAGE, READ, PRIVATE | FIXED));

    munmap_splits: 1, Nothing, |s| text(s.space.munmap(at(WRITTEN + 3), 2 * PAGE));
    munmap_splits_shared: 1, Nothing, |s| text(s.space.munmap(at(SHARED_AT + 3), 2 * PAGE));
    munmap_of_many: 1, Nothing, |s| text(s.space.munmap(at(MIXED + 1), 70 * PAGE));
    munmap_of_all: 1, Nothing, |s| text(s.space.munmap(BASE, 1 << 30));

    mprotect_splits: 1, Nothing, |s| text(s.space.mprotect(at(WRITTEN + 3), 2 * PAGE, READ));
    mprotect_of_many: 1, Nothing, |s| text(s.space.mprotect(at(MIXED + 2), 50 * PAGE, RW));
    mprotect_to_nothing: 1, Nothing, |s| text(s.space.mprotect(at(WRITTEN + 3), 2 * PAGE, NONE));

    mremap_grows_in_place: 1, Nothing, |s| text(s.space.mremap(at(LAST), 4 * PAGE, 9 * PAGE, MremapFlags::empty(), 0));
    mremap_moves: 3, Nothing, |s| text(s.space.mremap(at(WRITTEN), 32 * PAGE, 60 * PAGE, MAYMOVE, 0));
    mremap_moves_a_part: 3, Nothing, |s| text(s.space.mremap(at(WRITTEN + 4), 3 * PAGE, 60 * PAGE, MAYMOVE, 0));
    mremap_moves_guards: 1, Nothing, |s| text(s.space.mremap(at(GUARDED), 8 * PAGE, 20 * PAGE, MAYMOVE, 0));
    mremap_moves_shared: 1, Nothing, |s| text(s.space.mremap(at(SHARED_AT), 8 * PAGE, 9 * PAGE, MAYMOVE, 0));
    mremap_duplicates_shared: 1, Nothing, |s| text(s.space.mremap(at(SHARED_AT), 0, 8 * PAGE, MAYMOVE, 0));
    mremap_to_a_fixed_hole: 3, Nothing, |s| text(s.space.mremap(at(WRITTEN), 9 * PAGE, 9 * PAGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, at(FAR)));
    mremap_dontunmap: 3, Nothing, |s| text(s.space.mremap(at(WRITTEN), 9 * PAGE, 9 * PAGE, MAYMOVE | DONTUNMAP, at(FAR)));

    brk_grows: 1, Nothing, |s| brk(&s.space, HEAP + 90 * PAGE);

    /// A call that shrinks hardly ever needs a frame.
    brk_shrinks: 0, Nothing, |s| brk(&s.space, HEAP + PAGE);
    /// As above.
    mremap_shrinks: 0, Nothing, |s| text(s.space.mremap(at(WRITTEN), 32 * PAGE, 7 * PAGE, MremapFlags::empty(), 0));

    madvise_flags: 1, Nothing, |s| text(s.space.madvise(at(WRITTEN + 3), 2 * PAGE, DONTFORK));
    madvise_wipeonfork: 1, Nothing, |s| text(s.space.madvise(at(WRITTEN + 3), 2 * PAGE, WIPEONFORK));
    madvise_guard: 1, Nothing, |s| text(s.space.madvise(at(WRITTEN + 3), 2 * PAGE, GUARD_INSTALL));
    mlock_on_fault: 1, Nothing, |s| text(s.space.mlock(at(WRITTEN + 3), 2 * PAGE, MlockFlags::ONFAULT));
    mlockall: 1, Nothing, |s| text(s.space.mlockall(MlockallFlags::CURRENT | MlockallFlags::FUTURE | MlockallFlags::ONFAULT));
    madvise_populate_read: 1, Pages, |s| text(s.space.madvise(at(SPARSE), 4 * PAGE, POPULATE_READ));
    madvise_populate_write: 8, Pages, |s| text(s.space.madvise(at(WRITTEN), 32 * PAGE, POPULATE_WRITE));
    madvise_populate_shared: 3, Pages, |s| text(s.space.madvise(at(SHARED_AT), 8 * PAGE, POPULATE_WRITE));

    fault_read_needs_tables: 2, Way, |s| text(s.space.handle_fault(at(SPARSE), Access::Read));
    fault_write: 1, Way, |s| text(s.space.handle_fault(at(LONELY), Access::Write));
    fault_write_to_the_zero_frame: 1, Way, |s| text(s.space.handle_fault(at(WRITTEN + 17), Access::Write));
    fault_copies: 1, Way, |s| text(s.space.handle_fault(at(WRITTEN + 9), Access::Write));
    fault_copies_in_the_child: 1, Way, |s| text(s.child.handle_fault(at(WRITTEN + 9), Access::Write));
    fault_shared: 1, Way, |s| text(s.space.handle_fault(at(SHARED_AT + 5), Access::Write));
    write_over_pages: 3, Pages, |s| text(s.space.write(at(WRITTEN + 18) + 5, &[STORED; 4 * 4096]));
    write_forced: 2, Pages, |s| text(s.space.write_forced(at(READ_ONLY) + 100, &[STORED; 2 * 4096]));
    pin_in_place_of_the_zero_frame: 1, Way, |s| text(s.space.pin_page(at(WRITTEN + 17), Term::Short));
    pin_unshares: 1, Way, |s| text(s.space.pin_page(at(WRITTEN + 9), Term::Short));
    pin_unshares_in_the_child: 1, Way, |s| text(s.child.pin_page(at(READ_ONLY), Term::Short));
    pin_of_a_new_page: 1, Way, |s| text(s.space.pin_page(at(LONELY), Term::Short));
    pin_of_an_object: 1, Way, |s| text(s.space.pin_page_mut(at(SHARED_AT + 5), Term::Short));
    pins_all_or_none: 3, Pages, |s| {
        text(s.space.pin_range_mut(at(WRITTEN + 8), Term::Short, &mut [const { None }; 12]))
    };
    update_u32: 1, Way, |s| text(s.space.update_u32(at(LONELY), &mut |n| Some(n + 1)));
}

/// With MREMAP_FIXED the target may have gone, as on Linux.
#[test]
fn mremap_onto_a_mapping() {
    let also = |s: &mut State<'_>| text(s.space.munmap(at(MIXED + 6), 9 * PAGE));
    each_failure(1, Keeps::Nothing, Some(also), |s| {
        text(s.space.mremap(at(WRITTEN), 9 * PAGE, 9 * PAGE, MAYMOVE | MREMAP_FIXED, at(MIXED + 6)))
    });
}

/// The mapping may have grown though there was no frame for its page. Where there
/// is none for the new tree, the program is told what it would be of any address
/// outside.
#[test]
fn stack_growth() {
    let touch = |s: &mut State<'_>| match s.space.handle_fault(at(GROWING - 1), Access::Write) {
        Err(FaultError::NotMapped) => Err("out of frames".into()),
        other => text(other),
    };
    let also = |s: &mut State<'_>| {
        text(s.space.handle_fault(at(GROWING - 1), Access::Write))?;
        text(s.space.madvise(at(GROWING - 1), PAGE, DONTNEED))
    };
    each_failure(2, Keeps::Nothing, Some(also), touch);
}
