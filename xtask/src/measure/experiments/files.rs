//! The experiments with files.

use super::{Column, Command, Depends, Experiment, How, column, table};

const COLUMNS: &[Column] = &[
    column("pattern", "pattern", How::Text),
    column("system", "system", How::Text),
    column("order", "order", How::Text),
    column("window", "window", How::Text),
    column("threads", "threads", How::Count),
    column("faults", "minor_faults", How::Count),
    column("pass, ms", "wall_s", How::Milliseconds),
    column("second pass", "resident_pass_s", How::Milliseconds),
    column("spread", "spread", How::Percent),
    column("ns/page", "ns_per_page", How::Fixed(1)),
    column("x linux", "ratio_to_linux", How::Times),
    column("faults/order 0", "faults_over_order_0", How::Fixed(4)),
    column("faults/order 9", "faults_over_order_9", How::Fixed(3)),
    column("pass/order 0", "time_over_order_0", How::Fixed(3)),
];

/// A folio for each page, with all windows.
pub const FAULT_AROUND: Experiment = Experiment {
    name: "fault-around",
    title: "A file in memory, read with fault-around (the experiment of 2014)",
    about: "\
Each thread maps the file for itself and reads each word of it, in order (`seq`), or one word in each 2 MiB (`sparse`).
`pass` includes the loads; `ns/page` is the pass less a second one, in which all is mapped. Linux's window on a file in memory is
64 KiB, order 4; smaller ones are emulated by VMAs of that size. Ours has no trap. Goals in sequence: at 64 KiB at most 0.07 of the
faults of 4 KiB, and 5 times as fast as Linux; adaptive at most 1.02 times the faults of order 9. Sparse: adaptive at most 1.05 of the
time of order 0, where order 9 took 13.6 times in 2014. Random reads are left out: loads through the emulated TLB hide what faults cost.",
    depends: Depends::OnTheCpu,
    runs: &[
        Command {
            full: "fault-around --size 1 --reps 9 --threads {threads}",
            quick: "fault-around --size 0.02 --reps 1 --threads 1",
        },
        Command {
            full: "fault-around --pattern sparse --size 1 --reps 41 --threads {threads}",
            quick: "fault-around --pattern sparse --size 0.02 --reps 1 --threads 1",
        },
    ],
    tables: &[table(&[], COLUMNS)],
};

/// Large folios on both systems.
pub const FAULT_AROUND_FOLIOS: Experiment = Experiment {
    name: "fault-around-folios",
    title: "The same file in folios of 1 MiB",
    about: "\
A fault maps all of its page's folio, on both systems. Linux's file is in a tmpfs with `huge=within_size`. The difference
of the passes is small: the file is mapped anew and read four times in each of many repetitions. Goal: 5 times as fast as Linux.",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "fault-around --folios 1m --orders 4,adaptive --size 0.0625 --reps 401 --threads 1",
        quick: "fault-around --folios 1m --orders 4,adaptive --size 0.02 --reps 1 --threads 1 --against none",
    }],
    tables: &[table(&[], COLUMNS)],
};

/// Debian's Linux with its window set.
pub const FAULT_AROUND_QEMU: Experiment = Experiment {
    name: "fault-around-qemu",
    title: "The same file on Linux with its window set",
    about: "\
Debian 12's 6.1 in QEMU, where `fault_around_bytes` can be set. QEMU counts instructions; `instructions/page` is a pass less a second
one, in which all is mapped.",
    depends: Depends::OnNothing,
    runs: &[
        Command {
            full: "fault-around --qemu --size 0.25 --reps 1 --threads 1 --against none",
            quick: "fault-around --size 0.02 --reps 1 --threads 1 --against none",
        },
        Command {
            full: "fault-around --qemu --pattern sparse --size 0.25 --reps 1 --threads 1 --against none",
            quick: "fault-around --pattern sparse --size 0.02 --reps 1 --threads 1 --against none",
        },
    ],
    tables: &[table(
        &[("window", "qemu")],
        &[
            column("pattern", "pattern", How::Text),
            column("order", "order", How::Text),
            column("faults", "minor_faults", How::Count),
            column("pages mapped", "pages_mapped", How::Count),
            column("pages read", "pages_touched", How::Count),
            column("instructions/page", "ns_per_page", How::Count),
            column("faults/order 0", "faults_over_order_0", How::Fixed(4)),
            column("pass/order 0", "time_over_order_0", How::Fixed(3)),
        ],
    )],
};

/// Reads that never end.
pub const STUCK_FILLS: Experiment = Experiment {
    name: "stuck-fills",
    title: "Calls beside reads of a file that never end",
    about: "\
64 threads of the program sleep, each in a fault on a page of a file that is never read, or each outside the subsystem. Another one maps
memory, reads a page of the same mapping that is in memory, and unmaps both. Goal: a p99 at most 1.2 times that beside the others.",
    depends: Depends::OnTheCpu,
    runs: &[Command { full: "stuck-fills --reps 9", quick: "stuck-fills --sleepers 4 --ops 100 --reps 1" }],
    tables: &[table(
        &[],
        &[
            column("call", "call", How::Text),
            column("beside", "beside", How::Text),
            column("p50, ns", "p50_ns", How::Count),
            column("p99, ns", "p99_ns", How::Count),
            column("spread", "spread", How::Percent),
            column("fills / sleepers", "ratio_p99", How::Times),
        ],
    )],
};
