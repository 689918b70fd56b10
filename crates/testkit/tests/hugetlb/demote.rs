//! A page of 1 GiB becomes pages of 2 MiB while another CPU sets the size of one of the two pools: it begins before, at
//! some waits of the first one, or after it.

use super::common::turns::TwoCpus;
use super::common::{Format, Hosted, Space};
use softfault::{Order, Tunables, Vm};
use softfault_testkit::formats::Tested;

type Call = fn(&Vm<Hosted>) -> u64;

const DEMOTE: Call = |vm| vm.demote_hugepages(1).unwrap();

/// The pages of each pool, all of them free and without a claim.
fn sizes(vm: &Vm<Hosted>) -> [u64; 2] {
    [Order::PUD, Order::PMD].map(|order| {
        let counts = vm.hugetlb_counts(order).unwrap();
        assert_eq!((counts.free, counts.reserved, counts.surplus), (counts.nr, 0, 0));
        counts.nr
    })
}

/// Sizes that the pools of 1 GiB and of 2 MiB may have.
type Sizes = &'static [[u64; 2]];

/// Plays both calls with a pool of one page of 1 GiB. Returns what they said, and the sizes of the pools then.
fn play(calls: [Call; 2]) -> Vec<([u64; 2], [u64; 2])> {
    let mut seen = Vec::new();
    // Not at each: a play looks at 2 GiB.
    for begin in (0..).map(|i| (1 << (2 * i)) - 1) {
        // One of which is whole.
        let config = Format::config().with_nr_cpus(2).with_arena_bytes(2 << 30).with_tlb_entries(64);
        let cpus = TwoCpus::over(Vm::new(Hosted::with_format(config).unwrap(), Tunables::default()).unwrap());
        let vm = &cpus.vm;
        let prepare = |_: &Space<'_>| assert_eq!(vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
        let call = |i: usize| move |_: &Space<'_>| calls[i](vm);
        let look = |_: &Space<'_>, first, second| {
            seen.push(([first, second], sizes(vm)));
            assert!([Order::PMD, Order::PUD].iter().all(|order| vm.set_nr_hugepages(*order, 0) == Ok(0)));
        };
        if !cpus.play(begin, prepare, call(0), call(1), look) {
            return seen;
        }
    }
    unreachable!()
}

#[test]
fn h6_a_demotion_against_a_new_size() {
    // The call, and what the pools may have then if the page was demoted, or if it was not.
    let sizes: [(Call, Sizes, Sizes); 4] = [
        (|vm| vm.set_nr_hugepages(Order::PUD, 0).unwrap(), &[[0, 512]], &[[0, 0]]),
        // Memory has one such page.
        (|vm| vm.set_nr_hugepages(Order::PUD, 2).unwrap(), &[[0, 512]], &[]),
        (|vm| vm.set_nr_hugepages(Order::PMD, 3).unwrap(), &[[0, 3], [0, 515]], &[]),
        (|vm| vm.set_nr_hugepages(Order::PMD, 0).unwrap(), &[[0, 0], [0, 512]], &[]),
    ];
    for (set, demoted, not_demoted) in sizes {
        let mut found = Vec::new();
        for (calls, is_first) in [([DEMOTE, set], true), ([set, DEMOTE], false)] {
            for (said, then) in play(calls) {
                let nr_demoted = if is_first { said[0] } else { said[1] };
                let may_be = if nr_demoted == 1 { demoted } else { not_demoted };
                assert!(may_be.contains(&then), "{said:?}: {then:?}");
                found.push(then);
            }
        }
        assert!(demoted.iter().chain(not_demoted).all(|sizes| found.contains(sizes)), "both orders: {found:?}");
    }
}
