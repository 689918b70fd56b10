//! The timed code, and the steps directly before and after it.
//!
//! Each function here runs one row of one repetition and returns a [`Sample`]. All use
//! [`together`], so that all rows start and stop the clock in the same way. The plan, the
//! statistics and the output are in the neighbouring files.
//!
//! One of the lab's files with `unsafe` (L1 and L2 are in `os.rs`):
//! - **L3** without a living `Vm` nobody uses the arena's frames, so bytes of frames
//!   in `Hosted::regions` may be written through `frame_ptr`.
//! - **L10** is in `write.rs`.

use super::options::Pages;
use super::write::Write;
use crate::bench::{AGED_FREE_OF_64, Arena, Frames, PAGE_BYTES, bind, prepare_frames};
use crate::error::LabError;
use crate::os::{self, HostPages, Mapping};
use softfault::clear::{ClearOrder, ClearTable, Scratch, Zeroing};
use softfault::machine::Machine;
use softfault::{Access, AddressSpace, MapFlags, Order, Pfn, Prot, Tunables, Vm};
use softfault_host::Hosted;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Times of one row in one repetition.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sample {
    /// From the first thread's start to the last one's end.
    pub wall: Duration,
    /// CPU time in the program, all threads.
    pub user: Duration,
    /// CPU time in the host's kernel, all threads.
    pub system: Duration,
}

/// One row: who works, on how many pages.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Threads.
    pub nr_threads: usize,
    /// Host CPUs to pin them to, in turn.
    pub cpus: &'a [usize],
    /// Pages, all threads together.
    pub nr_pages: u64,
    /// The size of each of them.
    pub pages: Pages,
    /// The stores to each after its fault.
    pub write: Write,
}

impl Load<'_> {
    fn nr_bytes(&self) -> u64 {
        self.nr_pages * self.pages.nr_bytes()
    }
    /// The pages of thread `i`: contiguous, and no thread has two more than another.
    fn share(&self, i: usize) -> Range<u64> {
        let at = |i: usize| self.nr_pages * i as u64 / self.nr_threads as u64;
        at(i)..at(i + 1)
    }
}

/// Runs `work(i)` on all threads at once. `prepare(i)` comes first on the same
/// thread, untimed; what it gives is dropped after the clock has stopped.
fn together<G>(
    load: &Load,
    prepare: impl Fn(usize) -> Result<G, LabError> + Sync,
    work: impl Fn(Range<u64>) -> Result<(), LabError> + Sync,
) -> Result<Sample, LabError> {
    let ready = AtomicUsize::new(0);
    let worker = |i: usize| {
        let prepared = os::pin(load.cpus[i % load.cpus.len()]).and_then(|()| prepare(i));
        wait_for_all(&ready, load.nr_threads);
        let _prepared = prepared?;
        let (cpu_before, start) = (os::thread_cpu_time(), Instant::now());
        work(load.share(i))?;
        let (end, cpu_after) = (Instant::now(), os::thread_cpu_time());
        Ok((start, end, cpu_after.user - cpu_before.user, cpu_after.system - cpu_before.system))
    };
    let worker = &worker;
    let results: Vec<Result<_, LabError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.nr_threads).map(|i| scope.spawn(move || worker(i))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let times = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let first = times.iter().map(|t| t.0).min().expect("at least one thread");
    let last = times.iter().map(|t| t.1).max().expect("at least one thread");
    Ok(Sample { wall: last - first, user: times.iter().map(|t| t.2).sum(), system: times.iter().map(|t| t.3).sum() })
}

/// Spins, so that all threads leave within the time that a line takes to travel;
/// yields now and then for the case that there are more threads than CPUs.
fn wait_for_all(ready: &AtomicUsize, nr_threads: usize) {
    ready.fetch_add(1, Ordering::AcqRel);
    let mut turns = 0u32;
    while ready.load(Ordering::Acquire) < nr_threads {
        turns += 1;
        if turns.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Linux: a store of one byte to each page of a fresh mapping.
pub fn linux_touch(load: &Load) -> Result<Sample, LabError> {
    let page_bytes = load.pages.nr_bytes();
    on_fresh_mapping(load, |base, pages| {
        // Without a store there is no fault.
        let write = if load.write == Write::None { Write::One } else { load.write };
        // SAFETY: L2, L10: inside the mapping, in pages that only this thread touches.
        pages.for_each(|page| unsafe { write.store(base.add((page * page_bytes) as usize), page_bytes) });
        Ok(())
    })
}

/// Linux: one madvise(MADV_POPULATE_WRITE) of each thread's share, then the stores.
pub fn linux_populate(load: &Load) -> Result<Sample, LabError> {
    let page_bytes = load.pages.nr_bytes();
    on_fresh_mapping(load, |base, pages| {
        let (offset, len) = (pages.start * page_bytes, (pages.end - pages.start) * page_bytes);
        // SAFETY: L1: the share lies in the mapping.
        let rc = unsafe { libc::madvise(base.add(offset as usize).cast(), len as usize, libc::MADV_POPULATE_WRITE) };
        if rc != 0 {
            return Err(LabError::host("madvise(MADV_POPULATE_WRITE)", std::io::Error::last_os_error()));
        }
        // SAFETY: L2, L10: as in `linux_touch`.
        pages.for_each(|page| unsafe { load.write.store(base.add((page * page_bytes) as usize), page_bytes) });
        Ok(())
    })
}

/// Runs it twice and keeps the second time: a frame that the hypervisor has taken
/// back meanwhile costs several microseconds, which is not Linux's doing.
fn on_fresh_mapping(
    load: &Load,
    work: impl Fn(*mut u8, Range<u64>) -> Result<(), LabError> + Sync,
) -> Result<Sample, LabError> {
    let run = || {
        let len = load.nr_bytes() as usize;
        let mapping = match load.pages {
            Pages::Small => Mapping::fresh(len)?,
            Pages::Huge => Mapping::aligned(len, HostPages::Huge)?,
        };
        let sample = together(load, |_| Ok(()), |pages| work(mapping.base(), pages))?;
        // A host that gives small pages after all would be timed for another thing.
        if load.pages == Pages::Huge && os::huge_bytes(mapping.base(), len) < len as u64 / 10 * 9 {
            let why = std::io::Error::other("it mapped small pages: should have free blocks of 2 MiB");
            return Err(LabError::host("huge pages", why));
        }
        Ok(sample)
    };
    run()?;
    run()
}

/// Plain zeroing of the arena's first frames, `batch` frames at a time: the time
/// that no fault path that zeroes in such batches can beat.
pub fn zero(load: &Load, hosted: &Hosted, batch: u64) -> Result<Sample, LabError> {
    let first = first_frame(hosted);
    let page_frames = load.pages.nr_bytes() / PAGE_BYTES;
    together(
        load,
        |_| Ok(()),
        |pages| {
            let mut page = pages.start;
            while page < pages.end {
                let nr = batch.min(pages.end - page);
                // Opaque, or the compiler joins the calls into one over the whole share.
                let at = black_box(hosted.frame_ptr(Pfn(first.0 + (page * page_frames) as u32)));
                // SAFETY: L3: frames of this thread's share.
                unsafe { std::ptr::write_bytes(at, 0, (nr * page_frames * PAGE_BYTES) as usize) };
                page += nr;
            }
            Ok(())
        },
    )
}

/// Clearing of huge pages as a fault on their first sub-page does it, and nothing
/// else.
pub fn clear(load: &Load, hosted: &mut Hosted, how: ClearOrder, ways: (Zeroing, Zeroing)) -> Result<Sample, LabError> {
    let nr = Order::PMD.nr_pages();
    let range = hosted.frames()[0];
    let mut scratch = Scratch::new(hosted, range).expect("frames of the machine");
    scratch.set_large(ways);
    let hosted = scratch.machine();
    let (_, mut rest) = scratch.split_at(u64::from(range.first.0).next_multiple_of(nr) - u64::from(range.first.0));
    // A lock for each, which nobody contends for.
    let mut pages = Vec::new();
    while rest.range().nr_frames >= nr {
        let (page, after) = rest.split_at(nr);
        pages.push(Mutex::new(page));
        rest = after;
    }
    together(
        load,
        |i| bind(hosted, i),
        |share| {
            for page in share {
                let mut page = pages[page as usize].lock().expect("nobody panics with it");
                page.clear(0, Order::PMD, Some(0), how);
            }
            Ok(())
        },
    )
}

/// Softfault: one `handle_fault` for each page of a fresh address space in a
/// fresh `Vm` over the same arena, and the store that caused it. No trap: the fault
/// path, a walk of the tables, and the store.
pub fn faults(
    load: &Load,
    arena: &mut Arena,
    frames: Frames,
    tunables: Tunables,
    measured: &ClearTable,
) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), frames);
    let vm = Vm::new(arena.take(), tunables).map_err(|e| LabError::subsystem("Vm::new", e))?;
    vm.set_zeroing(measured);
    let sample = faults_in(&vm, load, frames)?;
    arena.put(vm.into_machine());
    Ok(sample)
}

fn faults_in(vm: &Vm<Hosted>, load: &Load, frames: Frames) -> Result<Sample, LabError> {
    let hosted = vm.machine();
    // The thread that sets up and takes down acts as CPU 0 meanwhile.
    let bound = bind(hosted, 0)?;
    if frames == Frames::Aged {
        vm.age(AGED_FREE_OF_64, AGE_SEED);
    }
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    let base = map(&space, load)?;
    drop(bound);

    let page_bytes = load.pages.nr_bytes();
    let sample = together(
        load,
        |i| {
            let guard = bind(hosted, i)?;
            guard.arrive(&space).map_err(|e| LabError::subsystem(format!("CPU {i}"), e))?;
            Ok(Inside { space: &space, guard })
        },
        |pages| {
            for page in pages {
                space
                    .handle_fault(base + page * page_bytes, Access::Write)
                    .map_err(|e| LabError::subsystem(format!("fault on page {page}"), e))?;
                if load.write != Write::None {
                    store(&space, hosted, base + page * page_bytes, load)?;
                }
            }
            Ok(())
        },
    )?;

    let _bound = bind(hosted, 0)?;
    verify(&space, hosted, base, load)?;
    drop(space);
    Ok(sample)
}

/// The store that caused the fault, to the frame that the page has now.
#[inline(always)]
fn store(space: &AddressSpace<Hosted>, hosted: &Hosted, addr: u64, load: &Load) -> Result<(), LabError> {
    let found = space.translate_at_rest(addr);
    let found = found.ok_or_else(|| LabError::subsystem(format!("{addr:#x} after its fault"), "is not mapped"))?;
    // SAFETY: L3, L10: frames of the arena, mapped for a page of this thread's share;
    // the other threads install pages and remove none.
    unsafe { load.write.store(hosted.frame_ptr(found.pfn), load.pages.nr_bytes()) };
    Ok(())
}

/// A worker's address space is its CPU's until the worker is done.
struct Inside<'a> {
    space: &'a AddressSpace<'a, Hosted>,
    guard: softfault_host::CpuGuard<'a>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.guard.depart(self.space);
    }
}

fn map(space: &AddressSpace<Hosted>, load: &Load) -> Result<u64, LabError> {
    let (len, align) = (load.nr_bytes(), load.pages.nr_bytes());
    let prot = Prot::READ | Prot::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
    space
        .mmap(0, len + align, prot, flags)
        .map(|base| base.next_multiple_of(align))
        .map_err(|e| LabError::subsystem(format!("mmap of {len} bytes"), e))
}

/// Any number: which frames are free after ageing is to repeat from run to run.
const AGE_SEED: u64 = 64;

/// Checks that every page has a frame, and that the frame has lost its mark and has what was
/// written: a row whose faults did less than it claims is no result.
fn verify(space: &AddressSpace<Hosted>, hosted: &Hosted, base: u64, load: &Load) -> Result<(), LabError> {
    let nr_pages = load.nr_bytes() / PAGE_BYTES;
    let (resident, huge) = (space.rss_pages().anon, space.rss_pages().anon_huge);
    let wanted_huge = if load.pages == Pages::Huge { nr_pages } else { 0 };
    if huge != wanted_huge {
        let why = format!("{huge} of {wanted_huge} pages are in huge mappings");
        return Err(LabError::subsystem("after the faults", why));
    }
    if resident != nr_pages {
        return Err(LabError::subsystem("after the faults", format!("{resident} of {nr_pages} pages are resident")));
    }
    for page in 0..nr_pages {
        let wrong = |what: &str| LabError::subsystem(format!("page {page} after its fault"), what);
        let leaf = space.translate_at_rest(base + page * PAGE_BYTES).ok_or_else(|| wrong("is not mapped"))?;
        let wanted = load.write.first_and_last((page * PAGE_BYTES).is_multiple_of(load.pages.nr_bytes()));
        let frame = hosted.frame_ptr(leaf.pfn).cast::<u64>();
        // SAFETY: L3: a frame of the arena, and no other thread is at work now.
        if unsafe { (frame.read(), frame.add(PAGE_BYTES as usize / 8 - 1).read()) } != wanted {
            return Err(wrong("is not zero but for what was written"));
        }
    }
    Ok(())
}

fn first_frame(hosted: &Hosted) -> Pfn {
    hosted.frames()[0].first
}
