//! Entries of 2 MiB for pages of a pool: where they come from, what may not cut them, and how they go.

use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::refusals_to_cut;
use super::{ANON, AT, HUGE, counts, free, map, object, with_pool};
use softfault::{Access, Advice, Errno, FaultError, MapFlags, MlockFlags, Order, Term};

/// The order of the entry of a page.
fn order_at(w: &World<'_>, at: u64) -> Option<Order> {
    w.space.page_state(at).map(|state| state.order)
}

#[test]
fn a_page_is_one_entry() {
    with_pool(1, 3, |w| {
        let at = w.space.mmap(AT, 3 * HUGE, RW, ANON | FIXED).unwrap();
        touch(w.space, at + 5 * PAGE).unwrap();
        let rss = w.space.rss_pages();
        assert_eq!((rss.shmem, rss.anon_huge, order_at(w, at + HUGE - 1)), (512, 0, Some(Order::PMD)));
        check(w.vm, &[w.space]);
        // No leaf table, no deposit, no twin: the second page needs no frame at all.
        w.vm.fail_allocation(Some(0));
        w.space.handle_fault(at + HUGE, Access::Read).unwrap();
        w.vm.fail_allocation(None);
        assert_eq!(w.space.rss_pages().tables, rss.tables);
        w.space.write(at + HUGE + 7, &[9]).unwrap();
        assert_eq!((bytes(w.space, at + HUGE + 7), order_at(w, at + 2 * HUGE)), ([9], None));
        let mut smaps = Vec::new();
        w.space.smaps(&mut |entry| smaps.push((entry.rss_pages, entry.anon_pages, entry.anon_huge_pages)));
        assert_eq!(smaps, [(1024, 0, 0)]);
        let mut resident = Vec::new();
        w.space.mincore(at, 3 * HUGE, &mut |nr, is_in| resident.push((nr, is_in))).unwrap();
        assert_eq!(resident.iter().filter(|run| run.1).map(|run| run.0).sum::<u64>(), 1024);
        let child = w.space.fork().unwrap();
        assert_eq!((child.rss_pages().shmem, bytes(&child, at + HUGE + 7)), (0, [9]));
        assert_eq!((child.rss_pages().shmem, child.test_and_clear_young(at, 3 * HUGE)), (512, 512));
        check(w.vm, &[w.space, &child]);
    });
}

/// A first touch may be refused the tables above, and then keeps nothing.
#[test]
fn each_frame_of_a_fault_may_be_refused() {
    with_pool(1, 1, |w| {
        w.space.mmap(AT, HUGE, RW, ANON | FIXED).unwrap();
        let mut k = 0;
        loop {
            w.vm.fail_allocation(Some(k));
            let touched = touch(w.space, AT + HUGE - 1);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            if touched.is_ok() {
                break;
            }
            assert_eq!((touched, free(w)), (Err(FaultError::OutOfFrames), (1, 1)), "the {k}th");
            k += 1;
        }
        assert!((1..5).contains(&k), "tables of upper levels: {k}");
    });
}

/// Tables of what was mapped before are gone: or the page would be 512 entries.
#[test]
fn what_was_mapped_before_leaves_no_table() {
    with_pool(1, 1, |w| {
        w.space.mmap(AT, 2 * HUGE, RW, PRIVATE | FIXED).unwrap();
        (0..3).for_each(|i| touch(w.space, AT + i * HUGE / 2).unwrap());
        w.space.mmap(AT, HUGE, RW, ANON | FIXED).unwrap();
        check(w.vm, &[w.space]);
        touch(w.space, AT + PAGE).unwrap();
        assert_eq!((order_at(w, AT), order_at(w, AT + HUGE)), (Some(Order::PMD), Some(Order::BASE)));
        w.space.mmap(AT, 2 * HUGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!((free(w), touch(w.space, AT), order_at(w, AT)), ((1, 0), Ok(()), Some(Order::BASE)));
        check(w.vm, &[w.space]);
    });
}

/// Every call that would cut a page is refused, and has changed nothing.
#[test]
fn pages_are_not_cut() {
    with_pool(1, 3, |w| {
        let (space, at) = (w.space, AT);
        space.mmap(at, 3 * HUGE, RW, ANON | FIXED).unwrap();
        (0..3).for_each(|i| space.write(at + i * HUGE, &[1 + i as u8]).unwrap());
        for (from, len) in [(at, PAGE), (at + PAGE, 3 * HUGE - PAGE), (at + HUGE, HUGE + PAGE), (at + PAGE, PAGE)] {
            let refused = refusals_to_cut(space, from, len, (HUGE, AT + 8 * HUGE));
            assert_eq!(refused, [Errno::EINVAL; 7], "{from:#x} {len:#x}");
            // As Linux: the whole pages of the range.
            let is_aligned = from.is_multiple_of(HUGE);
            let kept = space.rss_pages().shmem - if is_aligned { len / HUGE * 512 } else { 0 };
            assert_eq!(space.madvise(from, len, DONTNEED).is_ok(), is_aligned);
            assert_eq!((space.rss_pages().shmem, space.nr_vmas()), (kept, 1), "{from:#x} {len:#x}");
            check(w.vm, &[space]);
        }
        // The ends of two pages: no whole one is in the range.
        assert_eq!(space.madvise(at + PAGE, HUGE, Advice::Collapse).unwrap_err().errno(), Errno::EINVAL);
        let moved = space.mremap(at, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, at + 8 * HUGE + PAGE);
        assert_eq!(moved.unwrap_err().errno(), Errno::EINVAL);
        let child = space.fork().unwrap();
        assert_eq!(child.munmap(at, PAGE).unwrap_err().errno(), Errno::EINVAL);
        drop(child);
        assert_eq!(space.mremap(at, HUGE, HUGE, MAYMOVE | DONTUNMAP, 0).unwrap_err().errno(), Errno::EINVAL);
        // Not counted as locked, and brought in.
        space.mlock(at + PAGE, 2 * HUGE, MlockFlags::empty()).unwrap();
        assert_eq!((space.nr_locked_pages(), space.rss_pages().shmem), (0, 3 * 512));
        (0..3).for_each(|i| assert_eq!(bytes(space, at + i * HUGE), [1 + i as u8]));
        assert_eq!((space.munmap(at + HUGE, HUGE), space.nr_vmas(), free(w)), (Ok(()), 2, (0, 0)));
        assert_eq!(space.mprotect(at, HUGE, READ), Ok(()));
        assert_eq!((touch(space, at), bytes(space, at + 5)), (Err(FaultError::NoRights), [0]));
        assert_eq!((space.mprotect(at, HUGE, RW), touch(space, at)), (Ok(()), Ok(())));
    });
}

/// A move finds its pages again, and lengths are rounded up to whole ones.
#[test]
fn a_mapping_moves_whole() {
    with_pool(1, 2, |w| {
        w.space.mmap(AT, 2 * HUGE, RW, ANON | FIXED).unwrap();
        w.space.write(AT + HUGE, &[5]).unwrap();
        let to = AT + 8 * HUGE;
        assert_eq!(w.space.mremap(AT + HUGE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        assert_eq!((bytes(w.space, to), order_at(w, to), order_at(w, AT + HUGE)), ([5], Some(Order::PMD), None));
        assert_eq!((w.space.vma(AT + HUGE), free(w)), (None, (1, 1)));
        check(w.vm, &[w.space]);
    });
}

/// A page that leaves takes its entries with it, in every space; one with a pin stays until that goes.
#[test]
fn a_page_leaves_with_its_entries() {
    with_pool(1, 2, |w| {
        let (shared, other) = (object(w, 2), w.vm.new_space().unwrap());
        map(w, AT, 2, &shared, 0, MapFlags::empty()).unwrap();
        other.mmap_object(AT + 2 * HUGE, 2 * HUGE, RW, MapFlags::SHARED | FIXED, whole(&shared)).unwrap();
        w.space.write(AT + HUGE + 3, &[7]).unwrap();
        assert_eq!(bytes(&other, AT + 3 * HUGE + 3), [7]);
        let pin = w.space.pin_page_mut(AT + HUGE + 9 * PAGE, Term::Short).unwrap();
        check(w.vm, &[w.space, &other]);
        shared.discard(512..1024);
        assert_eq!((w.space.rss_pages().shmem, other.rss_pages().shmem, order_at(w, AT + HUGE)), (0, 0, None));
        assert_eq!(free(w).0, 1, "the pin has it");
        pin.write(0, &[1; 8]);
        drop(pin);
        assert_eq!((counts(w).free, bytes(&other, AT + 3 * HUGE + 3)), (2, [0]));
        drop(other);
    });
}
