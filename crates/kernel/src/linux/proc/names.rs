//! The names of `/proc` and `/sys` that are always there.

use super::fixed::{Fixed, What, dir, file, knob, line, report};
use super::{huge, hugetlb, system, sysvipc};
use crate::linux::file::MAX_OPEN;
use crate::linux::file::pipe::MAX_CAPACITY;
use crate::linux::fs::inode::generated::Node;
use crate::linux::knobs::{self, Knob};
use alloc::sync::Arc;

/// `/proc`.
pub fn proc() -> Node {
    Arc::new(&PROC_ROOT)
}

/// `/sys`.
pub fn sys() -> Node {
    Arc::new(&SYS_ROOT)
}

static PROC_ROOT: Fixed = Fixed { name: "proc", what: What::Processes(&PROC_NAMES) };
static PROC_NAMES: [Fixed; 18] = [
    Fixed { name: "self", what: What::Own { thread: false } },
    Fixed { name: "thread-self", what: What::Own { thread: true } },
    Fixed { name: "mounts", what: What::Link("self/mounts") },
    report("meminfo", system::meminfo),
    report("vmstat", system::vmstat),
    report("stat", system::stat),
    report("uptime", system::uptime),
    report("loadavg", system::loadavg),
    report("cpuinfo", system::cpuinfo),
    report("version", system::version),
    report("cmdline", system::cmdline),
    report("filesystems", |out| out.write_str("nodev\ttmpfs\nnodev\tproc\nnodev\tsysfs\nnodev\thugetlbfs\n")),
    report("swaps", |out| out.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
    report("partitions", |out| out.write_str("major minor  #blocks  name\n\n")),
    report("devices", |out| {
        out.write_str("Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n\nBlock devices:\n")
    }),
    report("modules", |out| out.write_str("")),
    dir("sysvipc", &[report("shm", sysvipc::shm)]),
    dir("sys", &[dir("vm", &VM), dir("kernel", &KERNEL), dir("fs", &FS)]),
];

static VM: [Fixed; 17] = [
    knob("overcommit_memory", &knobs::OVERCOMMIT_MEMORY),
    knob("overcommit_ratio", &knobs::OVERCOMMIT_RATIO),
    knob("overcommit_kbytes", &knobs::OVERCOMMIT_KBYTES),
    knob("max_map_count", &knobs::MAX_MAP_COUNT),
    hugetlb::NR_HUGEPAGES,
    hugetlb::NR_HUGEPAGES_MEMPOLICY,
    hugetlb::NR_OVERCOMMIT_HUGEPAGES,
    knob("hugetlb_shm_group", &knobs::HUGETLB_SHM_GROUP),
    knob("drop_caches", &knobs::DROP_CACHES),
    knob("swappiness", &knobs::SWAPPINESS),
    file("min_free_kbytes", system::min_free_kbytes),
    file("watermark_scale_factor", system::watermark_scale_factor),
    knob("mmap_min_addr", &knobs::MMAP_MIN_ADDR),
    knob("panic_on_oom", &knobs::PANIC_ON_OOM),
    knob("oom_kill_allocating_task", &knobs::OOM_KILL_ALLOCATING_TASK),
    knob("compact_memory", &knobs::COMPACT_MEMORY),
    line("lowmem_reserve_ratio", "256\t256\t32\t0\t0\n"),
];

static KERNEL: [Fixed; 15] = [
    knob("pid_max", &knobs::PID_MAX),
    knob("threads-max", &knobs::THREADS_MAX),
    knob("shmmax", &knobs::SHMMAX),
    knob("shmall", &knobs::SHMALL),
    knob("shmmni", &knobs::SHMMNI),
    knob("shm_next_id", &knobs::SHM_NEXT_ID),
    knob("randomize_va_space", &knobs::RANDOMIZE),
    knob("tainted", &knobs::TAINTED),
    line("core_pattern", "core\n"),
    line("ostype", "Linux\n"),
    line("osrelease", "6.18.0-softfault\n"),
    line("hostname", "softfault\n"),
    line("domainname", "(none)\n"),
    line("version", "#1 SMP\n"),
    line("cap_last_cap", "40\n"),
];

static NR_OPEN: Knob = knobs::fixed(MAX_OPEN as u64);
static PIPE_MAX_SIZE: Knob = knobs::fixed(MAX_CAPACITY as u64);
static FS: [Fixed; 5] = [
    knob("file-max", &knobs::FILE_MAX),
    knob("nr_open", &NR_OPEN),
    knob("pipe-max-size", &PIPE_MAX_SIZE),
    knob("pipe-user-pages-soft", &knobs::PIPE_USER_PAGES_SOFT),
    line("file-nr", "0\t0\t1048576\n"),
];

static SYS_ROOT: Fixed = dir(
    "sys",
    &[
        dir("devices", &[dir("system", &[Fixed { name: "cpu", what: What::Cpus(&CPU) }, dir("node", &NODE)])]),
        dir("kernel", &[dir("mm", &[dir("transparent_hugepage", &huge::NAMES), dir("hugepages", &hugetlb::NAMES)])]),
    ],
);

static CPU: [Fixed; 4] = [
    file("online", system::cpu_list),
    file("possible", system::cpu_list),
    file("present", system::cpu_list),
    line("offline", "\n"),
];

static NODE: [Fixed; 6] = [
    line("online", "0\n"),
    line("possible", "0\n"),
    line("has_cpu", "0\n"),
    line("has_memory", "0\n"),
    line("has_normal_memory", "0\n"),
    dir(
        "node0",
        &[
            file("meminfo", system::node_meminfo),
            file("cpulist", system::cpu_list),
            file("cpumap", system::cpu_map),
            line("distance", "10\n"),
            file("vmstat", system::vmstat),
            dir("hugepages", &hugetlb::OF_NODE),
        ],
    ),
];
