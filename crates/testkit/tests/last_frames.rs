//! I28: nobody is refused a frame while there is one. Exactly `k` frames are free,
//! for each `k` up to two blocks and a little more; a fault, or a call, that is
//! refused then leaves fewer free frames than it needs, and changes nothing.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, map};
use common::{DONTNEED, GUARD_INSTALL, MAYMOVE, MREMAP_FIXED, PAGE, Space, check};
use softfault::policy::huge::{Defrag, Enabled, SizeEnabled};
use softfault::{
    Access, Advice, CpuId, Event, FaultError, ForkError, HugeKnobs, MadviseError, MremapError, PinMut, Term, Vm,
    VmaFlags,
};
use softfault_host::Hosted;
use std::cell::Cell;
use std::collections::BTreeMap;

const ARENA: u64 = 16 << 20;
/// A space that takes all memory, in small pages.
const FILL: u64 = 0x20_0000_0000;
const MOST: u64 = 1100;
/// Where memory is touched. The table of level 1 is there, without twin.
const AREA: u64 = AT + HUGE;
const AREA_LEN: u64 = (1 << 30) - HUGE;

/// Full memory, and the pages whose frames are to be free next, whole blocks first.
struct Full<'a> {
    vm: &'a Vm<Hosted>,
    space: &'a Space<'a>,
    pages: Vec<u64>,
}

impl<'a> Full<'a> {
    fn new(vm: &'a Vm<Hosted>, space: &'a Space<'a>) -> Full<'a> {
        let nr_pages = vm.vmstat().nr_total_pages;
        map(space, FILL, nr_pages * PAGE);
        space.madvise(FILL, nr_pages * PAGE, Advice::NoHugePage).unwrap();
        map(space, AT, PAGE);
        space.write(AT, &[1]).unwrap();
        // Nodes of trees stay with the space: no call below needs more.
        for _ in 0..4 {
            map(space, AREA, AREA_LEN);
            space.munmap(AREA, AREA_LEN).unwrap();
            map(space, AREA, AREA_LEN);
            space.madvise(AREA, PAGE, GUARD_INSTALL).unwrap();
        }
        map(space, AREA, AREA_LEN);
        let pages = (0..nr_pages).map(|page| FILL + page * PAGE);
        let pages: Vec<u64> = pages.take_while(|at| space.handle_fault(*at, Access::Write).is_ok()).collect();
        let frame = |at: &u64| space.translate_at_rest(*at).unwrap().pfn.0;
        let mut nr_in_block = BTreeMap::<u32, u32>::new();
        pages.iter().for_each(|at| *nr_in_block.entry(frame(at) / 512).or_default() += 1);
        let mut pages = pages;
        pages.sort_by_key(|at| (nr_in_block[&(frame(at) / 512)], frame(at)));
        assert_eq!(vm.vmstat().nr_free_pages, 0);
        assert!(nr_in_block.values().filter(|nr| **nr == 512).count() >= 3);
        Full { vm, space, pages }
    }

    /// Frees frames until there are so many.
    fn free(&mut self, nr: u64) {
        while self.vm.vmstat().nr_free_pages < nr {
            let at = self.pages.pop().unwrap();
            self.space.madvise(at, PAGE, DONTNEED).unwrap();
        }
        assert_eq!(self.vm.vmstat().nr_free_pages, nr, "after a page went");
    }

    /// Has the CPU's frame cache of zeroed frames filled, from which no table is taken: a page
    /// beside the free ones goes and comes back. The other frame caches are empty.
    fn fill_cache(&self) {
        let at = *self.pages.last().unwrap();
        self.space.madvise(at, PAGE, DONTNEED).unwrap();
        self.vm.empty_caches();
        self.space.write(at, &[1]).unwrap();
    }

    /// Free frames that are in no CPU's frame cache.
    fn nr_in_blocks(&self) -> u64 {
        let bits = (0..self.vm.nr_blocks()).flat_map(|block| self.vm.free_bits(block));
        bits.map(|word| u64::from(word.count_ones())).sum()
    }

    /// First touches, one in each 2 MiB, then a second, until one is refused.
    fn touch_all(&self, k: u64, access: Access) {
        let nr_stretches = AREA_LEN / HUGE;
        let touch = |i: u64| AREA + i % nr_stretches * HUGE + (17 + i / nr_stretches) * PAGE;
        let refused = (0..3 * nr_stretches).find_map(|i| Some((i, self.space.handle_fault(touch(i), access).err()?)));
        let free = self.vm.vmstat().nr_free_pages;
        match refused {
            Some((i, error)) => {
                assert_eq!((error, free), (FaultError::OutOfFrames, 0), "{k} free, refused at touch {i}");
            }
            // The zero frame takes tables alone, and one or two are there.
            None => assert!(access == Access::Read && k + 2 >= nr_stretches, "{k} free"),
        }
    }
}

fn in_full_memory(thp: HugeKnobs, test: impl Fn(&mut Full<'_>)) {
    let vm = common::huge::vm(1, ARENA, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let mut full = Full::new(&vm, &space);
    test(&mut full);
    check(&vm, &[&space]);
}

fn settings() -> [(&'static str, HugeKnobs); 5] {
    let base = HugeKnobs::DEFAULT.with_use_zero_page(false);
    let always = base.with_enabled(Enabled::Always).with_defrag(Defrag::Never);
    let sizes = always.sizes.map(|_| SizeEnabled::Inherit);
    [
        ("never", base.with_enabled(Enabled::Never)),
        ("advised", base.with_enabled(Enabled::Madvise)),
        ("always", always),
        ("always, compacting", always.with_defrag(Defrag::Always)),
        ("all sizes", always.with_sizes(sizes)),
    ]
}

#[test]
fn no_write_is_refused_while_a_frame_is_free() {
    for (name, thp) in settings() {
        in_full_memory(thp, |full| {
            eprintln!("{name}");
            for k in 0..=MOST {
                full.free(k);
                if thp.enabled == Enabled::Madvise {
                    full.space.madvise(AREA, AREA_LEN, Advice::HugePage).unwrap();
                }
                // Takes nothing; a frame cache that has frames of a block spoils it.
                full.vm.age(64, 0);
                full.touch_all(k, Access::Write);
                // Tables go with pages, but for those that a new mapping finds again.
                full.space.munmap(AREA, AREA_LEN).unwrap();
                map(full.space, AREA, AREA_LEN);
            }
            let got_huge = full.vm.event(Event::ThpFaultAlloc) > 0;
            assert_eq!(got_huge, thp.enabled != Enabled::Never, "{name}");
        });
    }
}

/// The huge zero frame does not come back, so each number of free frames has a
/// machine of its own.
#[test]
fn no_read_is_refused_while_a_frame_is_free() {
    let always = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Never);
    let numbers = [0..4, 508..520, 1022..1030].into_iter().flatten();
    for k in numbers {
        in_full_memory(always, |full| {
            full.free(k);
            full.touch_all(k, Access::Read);
            // It needs a leaf table and a twin, too.
            let nr_made = full.vm.event(Event::ThpZeroPageAlloc);
            assert!(if k < 1026 { k >= 514 || nr_made == 0 } else { nr_made == 1 }, "{k} free: {nr_made} made");
        });
    }
}

/// A call succeeds as soon as as many frames are free as it uses.
fn succeeds_with_what_it_uses(name: &str, call: impl Fn(&Space<'_>) -> bool, undo: impl Fn(&Space<'_>)) {
    in_full_memory(HugeKnobs::DEFAULT.with_enabled(Enabled::Never), |full| {
        for k in 0..100 {
            full.free(k);
            if call(full.space) {
                let left = full.vm.vmstat().nr_free_pages;
                assert!(k > 20, "{name}: with {k} frames it has nothing to show");
                assert_eq!(left, 0, "{name} with {k} free frames, and refused with fewer");
                undo(full.space);
                return;
            }
            assert_eq!(full.vm.vmstat().nr_free_pages, k, "{name}: what is refused keeps nothing");
        }
        panic!("{name}: refused with 100 free frames");
    });
}

#[test]
fn no_guards_are_refused_while_there_are_frames_for_them() {
    let guards = |space: &Space<'_>| match space.madvise(AREA, 32 * HUGE, GUARD_INSTALL) {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, MadviseError::OutOfFrames(_)), "{error}");
            false
        }
    };
    succeeds_with_what_it_uses("guards", guards, |space| map(space, AREA, AREA_LEN));
}

/// The memory for fork(2) and mremap(2), in a space of its own: a huge page where
/// the setting gives one, pages of three leaf tables, one of them pinned.
struct Subject<'a> {
    vm: &'a Vm<Hosted>,
    space: Space<'a>,
    place: Cell<u64>,
    _pin: PinMut<'a, Hosted>,
}

const SUBJECT_LEN: u64 = 4 * HUGE;
/// Neither has a table of level 1 while the subject is at the other.
const PLACES: [u64; 2] = [0x30_0000_0000, 0x38_0000_0000];

/// Mappings, and the content of each page that is there, by the offset from the place.
type Seen = (Vec<(u64, u64, VmaFlags)>, BTreeMap<u64, u64>);

impl<'a> Subject<'a> {
    fn new(vm: &'a Vm<Hosted>, thp: &HugeKnobs) -> Subject<'a> {
        let space = vm.new_space().unwrap();
        map(&space, PLACES[0], SUBJECT_LEN);
        if thp.enabled == Enabled::Madvise {
            space.madvise(PLACES[0], SUBJECT_LEN, Advice::HugePage).unwrap();
        }
        space.write(PLACES[0] + 5 * PAGE, &[1]).unwrap();
        assert_eq!(common::huge::huge_pages(&space), u64::from(thp.enabled != Enabled::Never));
        space.set_thp_disable(true);
        for page in [3, 9, 511] {
            (1..4).for_each(|i| space.write(PLACES[0] + i * HUGE + page * PAGE, &[page as u8]).unwrap());
        }
        let pin = space.pin_page_mut(PLACES[0] + HUGE + 9 * PAGE, Term::Long).unwrap();
        Subject { vm, space, place: Cell::new(PLACES[0]), _pin: pin }
    }

    /// `None` if there was no frame.
    fn fork(&self) -> Option<()> {
        match self.space.fork() {
            Ok(child) => {
                let place = self.place.get();
                (1..4).for_each(|i| assert_eq!(common::huge::byte(&child, place + i * HUGE + 9 * PAGE), 9));
                Some(())
            }
            Err(error) => {
                assert!(matches!(error, ForkError::OutOfFrames(_)), "{error}");
                None
            }
        }
    }

    /// To the other place; the next call moves back.
    fn mremap(&self) -> Option<()> {
        let from = self.place.get();
        let to = PLACES[usize::from(from == PLACES[0])];
        match self.space.mremap(from, SUBJECT_LEN, SUBJECT_LEN, MAYMOVE | MREMAP_FIXED, to) {
            Ok(at) => {
                assert_eq!(at, to);
                self.place.set(to);
                Some(())
            }
            Err(error) => {
                assert!(matches!(error, MremapError::OutOfFrames(_)), "{error}");
                None
            }
        }
    }

    /// Number of frames that the call asks for, in memory with room.
    fn need_of(&self, call: impl Fn(&Self) -> Option<()>) -> u64 {
        // Nodes of the tree stay with the space: after some calls none needs more.
        (0..80).for_each(|_| call(self).unwrap());
        let succeeds_with = |nr: &u64| {
            self.vm.fail_allocation(Some(*nr));
            let done = call(self);
            self.vm.fail_allocation(None);
            done.is_some()
        };
        (0..64).find(succeeds_with).unwrap()
    }

    fn seen(&self) -> Seen {
        let base = self.place.get();
        let mut maps = Vec::new();
        self.space.maps(&mut |vma| maps.push((vma.range.start.addr() - base, vma.range.nr_pages(), vma.flags)));
        let mut pages = BTreeMap::new();
        for at in (0..SUBJECT_LEN).step_by(PAGE as usize) {
            if self.space.translate_at_rest(base + at).is_some() {
                let mut bytes = [0; 8];
                self.space.read(base + at, &mut bytes).unwrap();
                pages.insert(at, u64::from_ne_bytes(bytes));
            }
        }
        (maps, pages)
    }
}

/// The call is refused if, and only if, fewer frames are free than it asks for.
fn refused_for_want_of_frames_alone(name: &str, call: impl Fn(&Subject<'_>) -> Option<()>) {
    for (setting, thp) in settings() {
        let vm = common::huge::vm(1, ARENA, thp);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let subject = Subject::new(&vm, &thp);
        let need = subject.need_of(&call);
        assert!(need >= 5, "{name}, {setting}: {need} frames show little");
        let space = vm.new_space().unwrap();
        let mut full = Full::new(&vm, &space);
        let before = subject.seen();
        for k in 0..=MOST {
            full.free(k);
            let what = format!("{name}, {setting}: {k} frames are free, {need} are asked for");
            let call_and_check = || {
                assert_eq!(call(&subject).is_some(), k >= need, "{what}");
                assert_eq!(vm.vmstat().nr_free_pages, k, "{what}: nothing is kept");
                if k <= need {
                    assert_eq!(subject.seen(), before, "{what}");
                    check(&vm, &[&space, &subject.space]);
                }
            };
            full.fill_cache();
            // A search in blocks alone finds none.
            assert!(k > need || full.nr_in_blocks() == 0, "{what}: not all are in a frame cache");
            call_and_check();
            // And with frames wherever that call left them.
            call_and_check();
        }
        assert_eq!(subject.seen(), before, "{name}, {setting}");
        check(&vm, &[&space, &subject.space]);
    }
}

#[test]
fn no_fork_is_refused_while_there_are_frames_for_it() {
    refused_for_want_of_frames_alone("fork", |subject| subject.fork());
}

#[test]
fn no_move_is_refused_while_there_are_frames_for_it() {
    refused_for_want_of_frames_alone("mremap", |subject| subject.mremap());
}
