//! The experiments, in the order of the document.

use super::files::{FAULT_AROUND, FAULT_AROUND_FOLIOS, FAULT_AROUND_QEMU, STUCK_FILLS};
use super::hugetlb::{PARALLEL_FAULT, PARALLEL_FAULT_GIB, POOL_TRANSFERS};
use super::{Column, Command, Depends, Experiment, How, Table, column, table};
use crate::measure::render;

/// In the order of the document.
pub const EXPERIMENTS: &[Experiment] = &[
    FIRST_TOUCH,
    SOFTWARE_COST,
    ZEROING,
    HUGE_FAULTS,
    TRANSFERS,
    GROWTH,
    INSTRUCTIONS,
    CLEARING,
    LARGEPAGES,
    FAULT_AROUND,
    FAULT_AROUND_FOLIOS,
    FAULT_AROUND_QEMU,
    ANON_W_SEQ,
    PARALLEL_FAULT,
    PARALLEL_FAULT_GIB,
    POOL_TRANSFERS,
    FRAGMENT,
    STUCK_FILLS,
];

const PFT_COLUMNS: &[Column] = &[
    column("system", "system", How::Text),
    column("mode", "discipline", How::Text),
    column("frames", "frames", How::Text),
    column("threads", "threads", How::Count),
    column("faults/s", "faults_per_wall_s", How::Millions),
    column("ns/fault", "ns_per_fault", How::Fixed(1)),
    column("spread", "spread", How::Percent),
    column("x touch", "ratio_to_linux_touch", How::Times),
    column("x populate", "ratio_to_linux_populate", How::Times),
    column("/zero", "ratio_to_zeroing", How::Fixed(2)),
    column("/zero batch", "ratio_to_batched_zeroing", How::Fixed(2)),
];

const FIRST_TOUCH: Experiment = Experiment {
    name: "first-touch",
    title: "First touches of 4 KiB pages",
    about: "\
Each page is zeroed within its fault: nine tenths of the time is zeroing, so the fault-locking modes differ by a sixth only. Goals:
10 times Linux's touches with one thread, 8 times with two. `/zero` is our time over the time to zero the same pages one by one
(goal 0.75), `/zero batch` over zeroing them in the batches of our refills (goal 1.2). With two threads the figure moves with the
bandwidth of memory: between 7.9 and 15.2 times on different days of one machine.",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "pft -g 1 -r 7 -t {threads} --fault-locking lockfree",
        quick: "pft -g 0.05 -r 1 -t 1 --fault-locking lockfree",
    }],
    tables: &[table(&[], PFT_COLUMNS)],
};

const SOFTWARE_COST: Experiment = Experiment {
    name: "software-cost",
    title: "The software of a fault",
    about: "\
Frames are known to be zero, so that nothing is zeroed and nothing is stored: the time of `handle_fault` alone. `aged` frames are
scattered, one in eight of memory, as after a long day. Goals: 16 ns with one thread, 50 ns from aged memory; two threads 1.5
times the faults of one; `lockfree` 5 times `global` and 2.5 times `split` with two threads.",
    depends: Depends::OnTheCpu,
    runs: &[
        Command {
            full: "pft -g 1 -r 9 -t {threads} --frames zeroed",
            quick: "pft -g 0.05 -r 1 -t 1 --frames zeroed",
        },
        Command {
            full: "pft -g 0.25 -r 9 -t 1 --frames aged --fault-locking lockfree",
            quick: "pft -g 0.01 -r 1 -t 1 --frames aged --fault-locking lockfree",
        },
    ],
    tables: &[table(&[("system", "softfault")], PFT_COLUMNS)],
};

const ZEROING_COLUMNS: &[Column] = &[
    column("zeroed by", "zeroing", How::Text),
    column("written", "write", How::Text),
    column("ns/page", "ns_per_fault", How::Fixed(1)),
    column("spread", "spread", How::Percent),
];

const ZEROING: Experiment = Experiment {
    name: "zeroing",
    title: "By which instructions frames are zeroed",
    about: "\
`auto`: a calibration of some milliseconds and the program itself choose. The others are forced. `one`: the program writes
one byte of each page; `all`: all of it, so that lines that were zeroed past the caches come back. Goals over `stores`: 1.8 times as
fast, and 0.95.",
    depends: Depends::OnTheCpu,
    runs: &[
        Command {
            full: "pft -g 0.5 -r 15 -t 1 --fault-locking lockfree --against none --zeroing {ways} --write one",
            quick: "pft -g 0.02 -r 1 -t 1 --fault-locking lockfree --against none --zeroing {ways} --write one",
        },
        Command {
            full: "pft -g 0.5 -r 15 -t 1 --fault-locking lockfree --against none --zeroing {ways} --write all",
            quick: "pft -g 0.02 -r 1 -t 1 --fault-locking lockfree --against none --zeroing {ways} --write all",
        },
    ],
    tables: &[table(&[("system", "softfault")], ZEROING_COLUMNS)],
};

const HUGE_FAULTS: Experiment = Experiment {
    name: "huge-faults",
    title: "First touches of 2 MiB pages",
    about: "\
Beside Linux's touches of memory that is advised to be huge. Goals: 3 times Linux's faults; at most 1.1 of the time of the same
clear alone (`/zero batch`).",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "pft -g 1 -r 9 -t {threads} --pages huge --fault-locking lockfree",
        quick: "pft -g 0.1 -r 1 -t 1 --pages huge --fault-locking lockfree",
    }],
    tables: &[table(
        &[],
        &[
            column("system", "system", How::Text),
            column("mode", "discipline", How::Text),
            column("threads", "threads", How::Count),
            column("ns/fault", "ns_per_fault", How::Count),
            column("spread", "spread", How::Percent),
            column("x touch", "ratio_to_linux_touch", How::Times),
            column("x populate", "ratio_to_linux_populate", How::Times),
            column("/zero", "ratio_to_zeroing", How::Fixed(2)),
            column("/zero batch", "ratio_to_batched_zeroing", How::Fixed(2)),
        ],
    )],
};

const TRANSFERS: Experiment = Experiment {
    name: "line-transfers",
    title: "Cache lines that CPUs take from each other",
    about: "\
512 CPUs are simulated; the core's own sources run under a recorder. A transfer is a write to a line that another CPU wrote last.
Goals for each 1,000 faults: 8, and 80 where each fault maps 2 MiB. `same-object`: each CPU in an address space of its own, all on
the same 2 MiB of one shared object; with a count of maps in each page that took 1,006. With a window, pages that are in memory are
read: one fault in four makes a leaf table, so frames for tables decide. In 5 GiB, the last row, seven CPUs share a block
for tables, and each refill takes a line from another one: there the goal is missed.",
    depends: Depends::OnNothing,
    runs: &[
        Command { full: "conflicts --cpus 512 --layout own-table", quick: "conflicts --cpus 8 --touches 64" },
        Command { full: "conflicts --cpus 512 --layout chunks", quick: "conflicts --cpus 8 --layout chunks --touches 64" },
        Command { full: "conflicts --cpus 512 --layout same-object", quick: "conflicts --cpus 8 --layout same-object" },
        Command { full: "conflicts --cpus 512 --pages 64K", quick: "conflicts --cpus 8 --pages 64K --touches 512" },
        Command { full: "conflicts --cpus 512 --pages 1M", quick: "conflicts --cpus 8 --pages 1M --touches 512" },
        Command { full: "conflicts --cpus 512 --pages huge", quick: "conflicts --cpus 8 --pages huge --touches 64" },
        Command {
            full: "conflicts --cpus 512 --layout own-part --fault-around adaptive",
            quick: "conflicts --cpus 8 --layout own-part --fault-around adaptive --touches 1024",
        },
        Command {
            full: "conflicts --cpus 512 --layout same-object --fault-around adaptive",
            quick: "conflicts --cpus 8 --layout same-object --fault-around adaptive --touches 1024",
        },
        Command {
            full: "conflicts --cpus 512 --layout same-object --fault-around adaptive --mib-each 1",
            quick: "conflicts --cpus 8 --layout same-object --fault-around adaptive --mib-each 1 --touches 1024",
        },
    ],
    tables: &[table(
        &[],
        &[
            column("CPUs", "cpus", How::Count),
            column("layout", "layout", How::Text),
            column("pages", "pages", How::Text),
            column("window", "fault_around", How::Text),
            column("touches a CPU", "touches", How::Count),
            column("GiB", "memory_gib", How::Fixed(0)),
            column("transfers", "transfers_per_1000_faults", How::Fixed(2)),
            column("read misses", "read_misses_per_1000_faults", How::Fixed(2)),
        ],
    )],
};

const GROWTH: Experiment = Experiment {
    name: "growth",
    title: "Words that a call touches, in small and in large machines",
    about: "\
`steps` are the words that the worst of 200 calls touched in a machine of 1 GiB and one CPU, `most` the same in the worst of four
machines up to 1 TiB and 512 CPUs. Goal: at most twice the steps. Exempt are `boot`, which lays out the summaries of all memory,
and reports that may visit each CPU (`vmstat`, `/proc`): they grow with the number of CPUs, and not with memory.",
    depends: Depends::OnNothing,
    runs: &[Command {
        full: "growth --memory 1G,1T --cpus 1,512 --calls 200",
        quick: "growth --memory 1G,4G --cpus 1,8 --calls 5 --state fresh",
    }],
    tables: &[Table {
        only: &[],
        columns: &[
            column("call", "what", How::Text),
            column("memory is", "state", How::Text),
            column("steps", "steps", How::Count),
            column("most", "most", How::Count),
            column("ratio", "ratio", How::Times),
        ],
        gather: Some(render::by_call),
    }],
};

const INSTRUCTIONS: Experiment = Experiment {
    name: "instructions",
    title: "Instructions on the reference kernel and on Linux",
    about: "\
One CPU, counted by QEMU; Linux is Debian 12's 6.1, on the same emulated machine. A write fault is counted without the loop that
clears the page. `read fault, 16 pages` is of a file in memory, with its neighbours. Goals: 900 for a write fault, 500 for a read
fault of the zero page, half of Linux's for one that maps 16 pages, 300 for munmap of a page, 190,000 for fork,
exit and wait of a process with 1 MiB. Ours are the same in each run, and a test keeps them
within bounds; Linux's differ by a percent.",
    depends: Depends::OnNothing,
    runs: &[Command { full: "compare --icount", quick: "compare --icount --only softfault" }],
    tables: &[table(
        &[("unit", "instructions")],
        &[
            column("system", "system", How::Text),
            column("write fault", "write_fault", How::Count),
            column("read fault", "read_fault", How::Count),
            column("read fault, 16 pages", "read_fault_16", How::Count),
            column("munmap, a page", "munmap_page", How::Count),
            column("getppid", "getppid", How::Count),
            column("fork, exit, wait; 1 MiB", "fork_1mib", How::Count),
        ],
    )],
};

const CLEARING: Experiment = Experiment {
    name: "clearing",
    title: "Orders of clearing 2 MiB",
    about: "\
`converge` is of 2017, `runs` of 2026, `hybrid` is ours. It streams the sub-pages far from the faulting one past the caches, and leaves
that one and eight on each side warm. The rest of the 2 MiB is in memory afterwards, so that a program that writes all of it at once
is served better by `forward`. Spread: (third quartile - first) / median. `ns a line` is the cost of loads after the clear, at that
distance from the faulting sub-page.",
    depends: Depends::OnTheCpu,
    runs: &[Command { full: "clear-huge --reps 51", quick: "clear-huge --reps 2 --folios 4" }],
    tables: &[
        table(
            &[("metric", "clear")],
            &[
                column("system", "system", How::Text),
                column("order", "order", How::Text),
                column("another CPU is", "load", How::Text),
                column("GB/s", "value", How::Fixed(1)),
                column("spread", "spread", How::Percent),
                column("x converge", "ratio_to_converge", How::Times),
                column("x linux", "ratio_to_linux", How::Times),
            ],
        ),
        table(
            &[("metric", "first_touch"), ("load", "idle"), ("distance", "0|8|64")],
            &[
                column("system", "system", How::Text),
                column("order", "order", How::Text),
                column("distance", "distance", How::Count),
                column("ns a line", "value", How::Fixed(1)),
                column("spread", "spread", How::Percent),
            ],
        ),
    ],
};

/// The five rows of 2011.
const PASSES: &[Column] = &[
    column("ms", "row", How::Text),
    column("ours: off", "softfault off", How::Milliseconds),
    column("on", "softfault on", How::Milliseconds),
    column("on zeroed", "softfault on_zeroed", How::Milliseconds),
    column("hugetlb", "softfault hugetlb", How::Milliseconds),
    column("Linux: off", "linux off", How::Milliseconds),
    column("on", "linux on", How::Milliseconds),
    column("hugetlb", "linux hugetlb", How::Milliseconds),
    column("2011: off", "2011 off", How::Milliseconds),
    column("on", "2011 on", How::Milliseconds),
    column("hugetlbfs", "2011 hugetlb", How::Milliseconds),
];

const LARGEPAGES: Experiment = Experiment {
    name: "largepages",
    title: "A memset of 3 GiB of fresh memory (the experiment of 2011)",
    about: "\
Milliseconds of CPU time. `on zeroed`: an idle CPU had zeroed the blocks ahead. `hugetlb`, where it was measured: 2 MiB
pages of a pool, promised to the mapping. The emulated TLB has 1,536 translations; loads are those of page walks,
native, and nested with 4 KiB and 2 MiB pages in the host. Goals with huge pages: 1.5 times as fast as Linux with huge
pages, faster than ours without, 400 times fewer TLB misses.",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "largepages --size 3 --reps 5 --host-pool",
        quick: "largepages --size 0.05 --reps 1 --host-pool",
    }],
    tables: &[
        Table { only: &[("unit", "s")], columns: PASSES, gather: Some(render::by_pass) },
        table(
            &[("unit", "s")],
            &[
                column("system", "system", How::Text),
                column("huge pages", "thp", How::Text),
                column("pass", "row", How::Text),
                column("ms", "seconds", How::Milliseconds),
                column("spread", "spread", How::Percent),
                column("in 2011", "seconds_2011", How::Milliseconds),
                column("left out, since", "why", How::Text),
            ],
        ),
        table(
            &[("unit", "misses")],
            &[
                column("huge pages", "thp", How::Text),
                column("pass", "row", How::Text),
                column("lookups", "lookups", How::Count),
                column("misses", "misses", How::Count),
                column("loads", "loads", How::Count),
                column("nested 4K", "loads_nested_4k", How::Count),
                column("nested 2M", "loads_nested_2m", How::Count),
            ],
        ),
        table(
            &[("unit", "times as fast")],
            &[
                column("memset of fresh memory", "row", How::Text),
                column("times as fast", "value", How::Times),
                column("spread", "spread", How::Percent),
            ],
        ),
    ],
};

const ANON_W_SEQ: Experiment = Experiment {
    name: "anon-w-seq",
    title: "Programs that write their memory in sequence (the experiment of 2017)",
    about: "\
The gain of 28.3 % of 2017 came with a last-level cache of 1.25 MiB a thread. A machine with more cache for each thread has none:
there `converge` clears slower and saves no misses. Spreads are large, since the processes share the memory's bandwidth.",
    depends: Depends::OnTheCpu,
    runs: &[Command {
        full: "anon-w-seq --processes 2 --reps 21",
        quick: "anon-w-seq --processes 1 --reps 1 --mib 16",
    }],
    tables: &[table(
        &[],
        &[
            column("system", "system", How::Text),
            column("order", "order", How::Text),
            column("processes", "processes", How::Count),
            column("GB/s", "value", How::Fixed(1)),
            column("spread", "spread", How::Percent),
            column("x forward", "ratio_to_forward", How::Times),
            column("x linux", "ratio_to_linux", How::Times),
            column("modelled hits", "modelled_hits", How::Percent),
        ],
    )],
};

const FRAGMENT: Experiment = Experiment {
    name: "fragment",
    title: "Huge pages wanted where no block is free",
    about: "\
One frame is kept in each block of 2 MiB. Then a program runs with `enabled=always`, which finds no huge page, and with
`never`. Goal: at most 1.10 of the time.",
    depends: Depends::OnTheCpu,
    runs: &[Command { full: "fragment --reps 9", quick: "fragment --size 0.05 --reps 1" }],
    tables: &[
        table(
            &[("row", "program")],
            &[
                column("enabled", "enabled", How::Text),
                column("ms", "seconds", How::Milliseconds),
                column("spread", "spread", How::Percent),
                column("huge", "huge_share", How::Percent),
                column("fallbacks", "thp_fault_fallback", How::Count),
            ],
        ),
        table(
            &[("row", "ratio")],
            &[
                column("ratio", "unit", How::Text),
                column("time", "value", How::Fixed(3)),
                column("spread", "spread", How::Percent),
            ],
        ),
    ],
};
