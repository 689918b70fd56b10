//! Pages of 1 GiB, and what leaves a GiB for one.

use super::*;

/// A page of 1 GiB finds no free one: pages move out of its way, those of a pool among them, unless one is pinned.
#[test]
fn pages_leave_1_gib_for_one_of_its_size() {
    in_setup(Setup::PLAIN, 1, 3 << 30, |w: &World<'_>| {
        let fill =
            |nr: u64, at: u64| (0..nr).for_each(|page| w.space.write(at + page * HUGE, &word(at, page)).unwrap());
        w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always)).unwrap();
        // All of it is huge pages, of which few stay.
        let nr = w.vm.vmstat().nr_free_pages / 512 - 8;
        w.space.mmap(POOL, nr * HUGE, RW, PRIVATE | FIXED).unwrap();
        fill(nr, POOL);
        let stays = |page: u64| page % 100 == 7;
        (0..nr).filter(|page| !stays(*page)).for_each(|page| w.space.munmap(POOL + page * HUGE, HUGE).unwrap());
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 40), Ok(40));
        w.space.mmap(BASE & !(HUGE - 1), 20 * HUGE, RW, HUGETLB).unwrap();
        fill(20, BASE & !(HUGE - 1));
        let pins: Vec<_> = (0..nr)
            .filter(|page| stays(*page))
            .map(|page| w.space.pin_page(POOL + page * HUGE + 5 * PAGE, Term::Short).unwrap())
            .collect();
        let nr_moved = w.vm.event(Event::PgmigrateSuccess);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(0), "a pinned page in each");
        assert_eq!(w.vm.event(Event::PgmigrateSuccess), nr_moved, "and nothing moves in vain");
        drop(pins);
        let before = counts(w.vm);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
        assert_eq!(counts(w.vm), before);
        check(w.vm, &[w.space]);
        for (at, page) in
            (0..nr).filter(|page| stays(*page)).map(|page| (POOL, page)).chain((0..20).map(|p| (BASE & !(HUGE - 1), p)))
        {
            let mut bytes = [0; 8];
            w.space.read(at + page * HUGE, &mut bytes).unwrap();
            assert_eq!(bytes, word(at, page));
        }
        w.space.munmap(POOL, nr * HUGE).unwrap();
        w.space.munmap(BASE & !(HUGE - 1), 20 * HUGE).unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    });
}

/// A section with pages of 1 GiB: they move out of all of their sections.
#[test]
fn a_page_of_1_gib_leaves_its_sections() {
    in_setup(Setup::PLAIN, 1, 3 << 30, |w: &World<'_>| {
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
        let at = w.space.mmap(0, 1 << 30, RW, PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB).unwrap();
        w.space.write(at + (1 << 29), b"g").unwrap();
        let first = w.space.translate_at_rest(at).unwrap().pfn;
        let nr = u64::from(first.0) / SECTION + 3;
        assert_eq!(w.vm.offline_memory(section(nr)), Ok(()));
        let mut byte = [0];
        w.space.read(at + (1 << 29), &mut byte).unwrap();
        assert_eq!((byte, w.space.translate_at_rest(at).unwrap().pfn == first), (*b"g", false));
        check(w.vm, &[w.space]);
        assert_eq!(w.vm.add_memory(section(nr)), Ok(()));
        w.space.munmap(at, 1 << 30).unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
    });
}
