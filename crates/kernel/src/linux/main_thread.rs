//! The kernel's own first thread: starts the program, waits for its end, tears
//! it down, and turns the machine off with its status.

use crate::linux::file::{self, console};
use crate::linux::fs::archive;
use crate::linux::pools::Pools;
use crate::linux::process::exec::{self, Command};
use crate::linux::process::identity::Identity;
use crate::linux::process::stack::Inherited;
use crate::linux::process::timer;
use crate::linux::process::{self, Process};
use crate::linux::signal::{self, send};
use crate::linux::{fs, khugepaged, oom, proc, shm, stats, terminal};
use crate::port::arch::fpu::Image;
use crate::port::arch::time;
use crate::port::boot::info::Info;
use crate::port::console::log;
use crate::port::console::{Channel, Line};
use crate::port::machine;
use crate::port::power::{self, End};
use crate::port::sched::{self, KernelStack, Thread, delay};
use crate::port::selftest::Selftest;
use crate::port::{kcompactd, mm};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::Write;
use linux_raw_sys::general::SIGKILL;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{Event, FaultLocking, HugetlbLocking, Order, Tunables};
use spin::Once;

/// How long the end of all processes may take.
const PATIENCE_NS: u64 = 5_000_000_000;
/// The longest delay of a signal or a wake-up that a test may ask for.
const MOST_DELAY_US: u64 = 10_000;

/// Settings from the command line.
struct Params {
    selftest: Option<Selftest>,
    tunables: Tunables,
    pools: Pools,
}

fn parse(cmdline: &str) -> Params {
    let mut params = Params { selftest: None, tunables: Tunables::default(), pools: Pools::default() };
    for word in cmdline.split_ascii_whitespace() {
        match word.split_once('=') {
            None if word == "stats" => stats::enable(),
            Some(("fault_locking" | "discipline", name)) => match FaultLocking::ALL
                .into_iter()
                .find(|d| d.name() == name)
            {
                Some(fault_locking) => params.tunables.fault_locking = fault_locking,
                None => refuse(format_args!("fault_locking={name}: should be global, fastpath2004, split or lockfree")),
            },
            Some(("hugetlb_locking", name)) => match HugetlbLocking::ALL.into_iter().find(|d| d.name() == name) {
                Some(locking) => params.tunables.hugetlb_locking = locking,
                None => refuse(format_args!("hugetlb_locking={name}: should be one, table or lockfree")),
            },
            Some(("transparent_hugepage", when)) => match huge_pages(when) {
                Some((enabled, off)) => (params.tunables.thp.enabled, params.tunables.thp_off) = (enabled, off),
                None => complain(format_args!(
                    "transparent_hugepage={when}: should be always, madvise, never, 0 (off until reboot) or 2 (madvise); \
                     left as it was"
                )),
            },
            Some(("thp_cow", word)) => match CowHuge::parse(word) {
                Some(cow) => params.tunables.thp.cow = cow,
                None => refuse(format_args!("thp_cow={word}: should be split or copy")),
            },
            Some((name @ ("hugepagesz" | "default_hugepagesz" | "hugepages"), value)) => {
                let read = match name {
                    "hugepagesz" => params.pools.size(value),
                    "default_hugepagesz" => params.pools.default_size(value),
                    _ => params.pools.number(value),
                };
                read.unwrap_or_else(|why| complain(format_args!("{word}: {why}")));
            }
            Some(("tty", size)) => match parse_size(size) {
                Some(size) => terminal::init(size),
                None => refuse(format_args!("tty={size}: should be ROWSxCOLUMNS")),
            },
            Some(("delays", us)) => match us.parse() {
                Ok(us @ ..=MOST_DELAY_US) => delay::set(us),
                _ => refuse(format_args!("delays={us}: should be microseconds, {MOST_DELAY_US} at most")),
            },
            Some(("selftest", name)) => match Selftest::named(name) {
                Some(selftest) => params.selftest = Some(selftest),
                None => refuse(format_args!("selftest={name}: should be panic, reset, nmi or user-access")),
            },
            _ => refuse(format_args!("{word}: no such kernel parameter")),
        }
    }
    params
}

/// Parses when there are huge pages, and whether they are off for ever. The numbers are
/// those of the year in which they came.
fn huge_pages(word: &str) -> Option<(Enabled, bool)> {
    match word {
        "0" => Some((Enabled::Never, true)),
        "2" => Some((Enabled::Madvise, false)),
        _ => Enabled::parse(word).map(|enabled| (enabled, false)),
    }
}

/// `24x80`.
fn parse_size(text: &str) -> Option<[u16; 2]> {
    let (rows, columns) = text.split_once('x')?;
    Some([rows.parse().ok()?, columns.parse().ok()?])
}

/// Says what is wrong where nobody overlooks it, and goes on.
fn complain(what: core::fmt::Arguments) {
    let _ = writeln!(Line::new(Channel::Error, false), "kernel: {what}");
}

/// Says why the program cannot be run, and ends.
fn refuse(why: core::fmt::Arguments) -> ! {
    log!("{why}");
    power::off(End::Refused)
}

static PARAMS: Once<Params> = Once::new();

fn params() -> &'static Params {
    PARAMS.get().expect("read at boot")
}

/// Sets up the subsystem and queues the thread.
pub fn start(info: &Info) {
    let params = PARAMS.call_once(|| parse(info.cmdline()));
    machine::init(info, params.tunables);
    mm::set_punch(fs::mapped::punch);
    mm::set_find_memory(oom::find_memory);
    sched::on_alarm(timer::tick);
    khugepaged::start();
    kcompactd::start();
    let stack = KernelStack::new().expect("the heap is empty still");
    sched::start(&Arc::new(Thread::for_kernel(stack, main)));
}

extern "C" fn main() -> ! {
    sched::kernel_thread_started();
    let free_before = free_pages();
    params().pools.fill(complain);
    let process = match launch() {
        Ok(process) => process,
        Err((path, why)) => refuse(format_args!("{path}: {why}")),
    };
    let _ = process.watchers.wait(None, || process.has_ended().then_some(()));
    let end = process.end().unwrap_or(End::Exit(0));
    if stats::is_enabled() {
        stats::print_counters();
    }
    tear_down(process, free_before);
    power::off(end)
}

/// Loads the program that the archive names, and lets its first thread run.
fn launch() -> Result<Arc<Process>, (String, String)> {
    let args = archive::arguments();
    let path = args.first().cloned().unwrap_or_else(|| archive::ARGUMENTS.into());
    let name = String::from_utf8_lossy(&path).into_owned();
    let fail = |why: String| (name.clone(), why);
    let env = ["PATH=/bin:/usr/bin:/sbin:/usr/sbin", "HOME=/", "TERM=linux"].map(|text| text.as_bytes().to_vec());
    let files = file::Table::standard();
    fs::initial::init([("proc", proc::proc()), ("sys", proc::sys())]);
    let process = Process::first(files).map_err(|_| fail("no memory for a process".into()))?;
    if console::is_terminal() {
        console::set_foreground(process.pid);
    }
    let place = process.place.lock().clone();
    let inherited =
        Inherited { limits: process.limits.lock().clone(), thp_disable: false, identity: Identity::default() };
    let command = Command { path, is_open: false, args, env: env.into() };
    let prepared = exec::prepare(&place, command, &inherited).map_err(|e| fail(e.to_string()))?;
    if let Some(selftest) = params().selftest {
        selftest.run(&prepared.mm.space, prepared.frame.rsp);
    }
    let thread = process
        .new_leader(prepared.mm, prepared.frame, Image::initial())
        .map_err(|_| fail("no memory for a thread".into()))?;
    log!("{} us: {name} starts", time::now_ns() / 1000);
    process.begin(&thread);
    Ok(process)
}

/// Ends all remaining processes, and checks that all memory came back once no CPU has
/// any of their spaces loaded.
fn tear_down(process: Arc<Process>, free_before: u64) {
    let pid = process.pid;
    drop(process);
    let deadline = time::now_ns() + PATIENCE_NS;
    loop {
        let left = process::all();
        for process in &left {
            send::to_process(process, signal::Info::sent(SIGKILL, 0, 0));
        }
        sched::leave_space();
        let free = free_pages();
        if left.is_empty() && free >= free_before {
            log!("free pages: {free_before} before process {pid}, {free} after it");
            return;
        }
        if time::now_ns() > deadline {
            left.iter().for_each(|p| log!("{}[{}] has not ended", p.name(), p.pid));
            complain(format_args!("{} pages did not come back from process {pid}", free_before.saturating_sub(free)));
            return;
        }
        if left.is_empty() {
            // Files that nobody has open any more go with their names.
            fs::tree::clear();
            shm::all().iter().for_each(|segment| shm::doom(segment));
        }
        drop(left);
        sched::block_until(Some(time::now_ns() + 50_000));
    }
}

/// Free, or in the huge zero page, which stays once it is made.
fn free_pages() -> u64 {
    let stat = mm::vm().vmstat();
    let in_pools = mm::HUGE_ORDERS.into_iter().map(|order| mm::huge_counts(order).free * order.nr_pages());
    stat.nr_free_pages + in_pools.sum::<u64>() + stat.get(Event::ThpZeroPageAlloc) * Order::PMD.nr_pages()
}
