//! Ages of pages against a model: which pages were used in which generation. Private pages,
//! forked ones, pages of an object in two spaces, huge ones; frames that move, go and come again.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, huge_pages};
use common::*;
use softfault::policy::huge::Enabled;
use softfault::{Access, Advance, Advice, CpuId, HugeKnobs, MapFlags, OLDEST_AGE, ObjectPart, Pfn, SharedObject, Vm};
use softfault_testkit::random::Random;
use std::collections::BTreeMap;

const MAP: MapFlags = MapFlags::SHARED;
/// Private pages at `BASE`, and pages of the object behind them.
const NR_PRIVATE: u64 = 24;
const NR_SHARED: u64 = 16;
const OBJECT: u64 = BASE + NR_PRIVATE * PAGE;

/// A walk of a whole space, some entries at a time.
fn age(space: &Space<'_>, step: u64) -> u64 {
    let (mut at, mut nr_young, mut nr_steps) = (Some(0), 0, 0);
    while let Some(from) = at {
        let aged = space.age_pages(from, step);
        assert!(aged.next.is_none_or(|next| next > from));
        nr_young += aged.nr_young;
        nr_steps += 1;
        at = aged.next;
    }
    assert!(nr_steps > 1 || step > 600, "one step has a bound");
    nr_young
}

fn advance(vm: &Vm<Hosted>, step: u64) {
    while vm.advance_generation(step) != Advance::Done {}
}

/// The generation in which each frame was used last.
struct Model<'a, 'vm> {
    vm: &'a Vm<Hosted>,
    seen: BTreeMap<Pfn, u64>,
    /// By space: the pages that have a frame of their own or an object's.
    spaces: Vec<&'a Space<'vm>>,
}

fn frame(space: &Space<'_>, at: u64) -> Option<Pfn> {
    space.translate_at_rest(at).map(|there| there.pfn)
}

impl Model<'_, '_> {
    /// A store by a program: what is there afterwards was used now.
    fn store(&mut self, space: &Space<'_>, at: u64) {
        space.write(at, &[at as u8 | 1]).unwrap();
        let there = space.translate_at_rest(at).unwrap();
        let first = there.pfn.0 - if there.order.0 > 0 { (at / PAGE % 512) as u32 } else { 0 };
        for p in first..first + there.order.nr_pages() as u32 {
            self.seen.insert(Pfn(p), self.vm.generation());
        }
    }

    /// A load of a page that is there; another one would map the zero frame.
    fn load(&mut self, space: &Space<'_>, at: u64) {
        if frame(space, at).is_some_and(|pfn| self.seen.contains_key(&pfn)) {
            space.read(at, &mut [0]).unwrap();
            self.seen.insert(frame(space, at).unwrap(), self.vm.generation());
        }
    }

    /// Frames that nobody maps any more, and that no object has, are gone.
    fn forget(&mut self, object: &SharedObject<'_, Hosted>, last: &BTreeMap<u64, Pfn>) {
        let mapped = |pfn: &Pfn| {
            let all = (0..NR_PRIVATE + NR_SHARED).map(|i| BASE + i * PAGE);
            self.spaces.iter().any(|space| all.clone().any(|at| frame(space, at) == Some(*pfn)))
        };
        let of_object =
            |pfn: &Pfn| last.iter().any(|(i, there)| there == pfn && object.next_resident(*i..*i + 1) == Some(*i));
        let keep: Vec<Pfn> = self.seen.keys().copied().filter(|pfn| mapped(pfn) || of_object(pfn)).collect();
        self.seen.retain(|pfn, _| keep.contains(pfn));
    }

    fn nr_idle(&self, age: u32) -> u64 {
        self.seen.values().filter(|seen| self.vm.generation() - **seen >= u64::from(age)).count() as u64
    }

    fn compare(&self, oldest: u32) {
        for age in 0..=oldest {
            assert_eq!(self.vm.idle_pages(age), self.nr_idle(age), "age {age}, generation {}", self.vm.generation());
        }
        assert_eq!(self.vm.idle_pages(OLDEST_AGE + 1), 0);
    }
}

/// Rounds of random uses, each followed by walks of both spaces and an advance in steps.
#[test]
fn random_uses_agree_with_the_model() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(NR_SHARED * PAGE).unwrap();
        w.space.mmap(BASE, NR_PRIVATE * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.mmap_object(OBJECT, NR_SHARED * PAGE, RW, MAP | FIXED, ObjectPart::new(&object)).unwrap();
        let child = w.space.fork().unwrap();
        let mut model = Model { vm: w.vm, seen: BTreeMap::new(), spaces: vec![w.space, &child] };
        // Where each page of the object was seen last.
        let mut last = BTreeMap::new();
        let mut random = Random::new(13);
        let mut was_there = [false; OLDEST_AGE as usize + 1];
        for _ in 0..fewer(60) + 4 {
            for _ in 0..12 {
                let space = random.pick(&[w.space, &child]);
                let page = random.below(NR_PRIVATE + NR_SHARED);
                let at = BASE + page * PAGE;
                match random.below(10) {
                    0..=3 => model.store(space, at),
                    4..=6 => model.load(space, at),
                    7 if page >= NR_PRIVATE && last.contains_key(&(page - NR_PRIVATE)) => {
                        // Not through an entry.
                        let i = page - NR_PRIVATE;
                        if object.next_resident(i..i + 1).is_some() {
                            object.read(i * PAGE, &mut [0]);
                            model.seen.insert(last[&i], w.vm.generation());
                        }
                    }
                    8 if page < NR_PRIVATE => move_page(&mut model, space, at),
                    9 => drop_page(&mut model, space, &object, at),
                    _ => {}
                }
                for i in 0..NR_SHARED {
                    let there = [w.space, &child].iter().find_map(|space| frame(space, OBJECT + i * PAGE));
                    _ = there.map(|pfn| last.insert(i, pfn));
                }
                model.forget(&object, &last);
            }
            let step = random.pick(&[1, 7, 64, 1000]);
            age(w.space, step);
            age(&child, step);
            model.compare(OLDEST_AGE);
            for age in 0..=OLDEST_AGE {
                was_there[age as usize] |= model.nr_idle(age) > model.nr_idle(age + 1);
            }
            assert_eq!(age(w.space, 1000) + age(&child, 1000), 0, "nothing was used since");
            let _ = w.vm.advance_generation(1);
            check(w.vm, &[w.space, &child]);
            model.compare(OLDEST_AGE - 1);
            advance(w.vm, random.below(9) + 1);
        }
        assert_eq!(was_there, [true; OLDEST_AGE as usize + 1], "each age was there");
    });
}

/// The page gets another frame, and is as old as it was.
fn move_page(model: &mut Model<'_, '_>, space: &Space<'_>, at: u64) {
    let Some(pfn) = frame(space, at) else { return };
    if let Ok(to) = model.vm.migrate_frame(pfn) {
        let seen = model.seen.remove(&pfn).unwrap();
        model.seen.insert(to, seen);
    }
}

/// The mapping loses its page; the object may lose it, too.
fn drop_page(model: &mut Model<'_, '_>, space: &Space<'_>, object: &SharedObject<'_, Hosted>, at: u64) {
    if at >= OBJECT && at.is_multiple_of(3 * PAGE) {
        return object.discard((at - OBJECT) / PAGE..(at - OBJECT) / PAGE + 1);
    }
    // A use that no walk has seen goes into the age of an object's page.
    let _ = model;
    space.madvise(at, PAGE, DONTNEED).unwrap();
}

/// A huge page has one accessed bit and 512 ages; a split leaves them, and a collapse brings each
/// page its own.
#[test]
fn huge_pages_have_an_age_for_each_part() {
    let vm = huge::vm(1, 64 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Always));
    let _cpu = vm.machine().bind(softfault::CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, 2 * HUGE);
    space.write(AT + 5 * PAGE, &[1]).unwrap();
    assert_eq!((huge_pages(&space), vm.idle_pages(0)), (1, 512));
    assert_eq!(age(&space, 1000), 512);
    (0..2).for_each(|_| advance(&vm, 2));
    assert_eq!((vm.idle_pages(2), vm.idle_pages(3)), (512, 0));
    // The zero page is nobody's.
    space.read(AT + HUGE, &mut [0]).unwrap();
    assert_eq!(vm.idle_pages(0), 512);
    space.read(AT + 9 * PAGE, &mut [0]).unwrap();
    assert_eq!((age(&space, 1000), vm.idle_pages(1)), (1024, 0));
    (0..2).for_each(|_| advance(&vm, 100));
    // A hole splits it: nothing is younger than before.
    space.madvise(AT, PAGE, DONTNEED).unwrap();
    assert_eq!((huge_pages(&space), vm.idle_pages(0), vm.idle_pages(2)), (0, 511, 511));
    let nr_young = age(&space, 1000);
    assert!(nr_young <= 511, "a split leaves the accessed bit as it was: {nr_young}");
    assert_eq!(vm.idle_pages(2), 511 - nr_young);
    space.read(AT + 7 * PAGE, &mut [0]).unwrap();
    assert_eq!((age(&space, 1000), vm.idle_pages(2)), (1, 510));
    advance(&vm, 1);
    space.madvise(AT, HUGE, Advice::Collapse).unwrap();
    assert_eq!((huge_pages(&space), vm.idle_pages(0)), (1, 512));
    assert_eq!((vm.idle_pages(1), vm.idle_pages(3)), (511, 510), "the hole is new, and one page was used");
    check(&vm, &[&space]);
    space.read(AT, &mut [0]).unwrap();
    assert_eq!((age(&space, 1000), vm.idle_pages(1)), (512, 0));
    drop(space);
    assert_eq!(vm.idle_pages(0), 0);
}

/// A translation that a CPU has is used without a trace until it is dropped: no walk flushes. The
/// call that does sees the next use.
#[test]
fn a_walk_flushes_no_tlb() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        w.space.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        let program = w.cpu.enter(w.space).unwrap();
        program.store(BASE, &[1]).unwrap();
        assert_eq!(age(w.space, 1000), 1);
        program.load(BASE, &mut [0]).unwrap();
        assert_eq!(age(w.space, 1000), 0, "the TLB has it");
        advance(w.vm, 100);
        assert_eq!(w.vm.idle_pages(1), 1, "it looks older than it is");
        assert_eq!(w.space.test_and_clear_young(BASE, PAGE), 0);
        w.space.mprotect(BASE, 4 * PAGE, READ).unwrap();
        program.load(BASE, &mut [0]).unwrap();
        assert_eq!((age(w.space, 1000), w.vm.idle_pages(1)), (1, 0));
        drop(program);
    });
}

/// A call that asks for accessed bits and clears them keeps the use in the age.
#[test]
fn test_and_clear_young_notes_the_age() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        w.space.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.write(BASE, &[1; 8192]).unwrap();
        age(w.space, 1000);
        advance(w.vm, 100);
        w.space.read(BASE, &mut [0]).unwrap();
        assert_eq!((w.space.test_young(BASE, PAGE), w.vm.idle_pages(1)), (1, 2));
        assert_eq!((w.space.test_and_clear_young(BASE, 4 * PAGE), w.vm.idle_pages(1)), (1, 1));
        assert_eq!(age(w.space, 1000), 0);
    });
}

/// Pages that were just made are young, save those whose frames a CPU had in its cache.
#[test]
fn new_pages_are_young() {
    let vm = huge::vm(1, 64 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Never));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, 400 * PAGE);
    space.handle_fault(AT, Access::Write).unwrap();
    (0..2).for_each(|_| advance(&vm, u64::MAX));
    (1..400).for_each(|page| _ = space.handle_fault(AT + page * PAGE, Access::Write).unwrap());
    assert_eq!(vm.idle_pages(0), 400);
    let nr_idle = vm.idle_pages(1);
    assert!((1..=64).contains(&nr_idle), "{nr_idle}");
}
