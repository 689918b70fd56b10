//! The kernel's own first thread: starts the program, waits for its end, tears
//! it down, and turns the machine off with its status.

use crate::arch::fpu::Image;
use crate::arch::frame::Frame;
use crate::arch::time;
use crate::boot::info::Info;
use crate::console::{Channel, Line};
use crate::errno::Errno;
use crate::power::{self, End};
use crate::process::{Process, archive, elf, stack};
use crate::sched::{self, KernelStack, Thread};
use crate::selftest::Selftest;
use crate::{log, mm};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use softfault::{Discipline, Tunables, VmaFlags};

/// What the command line asks for.
struct Params {
    stats: bool,
    selftest: Option<Selftest>,
    tunables: Tunables,
}

fn parse(cmdline: &str) -> Params {
    let mut params = Params { stats: false, selftest: None, tunables: Tunables::default() };
    for word in cmdline.split_ascii_whitespace() {
        match word.split_once('=') {
            None if word == "stats" => params.stats = true,
            Some(("discipline", name)) => match Discipline::ALL.into_iter().find(|d| d.name() == name) {
                Some(discipline) => params.tunables.discipline = discipline,
                None => refuse(format_args!("discipline={name}: should be global, fastpath2004, split or lockfree")),
            },
            Some(("selftest", name)) => match Selftest::named(name) {
                Some(selftest) => params.selftest = Some(selftest),
                None => refuse(format_args!("selftest={name}: should be panic, reset or user-access")),
            },
            _ => refuse(format_args!("{word}: no such kernel parameter")),
        }
    }
    params
}

/// Says why the program cannot be run, and ends.
fn refuse(why: core::fmt::Arguments) -> ! {
    log!("{why}");
    power::off(End::Refused)
}

static PARAMS: crate::sync::Once<Params> = crate::sync::Once::new();

/// Sets up the subsystem and queues the thread.
pub fn start(info: &Info) {
    let params = PARAMS.set(parse(info.cmdline()));
    mm::init(info, params.tunables);
    let stack = KernelStack::new().expect("the heap is empty still");
    sched::start(&Arc::new(Thread::for_kernel(stack, main)));
}

extern "C" fn main() -> ! {
    sched::kernel_thread_started();
    let free_before = free_pages();
    let process = match launch() {
        Ok(process) => process,
        Err((path, why)) => refuse(format_args!("{path}: {why}")),
    };
    wait_for(&process);
    let end = process.end().unwrap_or(End::Exit(0));
    if PARAMS.get().stats {
        print_stats(&process);
    }
    tear_down(process, free_before);
    power::off(end)
}

/// Loads the program that the archive names, and lets its first thread run.
fn launch() -> Result<Arc<Process>, (String, String)> {
    let args = archive::arguments();
    let path = args.first().cloned().unwrap_or_else(|| archive::ARGUMENTS.to_string());
    let fail = |why: &dyn core::fmt::Display| (path.clone(), why.to_string());
    let file = archive::find(&path).ok_or_else(|| fail(&"is not in the archive"))?;
    let space = mm::new_space().map_err(|_| fail(&elf::LoadError::Memory))?;
    let loaded = elf::load(&space, file).map_err(|e| fail(&e))?;
    let env = [String::from("PATH=/bin:/usr/bin"), String::from("HOME=/")];
    let sp = stack::build(&space, &loaded, &args, &env)
        .map_err(|_| fail(&"its arguments do not fit on its stack, or there is no memory for one"))?;
    let process = Process::new(space, path.clone());
    let thread = process
        .new_thread(Frame::for_program(loaded.entry, sp), Image::initial())
        .map_err(|Errno(number)| fail(&format_args!("no memory for a thread (errno {number})")))?;
    if let Some(selftest) = PARAMS.get().selftest {
        selftest.run(&process.space, sp);
    }
    log!("{} us: {path} starts", time::now_ns() / 1000);
    sched::start(&thread);
    Ok(process)
}

fn wait_for(process: &Process) {
    *process.waiter.lock() = Some(sched::current());
    while process.ended.load(Ordering::Acquire) == 0 {
        sched::block();
    }
}

/// Frees the program's memory, once no CPU has it loaded any more, and checks
/// that all of it came back.
fn tear_down(process: Arc<Process>, free_before: u64) {
    let path = process.path.clone();
    let deadline = time::now_ns() + 2_000_000_000;
    while Arc::strong_count(&process) > 1 {
        sched::leave_space();
        assert!(time::now_ns() < deadline, "{path} has ended but is still in use");
        sched::block_until(Some(time::now_ns() + 50_000));
    }
    drop(process);
    let free = free_pages();
    if free < free_before {
        log!("{path}: {} pages did not come back", free_before - free);
    }
}

fn free_pages() -> u64 {
    mm::vm().vmstat().nr_free_pages
}

fn print_stats(process: &Process) {
    let line = |text: core::fmt::Arguments| {
        let mut line = Line::new(Channel::Stats, false);
        let _ = writeln!(line, "{text}");
    };
    let used = process.used();
    line(format_args!("user_us {}", used.user_ns / 1000));
    line(format_args!("system_us {}", used.system_ns / 1000));
    line(format_args!("faults {}", used.nr_faults));
    let rss = process.space.rss_pages();
    line(format_args!("rss_anon_pages {}", rss.anon));
    line(format_args!("rss_shmem_pages {}", rss.shmem));
    line(format_args!("rss_table_pages {}", rss.tables));
    for (name, value) in mm::vm().vmstat().iter() {
        line(format_args!("{name} {value}"));
    }
    process.space.maps(&mut |vma| {
        let letter = |flag, letter| if vma.flags.contains(flag) { letter } else { '-' };
        let (start, end) = (vma.range.start.addr(), vma.range.end.addr());
        let [r, w, x] = [letter(VmaFlags::READ, 'r'), letter(VmaFlags::WRITE, 'w'), letter(VmaFlags::EXEC, 'x')];
        let shared = if vma.flags.contains(VmaFlags::SHARED) { 's' } else { 'p' };
        let name = match () {
            () if vma.flags.contains(VmaFlags::HEAP) => " [heap]",
            () if vma.flags.contains(VmaFlags::STACK) => " [stack]",
            () => "",
        };
        line(format_args!("{start:012x}-{end:012x} {r}{w}{x}{shared}{name}"));
    });
}
