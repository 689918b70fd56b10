//! Descriptors of tails of a folio of 1 GiB are given back, and come again.

use super::*;

/// The figure of the issue: at most 8 KiB of descriptors stay with a page of 1 GiB. Its pages are what they were.
#[test]
fn its_tails_need_no_descriptors() {
    in_gib(|w| {
        let object = object(w, NR, 0, 18);
        map(w.space, AT, NR, &object, 0);
        SOME.iter().for_each(|page| w.space.write(AT + page * PAGE, &page.to_be_bytes()).unwrap());
        let pin = w.space.pin_page_mut(AT + 77 * BLOCK * PAGE, Term::Short).unwrap();
        let before = w.vm.vmstat();
        assert_eq!(object.free_tail_descs(5), Ok(2047));
        let after = w.vm.vmstat();
        assert_eq!(after.nr_free_pages - before.nr_free_pages, 2047);
        assert_eq!(after.nr_total_pages - before.nr_total_pages, 2047);
        println!("KiB of descriptors that stay with a page of 1 GiB: {}", NR * 32 / 1024 - 2047 * 4);
        assert_eq!(object.free_tail_descs(NR - 1), Err(TailDescsRefusal::Unchanged));
        check(w.vm, &[w.space]);
        // The frames are another's now.
        let others = w.vm.new_space().unwrap();
        others.mmap(BASE, 3000 * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..3000).for_each(|page| others.write(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap());
        for page in SOME {
            assert_eq!(bytes(w.space, AT + page * PAGE), page.to_be_bytes(), "{page}");
            let frame = w.space.translate_at_rest(AT + page * PAGE).unwrap().pfn;
            assert_eq!(w.vm.migrate_frame(frame), Err(MigrateRefusal::Pinned));
        }
        pin.write(0, &[9; 8]);
        drop(pin);
        assert_eq!(content(&object, 77 * BLOCK * PAGE), [9; 8]);
        check(w.vm, &[w.space, &others]);
        drop(others);
        let nr_free_before = nr_free(w);
        for k in [0, 1, 1000, 2046] {
            w.vm.fail_allocation(Some(k));
            assert_eq!(object.restore_tail_descs(5), Err(TailDescsRefusal::NoFrames), "{k}");
            w.vm.fail_allocation(None);
            assert_eq!(nr_free(w), nr_free_before, "{k}");
        }
        assert_eq!(object.restore_tail_descs(NR - 1), Ok(2047));
        assert_eq!(w.vm.vmstat().nr_total_pages, before.nr_total_pages);
        check(w.vm, &[w.space]);
        w.space.munmap(AT, NR * PAGE).unwrap();
    });
}

/// A hole finds frames for them, or leaves it whole. The end of the folio cannot fail: it keeps as many frames.
#[test]
fn it_ends_without_descriptors_of_tails() {
    in_gib(|w| {
        for is_cut in [true, false] {
            let object = object(w, NR, 0, 18);
            object.write(77 * BLOCK * PAGE, &[7; 8]).unwrap();
            assert_eq!(object.free_tail_descs(0), Ok(2047));
            let before = nr_free(w);
            if is_cut {
                // Nodes are there, and then a frame is missing.
                w.vm.fail_allocation(Some(100));
                object.discard(BLOCK..NR);
                w.vm.fail_allocation(None);
                assert_eq!((object.nr_resident_pages(), nr_free(w)), (NR, before));
                object.write(77 * BLOCK * PAGE, &[7; 8]).unwrap();
                object.discard(0..76 * BLOCK);
                assert_eq!(
                    (object.nr_resident_pages(), content(&object, 77 * BLOCK * PAGE)),
                    (NR - 76 * BLOCK, [7; 8])
                );
                assert_eq!(nr_free(w), before + 76 * BLOCK - 2047 - 1);
                check(w.vm, &[w.space]);
                object.discard(0..NR);
            } else {
                w.vm.fail_allocation(Some(0));
                object.discard(0..NR);
                w.vm.fail_allocation(None);
                assert_eq!((object.nr_resident_pages(), nr_free(w)), (0, before + NR - 2047));
            }
            check(w.vm, &[w.space]);
        }
    });
}
