//! I30: the founder's frame, those who look it up, and where a walk goes on.

use super::super::{TakeEnded, TakenEntry};
use super::*;
use crate::addr::{Access, OptPfn, Order};
use crate::machine::LockKind;
use crate::source::slot::PageFrame;
use crate::space::{AddressSpace, Vm};
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, kind, look_up_until_freed, on_relax, vm, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::vec::Vec;

const AT: u64 = 1 << 30;

/// A space with one page, and the frame of that page.
fn with_page(vm: &Vm<Plain>) -> (AddressSpace<'_, Plain>, Pfn) {
    let space = vm.new_space().unwrap();
    space.mmap(AT, 4096, RW, FIXED_PRIVATE).unwrap();
    space.handle_fault(AT, Access::Write).unwrap();
    let pfn = space.translate_at_rest(AT).unwrap().pfn;
    (space, pfn)
}

fn small(pfn: Pfn) -> PageFrame {
    PageFrame { pfn, order: Order::BASE }
}

/// A page of a pool is taken as a whole, and no other huge page is.
#[test]
#[cfg(feature = "hugetlb")]
fn entries_of_one_size_are_taken() {
    use crate::linux::{Advice, MapFlags};
    let vm = vm(4096, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let space = vm.new_space().unwrap();
    let huge = 512 * 4096;
    space.mmap(AT, huge, RW, FIXED_PRIVATE | MapFlags::HUGETLB).unwrap();
    space.mmap(2 * AT, huge, RW, FIXED_PRIVATE).unwrap();
    space.madvise(2 * AT, huge, Advice::HugePage).unwrap();
    for (at, nr_of_order) in [(AT, [0, 1]), (2 * AT, [0, 0])] {
        space.handle_fault(at, Access::Write).unwrap();
        assert_eq!(space.page_state(at).map(|state| state.order), Some(Order::PMD));
        let pfn = space.translate_at_rest(at).unwrap().pfn;
        let nr_taken = [Order::BASE, Order::PMD].map(|order| {
            let mut taken = Vec::new();
            let ended =
                vm.rmap_take(PageFrame { pfn, order }, 1, &mut Steps::unbounded(), &|_, _| false, &mut |entry| {
                    taken.push(entry)
                });
            assert_eq!(ended, Ok(()));
            assert!(taken.iter().all(|entry| entry.pages().nr_pages() == 512));
            taken.iter().for_each(TakenEntry::put_back);
            taken.len()
        });
        assert_eq!(nr_taken, nr_of_order);
    }
}

/// While a walk waits for the family's lock, the huge page goes, and a page of a pool comes to its frames and place.
#[test]
#[cfg(feature = "hugetlb")]
fn a_split_that_meets_a_page_of_a_pool() {
    use crate::linux::{Advice, MapFlags};
    use std::boxed::Box;
    for nr_turns in 0..6 {
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(4096, Tunables::default())));
        let space: &'static AddressSpace<'static, Plain> = Box::leak(Box::new(vm.new_space().unwrap()));
        let huge = 512 * 4096;
        space.mmap(AT, huge, RW, FIXED_PRIVATE).unwrap();
        space.madvise(AT, huge, Advice::HugePage).unwrap();
        space.handle_fault(AT, Access::Write).unwrap();
        let pfn = space.translate_at_rest(AT).unwrap().pfn;
        // No other block is free.
        let nr = vm.set_nr_hugepages(Order::PMD, 100).unwrap();
        space.mmap(8 * AT, nr * huge, RW, FIXED_PRIVATE | MapFlags::HUGETLB).unwrap();
        (0..nr).for_each(|page| _ = space.handle_fault(8 * AT + page * huge, Access::Write).unwrap());
        let mut lock = Some(Spin::lock(LockKind::Family, &vm.family_data(space.founder()).lock, &vm.machine));
        let mut nr_left = nr_turns;
        on_relax(move || {
            if nr_left > 0 {
                nr_left -= 1;
            } else if let Some(lock) = lock.take() {
                space.munmap(AT, huge).unwrap();
                assert_eq!(vm.set_nr_hugepages(Order::PMD, nr + 1), Ok(nr + 1));
                space.mmap(AT, huge, RW, FIXED_PRIVATE | MapFlags::HUGETLB).unwrap();
                space.handle_fault(AT, Access::Write).unwrap();
                assert_eq!(space.translate_at_rest(AT).unwrap().pfn, pfn);
                drop(lock);
            }
        });
        assert!(vm.soft_offline_frame(pfn).is_err(), "there is no memory to move it to");
        on_relax(|| ());
        assert_eq!(space.page_state(AT).map(|state| state.order), Some(Order::PMD));
        vm.check_in_test(&[space], &mut std::vec![0; 4096]).unwrap();
    }
}

#[test]
fn a_reference_keeps_the_frame() {
    let vm = vm(1024, Tunables::default());
    let (space, pfn) = with_page(&vm);
    let founder = space.frame;
    let (family, index) = vm.family_of(pfn).unwrap();
    assert_eq!((family.founder, index), (founder, AT / 4096));
    drop(space);
    assert_eq!(kind(&vm, founder), FrameKind::Meta);
    drop(family);
    assert_eq!(kind(&vm, founder), FrameKind::Free);
    assert!(vm.family_of(pfn).is_none());
    vm.check_in_test(&[], &mut std::vec![0; 1024]).unwrap();
}

/// The last member goes while another CPU is between its look at the founder's
/// frame and its compare-and-swap.
#[test]
fn a_look_up_is_waited_for() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    let (space, _) = with_page(&vm);
    let founder = space.frame;
    let is_there = |lookup: &LookupSection<'_>| vm.is_founder(lookup, founder);
    let is_raised = |lookup: &LookupSection<'_>| vm.family_get(lookup, founder).is_some();
    look_up_until_freed(&vm, founder, is_there, is_raised, space);
    assert_eq!(kind(&vm, founder), FrameKind::Free);
    vm.check_in_test(&[], &mut std::vec![0; 1024]).unwrap();
}

/// Nobody looks anything up: the end of a family asks no CPU for a barrier.
#[test]
fn an_end_without_look_ups_waits_for_nobody() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    let (space, _) = with_page(&vm);
    assert!(vm.cpus_in_lookups().is_empty());
    let other = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                be(1);
                // In a section, and not in a lookup: it is not waited for.
                core::mem::forget(vm.section());
                vm.machine.this_cpu()
            })
            .join()
            .unwrap()
    });
    vm.wait_for_lookups();
    vm.cpu(other).slot.set(0);
    drop(space);
}

fn walk(vm: &Vm<Plain>, pfn: Pfn, after: Option<Pfn>) -> Vec<Pfn> {
    let mut seen = Vec::new();
    let _ = vm.for_each_member(pfn, after, &mut Steps::unbounded(), &mut |member, _, _| {
        seen.push(member);
        ControlFlow::Continue(())
    });
    seen
}

#[test]
fn a_walk_goes_on_behind_a_member_that_is_still_one() {
    let vm = vm(2048, Tunables::default());
    let (space, pfn) = with_page(&vm);
    let children: Vec<_> = (0..3).map(|_| space.fork().unwrap()).collect();
    let all = walk(&vm, pfn, None);
    let mut listed: Vec<Pfn> = children.iter().rev().map(|child| child.frame).collect();
    listed.push(space.frame);
    assert_eq!(all, listed, "the youngest first");
    assert_eq!(walk(&vm, pfn, Some(all[0])), all[1..]);
    assert_eq!(walk(&vm, pfn, Some(all[3])), []);
    // A member that has left names the one that was next then: it may be gone.
    vm.leave_family(children[1].frame, children[1].founder());
    assert_eq!(walk(&vm, pfn, Some(children[1].frame)), [all[0], all[2], all[3]]);
    vm.enlist(children[1].frame, children[1].founder());
    children[1].data.family.prev.set(0);
    vm.family_data(children[1].founder()).refs.fetch_sub(1, Ordering::AcqRel);
    drop((space, children));
    vm.check_in_test(&[], &mut std::vec![0; 2048]).unwrap();
}

/// The steps are spent while members are asked that have let the page go.
#[test]
fn a_walk_ends_when_its_steps_are_spent() {
    let vm = vm(8192, Tunables::default());
    let (space, pfn) = with_page(&vm);
    let children: Vec<_> = (0..100).map(|_| space.fork().unwrap()).collect();
    children.iter().for_each(|child| child.munmap(AT, 4096).unwrap());
    let take = |nr_steps: u64| {
        let (mut taken, mut steps) = (Vec::new(), Steps::new(nr_steps));
        let ended = vm.rmap_take(small(pfn), 1, &mut steps, &|_, _| false, &mut |entry| taken.push(entry));
        taken.iter().for_each(TakenEntry::put_back);
        (ended, taken.len())
    };
    // Two steps a member, and one to the founder's page.
    assert_eq!(take(0), (Err(TakeEnded::OutOfSteps), 0));
    assert_eq!(take(200), (Err(TakeEnded::OutOfSteps), 0));
    let nr_seen = || vm.family_data(space.founder()).nr_steps.get();
    let before = nr_seen();
    assert_eq!(take(201), (Ok(()), 1));
    assert_eq!(nr_seen() - before, 202, "others learn of the lock, and of each step");
    let mut all: Vec<&AddressSpace<'_, Plain>> = children.iter().collect();
    all.push(&space);
    vm.check_in_test(&all, &mut std::vec![0; 8192]).unwrap();
}

/// Another CPU walks the family for as many steps as there are. All of them are left afterwards.
#[test]
fn a_walk_has_its_own_steps_after_it_has_waited() {
    const OF_OTHERS: u64 = 10;
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(1024, Tunables::default())));
    let (space, pfn) = with_page(vm);
    let head = vm.family_data(space.founder());
    let lock = Rc::new(Cell::new(head.lock(&vm.machine, &mut Steps::unbounded()).ok()));
    let (nr_turns, held) = (Rc::new(Cell::new(0)), Rc::clone(&lock));
    let counted = Rc::clone(&nr_turns);
    on_relax(move || {
        counted.set(counted.get() + 1);
        if counted.get() <= OF_OTHERS {
            head.nr_steps.add_owned(1);
        } else {
            drop(held.take());
        }
    });
    let (mut nr_taken, mut steps) = (0, Steps::new(OF_OTHERS));
    let ended = vm.rmap_take(small(pfn), 1, &mut steps, &|_, _| false, &mut |entry| {
        nr_taken += 1;
        entry.put_back();
    });
    assert_eq!((ended, nr_taken), (Ok(()), 1));
    assert!(nr_turns.get() > OF_OTHERS, "it has waited");
    vm.check_in_test(&[&space], &mut std::vec![0; 1024]).unwrap();
}

/// Another CPU walks the family for more steps than there are. In between that CPU does not run, which costs nothing.
#[test]
fn a_walk_waits_for_no_more_steps_of_others_than_it_has() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(1024, Tunables::default())));
    let (space, pfn) = with_page(vm);
    let head = vm.family_data(space.founder());
    let lock = head.lock(&vm.machine, &mut Steps::unbounded());
    let nr_turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&nr_turns);
    on_relax(move || {
        counted.set(counted.get() + 1);
        assert!(counted.get() < 10_000, "waits for a walk of somebody else's, however long");
        head.nr_steps.add_owned(u64::from(counted.get() % 500 == 0));
    });
    let mut steps = Steps::new(10);
    let ended = vm.rmap_take(small(pfn), 1, &mut steps, &|_, _| false, &mut |_| panic!("taken without the lock"));
    assert_eq!((ended, nr_turns.get()), (Err(TakeEnded::OutOfSteps), 11 * 500), "and for no fewer");
    drop(lock);
    // Its reference to the family is gone, and with steps left the walk finds the page.
    assert_eq!(vm.family_counts(space.founder()), (1, 1));
    let (mut nr_taken, mut steps) = (0, Steps::new(10));
    let ended = vm.rmap_take(small(pfn), 1, &mut steps, &|_, _| false, &mut |entry| {
        nr_taken += 1;
        entry.put_back();
    });
    assert_eq!((ended, nr_taken), (Ok(()), 1));
    vm.check_in_test(&[&space], &mut std::vec![0; 1024]).unwrap();
}

/// Only a founder's frame waits for lookups before it goes back.
#[test]
fn a_look_up_reads_no_frame_of_others() {
    let vm = vm(1024, Tunables::default());
    let (space, pfn) = with_page(&vm);
    let child = space.fork().unwrap();
    assert!(vm.is_founder(&vm.lookup_section(), space.frame));
    vm.machine.closed.set(OptPfn::some(child.frame).to_word());
    for frame in [child.frame, child.root, space.root, pfn] {
        assert!(!vm.is_founder(&vm.lookup_section(), frame));
    }
    vm.machine.closed.set(0);
    drop(space);
    assert!(
        !vm.is_founder(&vm.lookup_section(), child.frame)
            && vm.is_founder(&vm.lookup_section(), Pfn(child.family as u32)),
        "a founder for as long as it has members"
    );
}
