//! The experiments with pools of huge pages.

use super::{Column, Command, Depends, Experiment, How, Table, column, table};
use crate::measure::store::Row;

const FAULT_COLUMNS: &[Column] = &[
    column("shape", "shape", How::Text),
    column("page, KiB", "page_kib", How::Count),
    column("system", "system", How::Text),
    column("discipline", "discipline", How::Text),
    column("threads", "threads", How::Count),
    column("ms", "seconds", How::Milliseconds),
    column("spread", "spread", How::Percent),
    column("x 1 thread", "over_1_thread", How::Times),
    column("/ clear", "over_clear", How::Fixed(2)),
    column("/ own clear", "over_own_clear", How::Fixed(2)),
    column("x linux", "ratio_to_linux", How::Times),
    column("cleared", "way", How::Text),
    column("mutexes", "mutexes", How::Count),
    column("acquired", "acquisitions", How::Count),
    column("contended", "contentions", How::Count),
    column("waited, µs", "wait_us", How::Count),
    column("left out, since", "why", How::Text),
];

/// The goal beside Linux, of rows that have both sides.
const BESIDE_LINUX: Table = Table {
    only: &[("system", "softfault")],
    columns: &[
        column("shape", "shape", How::Text),
        column("page, KiB", "page_kib", How::Count),
        column("discipline", "discipline", How::Text),
        column("threads", "threads", How::Count),
        column("faults: linux / ours", "ratio_to_linux", How::Fixed(2)),
        column("spread", "ratio_to_linux_spread", How::Percent),
        column("clears: linux-clear / warm-clear", "ratio_of_clears", How::Fixed(2)),
        column("spread", "ratio_of_clears_spread", How::Percent),
        column("quotient", "quotient", How::Fixed(2)),
        column("spread", "quotient_spread", How::Percent),
    ],
    gather: Some(with_quotient),
};

fn with_quotient(rows: &[Row]) -> Vec<Row> {
    rows.iter().filter(|row| row.contains_key("quotient")).cloned().collect()
}

/// Mutexes around faults, and none.
pub const PARALLEL_FAULT: Experiment = Experiment {
    name: "parallel-fault",
    title: "Faults on huge pages of a pool (the experiment of 2013)",
    about: "\
`linear`: two threads touch the pages of 2 MiB of their halves of 4 GiB, once each. `database`: 130 address spaces map one file of 1.5 GiB and touch all 768 pages.
`one` mutex around the fault, a `table` of them, and none: `lockfree`. `warm-clear` clears as many bytes by as many threads as faults do, `clear` in the way that is fastest
where nothing is written afterwards, which is the limit, and `linux-clear` as the host's Linux is assumed to clear. Linux's table has eight mutexes for each CPU. The run with `--zeroing`
clears 16 MiB by stores that stay in a cache, so that memory does not limit two threads; Linux is not beside it, since its rows would empty the cache. Goals with 2 threads: `one` at most
1.05 times the speed of 1 thread, `table` at least 1.7 times where `clear` gains as much; a fault at most 1.1 times the time of `clear`. Goals beside Linux: a quotient of 0.9 for `lockfree`;
with 1 thread the faults at least 3 times as fast where the clears are. `contended` is not taken at the first try.
A table without `cleared` is older: its `clear` is by plain stores, in the best order.",
    depends: Depends::OnTheCpu,
    runs: &[
        Command {
            full: "parallel-fault 2 4194304 --reps 9 --against linux",
            quick: "parallel-fault 2 16384 --reps 1 --against linux",
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
    tables: &[table(&[], FAULT_COLUMNS), BESIDE_LINUX],
};

/// The same with pages of 1 GiB.
pub const PARALLEL_FAULT_GIB: Experiment = Experiment {
    name: "parallel-fault-gib",
    title: "Faults on pages of 1 GiB",
    about: "\
As above: two threads touch the two pages of their halves of 4 GiB, once each. Linux before 7.0 clears such a page from start to end. Where the host has no four pages of 1 GiB, the
row of Linux is left out, and says so.",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "parallel-fault 2 4194304 --page 1G --reps 9 --against linux",
        quick: "parallel-fault 1 1048576 --page 1G --reps 1 --locks lockfree",
    }],
    tables: &[table(&[], FAULT_COLUMNS), BESIDE_LINUX],
};

/// Lines that faults on pages of a pool move.
pub const POOL_TRANSFERS: Experiment = Experiment {
    name: "pool-transfers",
    title: "Cache lines that faults on pages of a pool move",
    about: "\
512 simulated CPUs, each with an address space of its own, map one file of a pool's pages of 2 MiB. Neighbouring pages belong to the CPUs in turn; 64 for each.
*Cold*: CPU 0 has made pool and file, reserved all pages and mapped them. *Steady*: each CPU has taken its pages out, and mapped and reserved them again. Goal for `lockfree`: at most
80 transfers in both: see `docs/hugetlb.md`.",
    depends: Depends::OnNothing,
    runs: &[
        Command {
            full: "conflicts --layout pool --hugetlb-locking lockfree",
            quick: "conflicts --cpus 8 --layout pool --touches 4",
        },
        Command {
            full: "conflicts --layout pool --hugetlb-locking table",
            quick: "conflicts --cpus 8 --layout pool --hugetlb-locking table --touches 4",
        },
        Command {
            full: "conflicts --layout pool --hugetlb-locking one",
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
