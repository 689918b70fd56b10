//! The reads on the host's Linux: a memfd whose pages are all in memory, mapped shared.
//!
//! The kernel's window is 64 KiB, and never crosses the end of a VMA. So smaller windows come from a VMA
//! that is cut into pieces of that size, by advice that changes nothing for a file in memory. A process
//! has at most 65,530 VMAs: the file is then read part by part.
//!
//! One of the lab's files with `unsafe` (L1 is in `os.rs`):
//! - **L11** the bytes of a file's mapping are read through atomic cells only, and only while it is mapped;
//!   nobody writes the file any more.

use super::load::{Load, Sample};
use super::options::Folios;
use super::pattern::{Mapped, PAGE_WORDS, Pattern, TABLE_PAGES, mark_of, sum};
use super::plan::{Job, System};
use super::tmpfs;
use crate::bench::{PAGE_BYTES, crew};
use crate::error::LabError;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// VMAs that all threads together may make: about half of what Linux allows a process.
const MOST_VMAS: u64 = 32_000;
const TABLE_BYTES: usize = (TABLE_PAGES * PAGE_BYTES) as usize;

/// A file in memory, filled.
pub struct Memory(File);

fn refused(what: impl Into<String>) -> LabError {
    LabError::host(what, std::io::Error::last_os_error())
}

impl Memory {
    /// Fills a new one.
    pub fn new(nr_pages: u64, folios: Folios) -> Result<Memory, LabError> {
        if folios == Folios::Large {
            return tmpfs::filled(nr_pages, folios).map(Memory);
        }
        // SAFETY: L1: the name is a string with its end.
        let fd = unsafe { libc::memfd_create(c"softfault fault-around".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused("memfd_create"));
        }
        // SAFETY: L1: a new descriptor, which nobody else has.
        let file = unsafe { File::from_raw_fd(fd) };
        let written = file.set_len(nr_pages * PAGE_BYTES).and_then(|()| {
            (0..nr_pages).try_for_each(|page| file.write_all_at(&mark_of(page).to_ne_bytes(), page * PAGE_BYTES))
        });
        written.map_err(|e| LabError::host(format!("a memfd of {nr_pages} pages"), e))?;
        Ok(Memory(file))
    }
}

/// One row.
pub fn run(memory: &Memory, load: &Load, job: Job) -> Result<Sample, LabError> {
    let piece_pages = match (job.system, job.window.order()) {
        (System::LinuxCut, Some(order)) => Some(1 << order.get()),
        _ => None,
    };
    let part_pages = piece_pages.map_or(load.nr_pages, |piece| part_pages(load, piece, job.nr_threads));
    let pagemap = File::open("/proc/self/pagemap").map_err(|e| LabError::host("/proc/self/pagemap", e))?;
    let read = |pattern: Pattern, nr_rounds| {
        crew::together(job.nr_threads, &load.cpus, |thread, steps| {
            let mut sum = Sample::default();
            for _ in 0..nr_rounds {
                for first in (0..load.nr_pages).step_by(part_pages as usize) {
                    let pages = first..(first + part_pages).min(load.nr_pages);
                    let mapping = Mapping::new(memory, pages.clone())?;
                    if let Some(piece) = piece_pages {
                        mapping.cut(load.pattern, piece)?;
                    }
                    let (minor, major) = thread_faults();
                    steps.timed(|| pattern.read(&mapping, pages.clone(), thread as u64))?;
                    let (minor_now, major_now) = thread_faults();
                    sum.minor_faults += minor_now - minor;
                    sum.major_faults += major_now - major;
                    sum.pages_mapped += mapping.nr_present(&pagemap)?;
                    steps.timed(|| pattern.read(&mapping, pages.clone(), thread as u64))?;
                }
            }
            Ok(sum)
        })
    };
    read(load.pattern.of_warm_up(), 1)?;
    let done = read(load.pattern, load.nr_rounds())?;
    Ok(done.results.iter().fold(Sample::of_walls(&done.walls), |all, of| Sample {
        minor_faults: all.minor_faults + of.minor_faults,
        major_faults: all.major_faults + of.major_faults,
        pages_mapped: all.pages_mapped + of.pages_mapped,
        ..all
    }))
}

/// How far apart pieces are that have a VMA of their own: next to each other, or one around each page that
/// is touched. Each makes two VMAs.
fn step_pages(pattern: Pattern, piece_pages: u64) -> u64 {
    if pattern == Pattern::Sparse { TABLE_PAGES } else { 2 * piece_pages }
}

/// Pages that a thread maps at a time.
fn part_pages(load: &Load, piece_pages: u64, nr_threads: usize) -> u64 {
    let nr_pieces = (MOST_VMAS / 2 / nr_threads as u64).max(1);
    nr_pieces * step_pages(load.pattern, piece_pages)
}

/// Minor and major faults of the calling thread so far.
fn thread_faults() -> (u64, u64) {
    // SAFETY: L1: an rusage is plain numbers.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

/// Some pages of the file, mapped at the same distance from a leaf table's beginning as in the file.
struct Mapping {
    base: *mut u8,
    pages: Range<u64>,
    /// The addresses that are reserved, and their number.
    whole: (*mut libc::c_void, usize),
}

impl Mapping {
    fn new(memory: &Memory, pages: Range<u64>) -> Result<Mapping, LabError> {
        let len = ((pages.end - pages.start) * PAGE_BYTES) as usize;
        let offset = (pages.start * PAGE_BYTES) as usize;
        let (reserved, none) = (len + 2 * TABLE_BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: L1: a new mapping, placed by the kernel, takes nothing that is in use.
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, none, -1, 0) };
        if whole == libc::MAP_FAILED {
            return Err(refused(format!("mmap of {reserved} bytes")));
        }
        let base = whole.map_addr(|addr| addr.next_multiple_of(TABLE_BYTES) + offset % TABLE_BYTES);
        let mapping = Mapping { base: base.cast(), pages, whole: (whole, reserved) };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: L1: inside the addresses that were reserved above.
        let at = unsafe { libc::mmap(base, len, libc::PROT_READ, flags, memory.0.as_raw_fd(), offset as i64) };
        if at == libc::MAP_FAILED {
            return Err(refused(format!("mmap of {len} bytes of a memfd")));
        }
        Ok(mapping)
    }

    /// Gives pieces of so many pages a VMA of their own.
    fn cut(&self, pattern: Pattern, piece_pages: u64) -> Result<(), LabError> {
        let nr_pages = self.pages.end - self.pages.start;
        for page in (0..nr_pages).step_by(step_pages(pattern, piece_pages) as usize) {
            let len = (piece_pages.min(nr_pages - page) * PAGE_BYTES) as usize;
            let at = self.base.wrapping_add((page * PAGE_BYTES) as usize).cast();
            // SAFETY: L1: inside the mapping.
            if unsafe { libc::madvise(at, len, libc::MADV_RANDOM) } != 0 {
                return Err(refused("madvise of a part of the mapping"));
            }
        }
        Ok(())
    }

    /// How many of its pages are mapped.
    fn nr_present(&self, pagemap: &File) -> Result<u64, LabError> {
        let mut entries = vec![0; (self.pages.end - self.pages.start) as usize * 8];
        let at = self.base.addr() as u64 / PAGE_BYTES * 8;
        pagemap.read_exact_at(&mut entries, at).map_err(|e| LabError::host("/proc/self/pagemap", e))?;
        // The highest bit: the page is there.
        let present = entries.as_chunks::<8>().0.iter().filter(|entry| u64::from_ne_bytes(**entry) >> 63 == 1);
        Ok(present.count() as u64)
    }

    fn words(&self, page: u64) -> &[AtomicU64; PAGE_WORDS as usize] {
        assert!(self.pages.contains(&page), "the pattern stays in the part that is mapped");
        let at = self.base.wrapping_add(((page - self.pages.start) * PAGE_BYTES) as usize);
        // SAFETY: L11: a whole page of the mapping. Relaxed loads of eight bytes may be of memory that is
        // mapped read-only.
        unsafe { &*at.cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: L1, L11: what was reserved, of which nobody has a reference any more.
        unsafe { libc::munmap(self.whole.0, self.whole.1) };
    }
}

impl Mapped for Mapping {
    #[inline]
    fn sum_page(&self, page: u64) -> Result<u64, LabError> {
        Ok(sum(self.words(page)))
    }
    #[inline]
    fn word(&self, index: u64) -> Result<u64, LabError> {
        Ok(self.words(index / PAGE_WORDS)[(index % PAGE_WORDS) as usize].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Age;
    use super::*;
    use crate::bench::Window;
    use crate::os;
    use softfault::policy::around::AroundOrder;

    #[test]
    fn cut_vmas_bound_the_window() {
        let memory = Memory::new(2048, Folios::Small).unwrap();
        for (pattern, order, faults) in [
            (Pattern::Seq, 0, 2048..2060),
            (Pattern::Random, 3, 256..270),
            (Pattern::Seq, 2, 512..524),
            (Pattern::Sparse, 1, 256..270),
        ] {
            let load = Load {
                pattern,
                nr_pages: 2048,
                folios: Folios::Small,
                neighbours: Age::Young,
                cpus: os::allowed_cpus().unwrap(),
            };
            let window = Window::fixed(AroundOrder::new(order).unwrap());
            let job = Job { system: System::LinuxCut, window, nr_threads: 1 };
            let sample = run(&memory, &load, job).unwrap();
            let nr_reads = if pattern == Pattern::Seq { load.nr_rounds() } else { 1 };
            assert!(faults.contains(&(sample.minor_faults / nr_reads)), "{pattern:?} {order}: {sample:?}");
            let mapped = load.nr_touched_each() << if pattern == Pattern::Sparse { order } else { 0 };
            assert_eq!((sample.pages_mapped, sample.major_faults), (mapped, 0), "{pattern:?} {order}");
        }
    }

    #[test]
    fn parts_leave_room_for_all_vmas() {
        for (pattern, piece, nr_threads) in [(Pattern::Seq, 1, 120), (Pattern::Sparse, 8, 512), (Pattern::Seq, 8, 1)] {
            let load =
                Load { pattern, nr_pages: 4 << 20, folios: Folios::Small, neighbours: Age::Young, cpus: vec![0] };
            let pages = part_pages(&load, piece, nr_threads);
            let nr_vmas = pages / step_pages(pattern, piece) * 2 * nr_threads as u64;
            assert!(pages > 0 && nr_vmas <= MOST_VMAS, "{pattern:?} {piece} {nr_threads}");
        }
    }
}
