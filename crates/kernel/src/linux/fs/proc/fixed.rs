//! The names of `/proc` and `/sys` that are always there.

use super::huge::{self, Setting, Stat};
use super::hugetlb::{self, PoolKnob};
use super::knobs::{self, Knob};
use super::process::Subject;
use super::system;
use crate::linux::errno::{self, Errno};
use crate::linux::fs::generated::{About, Generate, Node};
use crate::linux::fs::text::Buffer;
use crate::linux::process;
use crate::linux::thread::Task;
use crate::port::arch::cpu;
use crate::port::sched;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// A name and its content.
pub struct Fixed {
    pub(super) name: &'static str,
    pub(super) what: What,
}

/// What a name stands for.
pub(super) enum What {
    Dir(&'static [Fixed]),
    /// The root of `/proc`: with the processes.
    Processes(&'static [Fixed]),
    /// With a directory for each CPU.
    Cpus(&'static [Fixed]),
    File(fn(&mut dyn Write) -> fmt::Result),
    Line(&'static str),
    Knob(&'static Knob),
    /// A knob of huge pages, and a counter of theirs.
    Setting(Setting),
    Stat(Stat),
    /// A size of a pool of huge pages.
    Pool(&'static PoolKnob),
    /// What is done when a number is written; nothing to read.
    Order(&'static PoolKnob),
    /// `self` and `thread-self`.
    Own {
        thread: bool,
    },
    Link(&'static str),
}

pub(super) const fn dir(name: &'static str, inside: &'static [Fixed]) -> Fixed {
    Fixed { name, what: What::Dir(inside) }
}
const fn file(name: &'static str, write: fn(&mut dyn Write) -> fmt::Result) -> Fixed {
    Fixed { name, what: What::File(write) }
}
const fn line(name: &'static str, text: &'static str) -> Fixed {
    Fixed { name, what: What::Line(text) }
}
const fn knob(name: &'static str, knob: &'static Knob) -> Fixed {
    Fixed { name, what: What::Knob(knob) }
}

/// `/proc`.
pub fn proc() -> Node {
    Arc::new(&PROC_ROOT)
}

/// `/sys`.
pub fn sys() -> Node {
    Arc::new(&SYS_ROOT)
}

static PROC_ROOT: Fixed = Fixed { name: "proc", what: What::Processes(&PROC_NAMES) };
static PROC_NAMES: [Fixed; 17] = [
    Fixed { name: "self", what: What::Own { thread: false } },
    Fixed { name: "thread-self", what: What::Own { thread: true } },
    Fixed { name: "mounts", what: What::Link("self/mounts") },
    file("meminfo", system::meminfo),
    file("vmstat", system::vmstat),
    file("stat", system::stat),
    file("uptime", system::uptime),
    file("loadavg", system::loadavg),
    file("cpuinfo", system::cpuinfo),
    file("version", system::version),
    file("cmdline", system::cmdline),
    line("filesystems", "nodev\ttmpfs\nnodev\tproc\nnodev\tsysfs\nnodev\thugetlbfs\n"),
    line("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    line("partitions", "major minor  #blocks  name\n\n"),
    line("devices", "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n\nBlock devices:\n"),
    line("modules", ""),
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

static KERNEL: [Fixed; 14] = [
    knob("pid_max", &knobs::PID_MAX),
    knob("threads-max", &knobs::THREADS_MAX),
    knob("shmmax", &knobs::SHMMAX),
    knob("shmall", &knobs::SHMALL),
    knob("shmmni", &knobs::SHMMNI),
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

static FS: [Fixed; 5] = [
    knob("file-max", &knobs::FILE_MAX),
    knob("nr_open", &knobs::NR_OPEN),
    knob("pipe-max-size", &knobs::PIPE_MAX_SIZE),
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

/// `/sys/devices/system/cpu/cpuN`.
struct Cpu;

impl Generate for Cpu {
    fn about(&self) -> About {
        About::DIR
    }
}

impl Fixed {
    fn inside(&self) -> &'static [Fixed] {
        match &self.what {
            What::Dir(inside) | What::Processes(inside) | What::Cpus(inside) => inside,
            _ => &[],
        }
    }
}

impl Generate for &'static Fixed {
    fn about(&self) -> About {
        match &self.what {
            What::Dir(_) | What::Processes(_) | What::Cpus(_) => About::DIR,
            What::File(_) | What::Line(_) | What::Stat(_) => About::FILE,
            What::Setting(_) | What::Pool(_) => About::FILE.with_mode(0o644),
            What::Order(_) => About::FILE.with_mode(0o200),
            What::Knob(knob) if knob.is_writable => About::FILE.with_mode(0o644),
            What::Knob(_) => About::FILE,
            What::Own { .. } | What::Link(_) => About::LINK,
        }
    }
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let text = core::str::from_utf8(name).ok()?;
        if let Some(fixed) = self.inside().iter().find(|f| f.name == text) {
            return Some(Arc::new(fixed));
        }
        match self.what {
            What::Processes(_) => Subject::named(text).map(|subject| Arc::new(subject) as Node),
            What::Cpus(_) => {
                let number: usize = text.strip_prefix("cpu")?.parse().ok()?;
                (number < cpu::nr_cpus()).then(|| Arc::new(Cpu) as Node)
            }
            _ => None,
        }
    }
    fn names(&self) -> Vec<Arc<[u8]>> {
        let mut names: Vec<Arc<[u8]>> = self.inside().iter().map(|f| f.name.as_bytes().into()).collect();
        match self.what {
            What::Processes(_) => names.extend(process::all().iter().map(|p| p.pid.to_string().as_bytes().into())),
            What::Cpus(_) => names.extend((0..cpu::nr_cpus()).map(|n| alloc::format!("cpu{n}").as_bytes().into())),
            _ => {}
        }
        names
    }
    fn link(&self) -> errno::Result<Option<Vec<u8>>> {
        Ok(match self.what {
            What::Link(target) => Some(target.as_bytes().to_vec()),
            What::Own { thread } => sched::with_current(|current| {
                let current = current.downcast_ref::<Task>()?;
                let pid = current.process().pid;
                let text = if thread { alloc::format!("{pid}/task/{}", current.tid) } else { pid.to_string() };
                Some(text.into_bytes())
            }),
            _ => None,
        })
    }
    /// As in sysfs, not even root opens a mere number for writing.
    fn refuses_writers(&self) -> bool {
        matches!(self.what, What::Stat(_))
    }
    fn write_text(&self, _: u64, buffer: &mut Buffer) -> errno::Result<Option<u64>> {
        let written = match &self.what {
            What::File(write) => write(buffer),
            What::Line(text) => buffer.write_str(text),
            What::Knob(knob) => writeln!(buffer, "{knob}"),
            What::Setting(setting) => setting.write(buffer),
            What::Stat(stat) => stat.write(buffer),
            What::Pool(knob) => writeln!(buffer, "{}", knob.get()),
            _ => return Err(Errno::EINVAL),
        };
        written.map(|()| None).map_err(|_| Errno::ENOMEM)
    }
    fn write_at(&self, _: u64, bytes: &[u8]) -> errno::Result<usize> {
        match &self.what {
            What::Knob(knob) => knobs::set(knob, bytes)?,
            // As sysfs does: each write is a value of its own, wherever it goes.
            What::Setting(setting) if !bytes.is_empty() => setting.set(bytes)?,
            What::Setting(_) => {}
            What::Pool(knob) | What::Order(knob) => knob.set(bytes)?,
            _ => return Err(Errno::EACCES),
        }
        Ok(bytes.len())
    }
}
