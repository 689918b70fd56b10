//! With huge pages, too: the first allocation of an operation fails, then the
//! second, and so on until it succeeds. Contents and mappings are as before, every
//! frame is accounted for, and the same operation then succeeds. A huge page that
//! was split on the way stays split: nobody can see it.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE};
use common::*;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::{Access, Advice, CpuId, HugeKnobs, MremapFlags, PinMut, Term, Vm, Vma};
use softfault_host::Hosted;
use std::collections::BTreeMap;

const NR_PAGES: u64 = 512;

/// The ranges of 2 MiB behind `AT`, by their state.
const OWN: u64 = 0;
const SHARED_HUGE: u64 = 1;
/// The child has split its mapping of it.
const DERIVED: u64 = 2;
const HOLE: u64 = 3;
const ZERO: u64 = 4;
/// In 4 KiB pages, not all of them.
const SMALL: u64 = 5;
/// In 4 KiB pages, some of them the child's, too.
const SMALL_SHARED: u64 = 6;
const PINNED: u64 = 7;
const NR: u64 = 8;
/// Far off, where no table stands.
const FAR: u64 = AT + (1 << 40);

const fn at(stretch: u64, page: u64) -> u64 {
    AT + stretch * HUGE + page * PAGE
}

struct State<'a> {
    vm: &'a Vm<Hosted>,
    space: Space<'a>,
    child: Space<'a>,
    others: Vec<Space<'a>>,
    _pin: PinMut<'a, Hosted>,
}

impl<'a> State<'a> {
    fn new(vm: &'a Vm<Hosted>) -> State<'a> {
        let space = vm.new_space().unwrap();
        assert_eq!(space.mmap(AT, NR * HUGE, RW, PRIVATE | FIXED), Ok(AT));
        let write = |page: u64| space.write(page, &page.to_ne_bytes()).unwrap();
        let fill = |stretch, step| (0..NR_PAGES).step_by(step).for_each(|page| write(at(stretch, page)));
        [SHARED_HUGE, DERIVED].into_iter().for_each(|stretch| fill(stretch, 1));
        space.set_thp_disable(true);
        fill(SMALL_SHARED, 5);
        let child = space.fork().unwrap();
        fill(SMALL, 3);
        space.set_thp_disable(false);
        fill(OWN, 1);
        fill(PINNED, 1);
        child.write(at(DERIVED, 9), &[9]).unwrap();
        child.munmap(at(DERIVED, 100), 20 * PAGE).unwrap();
        space.handle_fault(at(ZERO, 0), Access::Read).unwrap();
        let pin = space.pin_page_mut(at(PINNED, 33), Term::Long).unwrap();
        assert_eq!(space.rss_pages().anon_huge, 4 * NR_PAGES);
        State { vm, space, child, others: Vec::new(), _pin: pin }
    }

    fn check(&self) {
        let mut spaces = vec![&self.space, &self.child];
        spaces.extend(&self.others);
        check(self.vm, &spaces);
    }
}

/// Mappings, and the content of what is there.
fn snapshot(space: &Space<'_>) -> (Vec<Vma>, BTreeMap<u64, u64>) {
    let mut maps = Vec::new();
    space.maps(&mut |vma| maps.push(*vma));
    let mut pages = BTreeMap::new();
    for vpn in maps.iter().flat_map(|vma| vma.range.start.0..vma.range.end.0) {
        if space.translate_at_rest(vpn * PAGE).is_some() {
            let mut bytes = [0; 8];
            space.read(vpn * PAGE, &mut bytes).unwrap();
            pages.insert(vpn, u64::from_ne_bytes(bytes));
        }
    }
    (maps, pages)
}

/// Old pages are there, and new ones are zero.
fn same(before: &(Vec<Vma>, BTreeMap<u64, u64>), now: &(Vec<Vma>, BTreeMap<u64, u64>)) {
    assert_eq!(now.0, before.0);
    assert!(before.1.keys().all(|vpn| now.1.contains_key(vpn)), "a page has gone");
    for (vpn, value) in &now.1 {
        assert_eq!(*value, before.1.get(vpn).copied().unwrap_or(0), "page {vpn:#x}");
    }
}

type Call = fn(&mut State<'_>) -> Result<(), String>;

/// Runs `call` with each number of allocations that succeed. At least `least` have
/// to make it fail, or the test would show nothing.
fn each_failure(least: u64, call: Call) {
    for (cow, all_sizes) in [(CowHuge::Split, false), (CowHuge::Copy, false), (CowHuge::Copy, true)] {
        let mut k = 0;
        while fails_at(k, cow, all_sizes, call) {
            k += 1;
            assert!(k < 200, "it never succeeds");
        }
        assert!(k >= least, "only {k} allocations failed");
    }
}

fn fails_at(k: u64, cow: CowHuge, all_sizes: bool, call: Call) -> bool {
    let vm = Setup::PLAIN.vm(1, 40 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow);
    if all_sizes {
        thp.sizes.fill(SizeEnabled::Always);
    }
    vm.set_huge_knobs(&thp).unwrap();
    let nr_free = softfault_testkit::hosted::nr_free_pages(&vm);
    let failed;
    {
        let mut state = State::new(&vm);
        cpu.arrive(&state.space).unwrap();
        state.check();
        let before = (snapshot(&state.space), snapshot(&state.child));
        vm.fail_allocation(Some(k));
        let result = call(&mut state);
        vm.fail_allocation(None);
        eprintln!("{cow:?}, allocation {k}: {result:?}");
        state.check();
        failed = result.is_err();
        if failed {
            same(&before.0, &snapshot(&state.space));
            same(&before.1, &snapshot(&state.child));
            call(&mut state).unwrap();
            state.check();
        }
        cpu.depart(&state.space);
    }
    check(&vm, &[]);
    assert_eq!(softfault_testkit::hosted::nr_free_pages(&vm), nr_free, "frames are lost");
    failed
}

/// `tests! { name: at least so many failures, call }`.
macro_rules! tests {
    ($($name:ident: $least:literal, $call:expr;)*) => {
        $(#[test] fn $name() { each_failure($least, $call); })*
    };
}

tests! {
    fork: 8, |s| keep(&mut s.others, s.space.fork());
    fork_of_the_child: 8, |s| keep(&mut s.others, s.child.fork());

    fault_in_a_hole: 1, |s| text(s.space.handle_fault(at(HOLE, 77), Access::Write));
    fault_in_a_hole_by_reading: 1, |s| text(s.space.handle_fault(at(HOLE, 77), Access::Read));
    fault_on_the_huge_zero_page: 1, |s| text(s.space.handle_fault(at(ZERO, 77), Access::Write));
    fault_copies: 1, |s| text(s.space.handle_fault(at(SHARED_HUGE, 77), Access::Write));
    fault_copies_in_the_child: 1, |s| text(s.child.handle_fault(at(SHARED_HUGE, 77), Access::Write));
    fault_copies_what_is_derived: 1, |s| text(s.space.handle_fault(at(DERIVED, 77), Access::Write));
    fault_beside_small_pages: 1, |s| text(s.space.handle_fault(at(SMALL, 500), Access::Write));
    forced_write_to_the_huge_zero_page: 1, |s| {
        text(s.space.write_forced(at(ZERO, 5), &[0]))
    };
    pin_in_place_of_the_huge_zero_page: 1, |s| {
        text(s.space.pin_page(at(ZERO, 5), Term::Short))
    };
    pin_unshares: 1, |s| text(s.space.pin_page(at(SHARED_HUGE, 5), Term::Short));

    mremap_moves_all: 3, |s| text(s.space.mremap(AT, NR * HUGE, NR * HUGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, FAR));
    mremap_moves_to_an_odd_place: 3, |s| text(s.space.mremap(AT, NR * HUGE, NR * HUGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, FAR + 5 * PAGE));
    mremap_moves_a_part: 3, |s| text(s.space.mremap(at(OWN, 9), 20 * PAGE, 20 * PAGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, FAR + PAGE));

    munmap_of_a_part: 0, |s| text(s.space.munmap(at(OWN, 9), 20 * PAGE));
    dontneed_of_a_part: 0, |s| text(s.space.madvise(at(SHARED_HUGE, 9), 20 * PAGE, DONTNEED));
    mprotect_of_a_part: 0, |s| text(s.space.mprotect(at(DERIVED, 9), 20 * PAGE, READ));
    guards: 0, |s| text(s.space.madvise(at(OWN, 9), 20 * PAGE, GUARD_INSTALL));

    collapse: 1, |s| s.space.collapse(at(SMALL, 0)).map_err(|refusal| refusal.name().into());
    collapse_of_shared_pages: 1, |s| s.space.collapse(at(SMALL_SHARED, 0)).map_err(|refusal| refusal.name().into());
    collapse_in_the_child: 1, |s| {
        // Inherited by fork.
        s.child.set_thp_disable(false);
        s.child.collapse(at(SMALL_SHARED, 0)).map_err(|refusal| refusal.name().into())
    };
    collapse_by_advice: 1, |s| text(s.space.madvise(at(SMALL, 0), 2 * HUGE, Advice::Collapse));
    a_page_moves: 1, |s| {
        let there = s.space.translate_at_rest(at(SMALL_SHARED, 0)).unwrap();
        s.vm.migrate_frame(there.pfn).map(drop).map_err(|refusal| format!("{refusal:?}"))
    };
}

/// A daemon's steps: whatever they find, nothing is changed for programs.
#[test]
fn daemons() {
    for k in 0..12 {
        let vm = Setup::PLAIN.vm(1, 40 << 20);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always)).unwrap();
        let state = State::new(&vm);
        let before = (snapshot(&state.space), snapshot(&state.child));
        vm.fail_allocation(Some(k));
        state.space.khugepaged_scan(AT, NR * NR_PAGES);
        state.check();
        let _ = vm.compact_step(&CompactBudget::BACKGROUND);
        vm.fail_allocation(None);
        state.check();
        same(&before.0, &snapshot(&state.space));
        same(&before.1, &snapshot(&state.child));
    }
}
