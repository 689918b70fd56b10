//! The experiments with pools of huge pages.

use super::{Command, Depends, Experiment, How, column, table};

/// Mutexes around faults, and none.
pub const PARALLEL_FAULT: Experiment = Experiment {
    name: "parallel-fault",
    title: "Faults on huge pages of a pool (the experiment of 2013)",
    about: "\
`linear`: two threads touch the pages of 2 MiB of their halves of 4 GiB, once each. `database`: 130 address spaces map one file of 1.5 GiB and touch all 768 pages.
`one` mutex around the fault, a `table` of them, and none: `lockfree`. `warm-clear` clears as many bytes by as many threads as faults do, `clear` in the way that is fastest
where nothing is written afterwards, which is the limit. Linux's table has eight mutexes for each CPU. The run with `--zeroing` clears 16 MiB by stores that stay in a cache, so
that memory does not limit two threads; Linux is not beside it, since its rows would empty the cache. Goals with 2 threads: `one` at most 1.05 times the speed of 1 thread, `table` at least
1.7 times where `clear` gains as much; a fault at most 1.1 times the time of `clear`. `contended` is not taken at the first try.
A table without `cleared` is older: its `clear` is by plain stores, in the best order.",
    depends: Depends::OnTheCpu,
    runs: &[
        Command {
            full: "parallel-fault 2 4194304 --reps 9 --against linux",
            quick: "parallel-fault 2 16384 --reps 1",
        },
        Command {
            full: "parallel-fault 2 16384 --zeroing stores --reps 99",
            quick: "parallel-fault 2 4096 --zeroing stores --reps 1",
        },
        Command {
            full: "parallel-fault --shape database --reps 9 --against linux",
            quick: "parallel-fault 2 4096 --shape database --reps 1",
        },
    ],
    tables: &[table(
        &[],
        &[
            column("shape", "shape", How::Text),
            column("system", "system", How::Text),
            column("discipline", "discipline", How::Text),
            column("threads", "threads", How::Count),
            column("ms", "seconds", How::Milliseconds),
            column("spread", "spread", How::Percent),
            column("x 1 thread", "over_1_thread", How::Times),
            column("/ clear", "over_clear", How::Fixed(2)),
            column("x linux", "ratio_to_linux", How::Times),
            column("cleared", "way", How::Text),
            column("mutexes", "mutexes", How::Count),
            column("acquired", "acquisitions", How::Count),
            column("contended", "contentions", How::Count),
            column("waited, µs", "wait_us", How::Count),
        ],
    )],
};

/// Lines that faults on pages of a pool move.
pub const POOL_TRANSFERS: Experiment = Experiment {
    name: "pool-transfers",
    title: "Cache lines that faults on pages of a pool move",
    about: "\
512 simulated CPUs, each with an address space of its own, map one file of a pool's pages of 2 MiB. Neighbouring pages belong to the CPUs in turn; 32 for each.
*Cold*: CPU 0 has mapped and reserved all pages. *Steady*: each CPU has taken its pages out, and mapped and reserved them again. Goal for `lockfree`: at most
80 transfers. Steady faults reach it, cold ones do not: see `docs/hugetlb.md`.",
    depends: Depends::OnNothing,
    runs: &[
        Command {
            full: "conflicts --layout pool --touches 32 --hugetlb-locking lockfree",
            quick: "conflicts --cpus 8 --layout pool --touches 4",
        },
        Command {
            full: "conflicts --layout pool --touches 32 --hugetlb-locking table",
            quick: "conflicts --cpus 8 --layout pool --hugetlb-locking table --touches 4",
        },
        Command {
            full: "conflicts --layout pool --touches 32 --hugetlb-locking one",
            quick: "conflicts --cpus 8 --layout pool --hugetlb-locking one --touches 4",
        },
    ],
    tables: &[table(
        &[],
        &[
            column("CPUs", "cpus", How::Count),
            column("discipline", "hugetlb_locking", How::Text),
            column("faults", "faults", How::Count),
            column("cold: transfers / 1,000 faults", "transfers_per_1000_faults", How::Fixed(1)),
            column("read misses", "read_misses_per_1000_faults", How::Fixed(1)),
            column("steady: transfers / 1,000 faults", "steady_transfers_per_1000_faults", How::Fixed(1)),
            column("read misses", "steady_read_misses_per_1000_faults", How::Fixed(1)),
        ],
    )],
};
