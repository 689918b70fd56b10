//! Private pages are swapped out while other CPUs use them: a page that is swapped in has the bytes that
//! were written, each slot and frame has one owner, and all are freed in the end.
//!
//! Ways to fail: a fault reads a slot that was reused meanwhile; a slot or a frame is freed while it is
//! used, or never; a discarded page comes back.

use common::pager::{self, Pager};
use common::{World, be, explore, let_others_run_in_shootdowns_of, models, run, use_swap};
use softfault_modelled::{Access, AddressSpace, FaultError, FaultLocking, MigrateRefusal, SwapRefusal, Term};
use std::sync::{Arc, Mutex};

type Space = AddressSpace<'static, common::Modelled>;

const PAGE: u64 = 4096;

/// Two pages, which say 7 and 8.
fn written(writes_fail: bool) -> World {
    use_swap(writes_fail);
    let w = World::new(FaultLocking::Lockfree, 0, 2);
    w.space.write(0, &[7]).unwrap();
    w.space.write(PAGE, &[8]).unwrap();
    w
}

/// Swaps out what is at the page, if anything is.
fn swap_out(w: World, space: &Space, page: u64) -> Result<u64, SwapRefusal> {
    let there = space.translate_at_rest(page * PAGE);
    there.map_or(Err(SwapRefusal::Stays(MigrateRefusal::NotInUse)), |there| w.vm.swap_out_frame(there.pfn))
}

fn byte_at(space: &Space, page: u64) -> u8 {
    let mut byte = [0];
    space.read(page * PAGE, &mut byte).unwrap();
    byte[0]
}

fn write(space: &Space, page: u64, byte: u8) {
    space.write(page * PAGE, &[byte]).unwrap();
}

fn has_its_pages(w: World) {
    assert_eq!([byte_at(w.space, 0), byte_at(w.space, 1)], [7, 8]);
    w.check(&[]);
}

/// Page 0 is swapped out; then two CPUs do something.
fn swapped_out(
    most_preemptions: usize,
    first: impl Fn(World) + Sync + Send + Copy + 'static,
    second: impl Fn(World) + Sync + Send + Copy + 'static,
    after: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(most_preemptions, move || {
        let w = written(false);
        be(0);
        assert_eq!(swap_out(w, w.space, 0), Ok(1));
        run(vec![Box::new(move || first(w)), Box::new(move || second(w))]);
        w.check(&[]);
        after(w);
    });
}

/// Page 0 is being swapped out while another CPU does something.
fn going_out(
    writes_fail: bool,
    most_preemptions: usize,
    other: impl Fn(World) + Sync + Send + Copy + 'static,
    after: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(most_preemptions, move || {
        let w = written(writes_fail);
        be(0);
        run(vec![Box::new(move || _ = swap_out(w, w.space, 0)), Box::new(move || other(w))]);
        w.check(&[]);
        after(w);
    });
}

#[test]
fn a_fault_against_a_fault() {
    swapped_out(2, |w| assert_eq!(byte_at(w.space, 0), 7), |w| assert_eq!(byte_at(w.space, 0), 7), has_its_pages);
}

/// The slot is reused for another page while a CPU is about to read it.
#[test]
fn a_fault_against_another_use_of_the_slot() {
    swapped_out(
        2,
        |w| assert_eq!(byte_at(w.space, 0), 7),
        |w| {
            assert_eq!(byte_at(w.space, 0), 7);
            assert_eq!(swap_out(w, w.space, 1), Ok(1));
        },
        has_its_pages,
    );
}

/// The page is changed and swapped out again while another CPU swaps it in.
#[test]
fn a_fault_against_the_page_going_out_again() {
    swapped_out(
        1,
        |w| assert!([7, 9].contains(&byte_at(w.space, 0))),
        |w| {
            write(w.space, 0, 9);
            _ = swap_out(w, w.space, 0);
        },
        |w| assert_eq!([byte_at(w.space, 0), byte_at(w.space, 1)], [9, 8]),
    );
}

#[test]
fn a_fault_against_munmap() {
    let_others_run_in_shootdowns_of(2);
    swapped_out(
        2,
        |w| match w.space.handle_fault(0, Access::Read) {
            Ok(_) | Err(FaultError::NotMapped) => {}
            Err(error) => panic!("{error}"),
        },
        |w| w.space.munmap(0, PAGE).unwrap(),
        |w| assert_eq!(w.space.handle_fault(0, Access::Read), Err(FaultError::NotMapped)),
    );
}

/// A page that a program has discarded does not come back.
#[test]
fn a_fault_against_a_discard() {
    swapped_out(
        2,
        |w| _ = byte_at(w.space, 0),
        |w| {
            w.space.madvise(0, PAGE, softfault_modelled::Advice::DontNeed).unwrap();
            assert_eq!(byte_at(w.space, 0), 0);
        },
        |w| assert_eq!(byte_at(w.space, 0), 0),
    );
}

fn a_fork_against(most_preemptions: usize, is_out: bool, other: impl Fn(World) + Sync + Send + Copy + 'static) {
    explore(most_preemptions, move || {
        let w = written(false);
        be(0);
        if is_out {
            assert_eq!(swap_out(w, w.space, 0), Ok(1));
        }
        let child: Arc<Mutex<Option<Space>>> = Arc::default();
        let place = child.clone();
        // Fork first: one preemption of it is enough.
        run(vec![Box::new(move || *place.lock().unwrap() = Some(w.space.fork().unwrap())), Box::new(move || other(w))]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        assert_eq!([byte_at(&child, 0), byte_at(w.space, 0)], [7, 7]);
        drop(child);
        w.check(&[]);
    });
}

#[test]
fn a_fork_against_a_fault() {
    a_fork_against(1, true, |w| assert_eq!(byte_at(w.space, 0), 7));
}

/// The slot becomes that of another page while the child's entry is being made.
#[test]
fn a_fork_against_another_use_of_the_slot() {
    a_fork_against(1, true, |w| {
        assert_eq!(byte_at(w.space, 0), 7);
        _ = swap_out(w, w.space, 1);
    });
}

#[test]
fn a_fork_against_swapping_out() {
    let_others_run_in_shootdowns_of(1);
    a_fork_against(1, false, |w| _ = swap_out(w, w.space, 0));
}

/// A page that fork is about to copy since it is pinned is unpinned and goes out.
#[test]
fn a_fork_that_copies_against_swapping_out() {
    explore(1, || {
        let w = written(false);
        be(0);
        let pin = w.space.pin_page_mut(0, Term::Short).unwrap();
        let child: Arc<Mutex<Option<Space>>> = Arc::default();
        let place = child.clone();
        // Fork first: one preemption of it is enough.
        run(vec![
            Box::new(move || *place.lock().unwrap() = Some(w.space.fork().unwrap())),
            Box::new(move || {
                drop(pin);
                _ = swap_out(w, w.space, 0);
            }),
        ]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        assert_eq!([byte_at(&child, 0), byte_at(w.space, 0)], [7, 7]);
    });
}

#[test]
fn swapping_out_against_a_fault() {
    for writes_fail in [false, true] {
        going_out(writes_fail, 2, |w| assert_eq!(byte_at(w.space, 0), 7), has_its_pages);
    }
}

#[test]
fn swapping_out_against_a_store() {
    going_out(false, 2, |w| write(w.space, 0, 9), |w| assert_eq!([byte_at(w.space, 0), byte_at(w.space, 1)], [9, 8]));
}

#[test]
fn swapping_out_against_munmap() {
    let_others_run_in_shootdowns_of(1);
    for writes_fail in [false, true] {
        going_out(writes_fail, 2, |w| w.space.munmap(0, PAGE).unwrap(), |w| assert_eq!(byte_at(w.space, 1), 8));
    }
}

#[test]
fn swapping_out_against_a_pin() {
    going_out(
        false,
        2,
        |w| {
            let pin = w.space.pin_page_mut(0, Term::Short).unwrap();
            pin.write(0, &[9]);
            assert_eq!(w.vm.swap_out_frame(pin.pfn()), Err(SwapRefusal::Stays(MigrateRefusal::Pinned)));
        },
        |w| assert_eq!(byte_at(w.space, 0), 9),
    );
}

/// A page that was locked stays.
#[test]
fn swapping_out_against_mlock() {
    let_others_run_in_shootdowns_of(1);
    going_out(
        false,
        2,
        |w| {
            w.space.mlock(0, PAGE, softfault_modelled::MlockFlags::empty()).unwrap();
            assert_eq!(w.space.rss_pages().swap, 0, "it went after it was locked");
        },
        |w| {
            assert_eq!(w.space.rss_pages().anon, 2);
            has_its_pages(w);
        },
    );
}

/// Two CPUs take and give slots: each has one owner at a time.
#[test]
fn two_pages_go_out_at_a_time() {
    explore(2, || {
        let w = written(false);
        be(0);
        assert_eq!(swap_out(w, w.space, 0), Ok(1));
        run(vec![
            Box::new(move || {
                assert_eq!(byte_at(w.space, 0), 7);
                _ = swap_out(w, w.space, 0);
            }),
            Box::new(move || {
                _ = swap_out(w, w.space, 1);
                assert_eq!(byte_at(w.space, 1), 8);
            }),
        ]);
        has_its_pages(w);
    });
}

/// Those that have pages of the world's space.
const WITH_PAGES: &[(&str, fn())] = models![
    a_fault_against_a_fault,
    a_fault_against_the_page_going_out_again,
    a_fault_against_munmap,
    a_fault_against_a_discard,
    a_fork_against_a_fault,
    a_fork_against_another_use_of_the_slot,
    a_fork_against_swapping_out,
    a_fork_that_copies_against_swapping_out,
    swapping_out_against_a_fault,
    swapping_out_against_a_store,
    swapping_out_against_munmap,
    two_pages_go_out_at_a_time
];

#[test]
fn beside_a_pager() {
    // Others need the slots, or say why a page stays.
    pager::beside_a_pager(Pager::SwapsOut, WITH_PAGES);
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(Pager::Fails, WITH_PAGES);
}
