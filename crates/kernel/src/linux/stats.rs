//! The lines that the parameter `stats` asks for: what the first process had used at its end,
//! and the counters of the memory subsystem.

use crate::linux::process::{Mm, Process, table};
use crate::port::console::{Channel, Line};
use crate::port::mm;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use softfault::VmaFlags;

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// The command line asks for them.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Whether it does.
pub fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

fn stats_line(text: core::fmt::Arguments) {
    let mut line = Line::new(Channel::Stats, false);
    let _ = writeln!(line, "{text}");
}

/// The last thread of a process is about to leave its memory: what `--stats`
/// shows of the first one.
pub fn at_end(process: &Process, mm: &Mm) {
    static FIRST: AtomicBool = AtomicBool::new(true);
    let is_wanted = is_enabled() && process.parent_pid() == table::INIT;
    if !is_wanted || !FIRST.swap(false, Ordering::Relaxed) {
        return;
    }
    let used = process.used();
    stats_line(format_args!("user_us {}", used.user_ns / 1000));
    stats_line(format_args!("system_us {}", used.system_ns / 1000));
    stats_line(format_args!("faults {}", used.nr_faults));
    let rss = mm.space.rss_pages();
    stats_line(format_args!("rss_anon_pages {}", rss.anon));
    stats_line(format_args!("rss_shmem_pages {}", rss.shmem));
    stats_line(format_args!("rss_table_pages {}", rss.tables));
    mm.space.maps(&mut |vma| {
        let letter = |flag, letter| if vma.flags.contains(flag) { letter } else { '-' };
        let (start, end) = (vma.range.start.addr(), vma.range.end.addr());
        let [r, w, x] = [letter(VmaFlags::READ, 'r'), letter(VmaFlags::WRITE, 'w'), letter(VmaFlags::EXEC, 'x')];
        let shared = if vma.flags.contains(VmaFlags::SHARED) { 's' } else { 'p' };
        let name = match () {
            () if vma.flags.contains(VmaFlags::HEAP) => " [heap]",
            () if vma.flags.contains(VmaFlags::STACK) => " [stack]",
            () => "",
        };
        stats_line(format_args!("{start:012x}-{end:012x} {r}{w}{x}{shared}{name}"));
    });
}

/// Prints the counters of the memory subsystem.
pub fn print_counters() {
    for (name, value) in mm::vm().vmstat().iter() {
        stats_line(format_args!("{name} {value}"));
    }
}
