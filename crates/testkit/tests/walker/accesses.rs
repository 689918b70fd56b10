//! Effects of walks and of accesses through a translation on pages and entries.

use super::*;

#[test]
fn a_fault_is_taken_once() {
    with_walker(|space, walker| {
        let nr_faults = || space.vm().event(Event::Fault);
        let before = nr_faults();
        let walked = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!(nr_faults() - before, 1);
        assert_eq!(Some(walked.translation().pfn), space.translate_at_rest(BASE).map(|t| t.pfn));
        assert_eq!(walked.translation().order, Order::BASE);
        for access in [Access::Read, Access::Write] {
            assert_eq!(walker.translate(BASE + 7, access), Ok(walked), "{access:?}");
        }
        assert_eq!(nr_faults() - before, 1, "the entry allowed the access");
        walker.store_through(&walked, 5, b"text").unwrap();
        let mut text = [0; 4];
        space.read(BASE + 5, &mut text).unwrap();
        assert_eq!(&text, b"text");
    });
}

#[test]
fn walks_refuse_what_faults_refuse() {
    with_walker(|space, walker| {
        let prot = |prot| space.mprotect(BASE, PAGE, prot).unwrap();
        walker.translate(BASE, Access::Write).unwrap();
        assert_eq!(walker.translate(BASE, Access::Exec), Err(FaultError::NoRights));
        prot(READ);
        assert_eq!(walker.translate(BASE, Access::Write), Err(FaultError::NoRights));
        prot(NONE);
        assert_eq!(walker.translate(BASE, Access::Read), Err(FaultError::NoRights));
        space.madvise(BASE + PAGE, PAGE, GUARD_INSTALL).unwrap();
        assert_eq!(walker.translate(BASE + PAGE, Access::Read), Err(FaultError::Guard));
        for at in [BASE - PAGE, BASE + 16 * PAGE, 1 << 60, u64::MAX] {
            assert_eq!(walker.translate(at, Access::Read), Err(FaultError::NotMapped), "{at:#x}");
        }
    });
}

/// Linux lets a program read what it may only execute, where the CPU cannot tell.
#[test]
fn execute_only_memory_can_be_read_and_fetched() {
    with_walker(|space, walker| {
        space.write(BASE, b"code").unwrap();
        space.mprotect(BASE, PAGE, softfault::Prot::EXEC).unwrap();
        let walked = walker.translate(BASE, Access::Exec).unwrap();
        assert_eq!(walked.translation().rights, RX);
        let mut code = [0; 4];
        walker.fetch_through(&walked, 0, &mut code).unwrap();
        assert_eq!(&code, b"code");
        assert_eq!(loaded(walker, &walked), Ok(b'c'));
        assert_eq!(walker.store_through(&walked, 0, &[1]), Err(Miss::NoRights));
        space.fetch(BASE, &mut code[..2]).unwrap();
        space.read(BASE, &mut code).unwrap();
        assert_eq!(&code, b"code");
    });
}

#[test]
fn fetch_asks_for_the_right_to_execute() {
    with_walker(|space, walker| {
        space.write(BASE + PAGE - 2, b"code").unwrap();
        space.mprotect(BASE, PAGE, RWX).unwrap();
        let mut code = [0; 4];
        let refused = space.fetch(BASE + PAGE - 2, &mut code).unwrap_err();
        assert_eq!((refused.at, refused.fault), (BASE + PAGE, FaultError::NoRights));
        assert_eq!(&code[..2], b"co", "the bytes before were read");
        space.mprotect(BASE + PAGE, PAGE, RWX).unwrap();
        space.fetch(BASE + PAGE - 2, &mut code).unwrap();
        assert_eq!(&code, b"code");
        let walked = walker.translate(BASE + 2 * PAGE, Access::Write).unwrap();
        assert_eq!(walker.fetch_through(&walked, 0, &mut code), Err(Miss::NoRights));
    });
}

/// A page that was only read is kept without the right to write, so that the first
/// store makes its entry dirty.
#[test]
fn a_page_gets_dirty_by_stores_alone() {
    with_walker(|space, walker| {
        let old = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!((old.translation().rights, dirty_pages(space)), (RIGHTS_RW, 1));
        space.madvise(BASE, PAGE, FREE).unwrap();
        assert_eq!(dirty_pages(space), 0);
        assert_eq!(walker.store_through(&old, 0, &[1]), Err(Miss::Stale), "the store would leave no mark");
        let clean = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!((clean.translation().rights, dirty_pages(space)), (Rights::READ, 0));
        assert_eq!(walker.store_through(&clean, 0, &[1]), Err(Miss::NoRights));
        let dirty = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!((dirty.translation().rights, dirty_pages(space)), (RIGHTS_RW, 1));
        walker.store_through(&dirty, 0, &[1]).unwrap();
        assert_eq!(walker.translate(BASE, Access::Read), Ok(dirty), "a dirty page may be stored to");
    });
}

#[test]
fn a_walk_leaves_the_page_young() {
    with_walker(|space, walker| {
        for access in [Access::Read, Access::Write] {
            walker.translate(BASE, access).unwrap();
            assert_eq!(space.test_and_clear_young(BASE, PAGE), 1, "{access:?}");
            assert_eq!(space.test_young(BASE, PAGE), 0);
        }
        walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(space.test_young(BASE, PAGE), 1);
    });
}
