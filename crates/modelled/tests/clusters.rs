//! Clusters: CPUs that share a block for small frames, since there are few blocks. The block may be used
//! up, or its reservation end, while another CPU joins.

use common::{World, explore, run, use_blocks};
use softfault_modelled::{Access, Advice, FaultLocking};

fn touch(w: World, page: u64) -> bool {
    w.space.handle_fault(page * 4096, Access::Write).is_ok()
}

/// Neither CPU has frames yet. Both take some, and no frame is taken twice.
#[test]
fn two_cpus_join_the_block_of_a_third() {
    explore(2, || {
        use_blocks();
        let w = World::new(FaultLocking::Lockfree, 0, 8);
        w.touch(7);
        run(vec![Box::new(move || assert!(touch(w, 0))), Box::new(move || assert!(touch(w, 1)))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon, 3);
    });
}

/// The CPU that joins first takes the last frame. The other takes it from that CPU's frame cache, or is
/// refused since it is in use.
#[test]
fn one_frame_is_left_for_two_who_join() {
    explore(1, || {
        use_blocks();
        let w = World::new(FaultLocking::Lockfree, 0, 8);
        w.touch(0);
        w.touch(7);
        w.vm.age(0, 1);
        w.space.madvise(0, 4096, Advice::DontNeed).unwrap();
        assert_eq!(w.vm.vmstat().nr_free_pages, 1);
        run(vec![Box::new(move || _ = touch(w, 0)), Box::new(move || _ = touch(w, 1))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon - 1 + w.vm.vmstat().nr_free_pages, 1);
        assert!(w.space.rss_pages().anon >= 2, "refused with a frame left");
    });
}
