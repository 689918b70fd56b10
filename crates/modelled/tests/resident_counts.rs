//! Resident counts of CPUs that have no line beside the space: two of them add the same
//! frame of lines at once, and count meanwhile.

use common::pager::{self, Pager};
use common::{World, be, explore, models, run, use_cpus};
use softfault_modelled::{Access, FaultLocking};

/// The first CPUs without a line beside the space.
const FAR: [u16; 2] = [32, 33];

/// Both have been through the slow half of a fault. One frame of lines is there, the other is
/// free again, and no count is lost: neither in the line that both shared before nor in the
/// frame.
#[test]
fn two_cpus_add_the_same_frame_of_lines() {
    explore(2, || {
        use_cpus(34);
        let w = World::new(FaultLocking::Lockfree, 0, 4);
        w.touch(3);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let actor = move |i: usize| {
            move || {
                be(FAR[i]);
                w.space.handle_fault(i as u64 * 4096, Access::Write).unwrap();
                w.space.handle_fault(3 * 4096, Access::Read).unwrap();
            }
        };
        run(vec![Box::new(actor(0)), Box::new(actor(1))]);
        w.check(&[]);
        let rss = w.space.rss_pages();
        assert_eq!((rss.anon + pager::nr_lost(), rss.tables, rss.minor_faults), (3, 1, 5), "I21");
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free - 3, "two pages and one frame of lines");
    });
}

/// Those that have pages of the world's space.
const WITH_PAGES: &[(&str, fn())] = models![two_cpus_add_the_same_frame_of_lines];

#[test]
fn beside_a_pager() {
    pager::beside_a_pager(Pager::SwapsOut, WITH_PAGES);
}

#[test]
fn where_memory_fails() {
    // Both want the page at the end, which kills them.
    let _nr_held = pager::play(Pager::Fails, WITH_PAGES);
}
