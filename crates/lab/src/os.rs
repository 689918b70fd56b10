//! The host's services for experiments: pinning, CPU time, fresh mappings.
//!
//! One of the lab's files with `unsafe`; its invariants:
//! - **L1** a system call is given pointers to live values of the type that it
//!   reads or writes, and addresses inside a [`Mapping`] that is still mapped;
//! - **L2** the bytes of a [`Mapping`] are reached through raw pointers only, and
//!   threads that write at the same time write different pages.

use crate::error::LabError;
use std::time::Duration;

/// CPUs that this process may run on, in order.
pub fn allowed_cpus() -> Result<Vec<usize>, LabError> {
    // SAFETY: L1: a cpu_set_t is plain bits; the size is that of the value.
    let (rc, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), set)
    };
    if rc != 0 {
        return Err(LabError::host("sched_getaffinity", std::io::Error::last_os_error()));
    }
    // SAFETY: L1: the index stays below CPU_SETSIZE, the number of bits in a cpu_set_t.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Makes the calling thread run on `cpu` and nowhere else.
pub fn pin(cpu: usize) -> Result<(), LabError> {
    // SAFETY: L1: a cpu_set_t is plain bits, and `cpu` came from `allowed_cpus`.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if rc != 0 {
        return Err(LabError::host(format!("sched_setaffinity to CPU {cpu}"), std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Runs `work` on a thread of its own that stays on `cpu`.
pub fn on_cpu<T: Send>(cpu: usize, work: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| pin(cpu).and_then(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// From now on, writing to a pipe that nobody reads (`softfault pft | head`) ends
/// the process quietly, as it does other commands.
pub fn end_with_the_reader() {
    // SAFETY: L1: the default action of a signal, set before there are threads.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Time that a thread has spent on a CPU.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

/// CPU time of the calling thread so far, to the nanosecond.
pub fn thread_clock() -> Duration {
    // SAFETY: L1: a timespec is plain numbers.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now);
        now
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs `work`. Returns the calling thread's CPU time, and the result; CPU time of others
/// meanwhile does not count.
pub fn cpu_time_of<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = thread_clock();
    let done = work();
    (thread_clock() - start, done)
}

/// The calling thread's CPU time so far.
///
/// getrusage alone is as old as the last timer tick. Reading the thread's CPU
/// clock first makes the kernel bring its books up to date.
pub fn thread_cpu_time() -> CpuTime {
    // SAFETY: L1: a timespec and an rusage are plain numbers.
    let usage = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now);
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let duration = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

/// Memory that could be had now without swapping, bytes.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".into(), |s| s.trim().into())
}

/// Which pages the host should give a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPages {
    /// 4 KiB only.
    Small,
    /// 2 MiB where it has one.
    Huge,
    /// 2 MiB of its pool.
    Hugetlb,
}

/// Bytes of this process in `len` from `base` that the host maps by huge pages
/// now (`AnonHugePages` of the mappings that overlap them); 0 if it does not say.
pub fn huge_bytes(base: *mut u8, len: usize) -> u64 {
    std::fs::read_to_string("/proc/self/smaps").map_or(0, |text| anon_huge_bytes(&text, base.addr(), len))
}

fn anon_huge_bytes(smaps: &str, base: usize, len: usize) -> u64 {
    let (mut overlaps, mut sum_kib) = (false, 0);
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("AnonHugePages:") {
            let kib = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            sum_kib += if overlaps { kib } else { 0 };
        } else if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-')) {
            let at = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            overlaps = at(start) < base + len && base < at(end);
        }
    }
    sum_kib * 1024
}

/// Private anonymous memory of this process, unmapped on drop.
pub struct Mapping {
    base: *mut u8,
    len: usize,
    /// All that is mapped, where that is more.
    whole: (*mut u8, usize),
}

// SAFETY: L2: the pointer is only ever used to compute addresses of raw accesses.
unsafe impl Send for Mapping {}
// SAFETY: L2: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes that nobody has touched, in base pages.
    pub fn fresh(len: usize) -> Result<Mapping, LabError> {
        Mapping::with(len, 0, HostPages::Small)
    }
    /// `len` bytes that nobody has touched, in pages of that size if the host
    /// can, aligned to 2 MiB.
    pub fn aligned(len: usize, pages: HostPages) -> Result<Mapping, LabError> {
        Mapping::with(len, 2 << 20, pages)
    }
    /// Aligned to `align` bytes, or to a page if that is 0.
    fn with(len: usize, align: usize, pages: HostPages) -> Result<Mapping, LabError> {
        // The kernel aligns pages of its pool.
        let align = if pages == HostPages::Hugetlb { 0 } else { align };
        let refused = |what: &str| LabError::host(format!("{what} of {len} bytes"), std::io::Error::last_os_error());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | match pages {
                // All pages are promised, or the mapping is refused.
                HostPages::Hugetlb => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
                HostPages::Small | HostPages::Huge => libc::MAP_NORESERVE,
            };
        // SAFETY: L1: a new mapping, placed by the kernel, takes nothing that is in use.
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), len + align, rights, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return Err(refused("mmap"));
        }
        let base = whole.map_addr(|addr| addr.next_multiple_of(align.max(1)));
        let mapping = Mapping { base: base.cast(), len, whole: (whole.cast(), len + align) };
        let advice = match pages {
            HostPages::Small => libc::MADV_NOHUGEPAGE,
            HostPages::Huge => libc::MADV_HUGEPAGE,
            HostPages::Hugetlb => return Ok(mapping),
        };
        // SAFETY: L1: the range is in the mapping made above.
        let rc = unsafe { libc::madvise(base, len, advice) };
        // A host without huge pages gives small ones; `huge_bytes` tells.
        if rc != 0 && pages == HostPages::Small {
            return Err(refused("madvise(MADV_NOHUGEPAGE)"));
        }
        Ok(mapping)
    }
    /// Address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
    /// Makes these bytes zero and gives the host its pages back. Whole pages; what lies
    /// past the end does not count.
    pub fn forget(&self, bytes: std::ops::Range<usize>) {
        let (start, end) = (bytes.start.min(self.len), bytes.end.min(self.len));
        if start < end {
            // SAFETY: L1, L2: the range is in the mapping, and nobody has a reference into it.
            // A host that refuses keeps the pages.
            unsafe { libc::madvise(self.base.wrapping_add(start).cast(), end - start, libc::MADV_DONTNEED) };
        }
    }
    /// From now on the host may map these bytes by huge pages, where it has some.
    pub fn allow_huge(&self, bytes: std::ops::Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len, "{bytes:?} of {}", self.len);
        // SAFETY: L1: the range is in the mapping. A host that refuses gives small pages.
        unsafe { libc::madvise(self.base.wrapping_add(bytes.start).cast(), bytes.len(), libc::MADV_HUGEPAGE) };
    }
    /// Bytes of it that the host maps by huge pages now.
    pub fn huge_bytes(&self) -> u64 {
        huge_bytes(self.base, self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: L1: it is ours, and nobody has a reference into it (L2).
        unsafe { libc::munmap(self.whole.0.cast(), self.whole.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_of_the_mappings_that_overlap() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nAnonHugePages:      2048 kB\nTHPeligible: 1\n\
                     3000-5000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:      4096 kB\n";
        let bytes = |base, len| anon_huge_bytes(smaps, base, len);
        assert_eq!(bytes(0x1000, 0x2000), 2 << 20);
        assert_eq!(bytes(0x2fff, 0x2), 6 << 20);
        assert_eq!(bytes(0x3000, 0x1000), 4 << 20);
        assert_eq!((bytes(0, 0x1000), bytes(0x5000, 0x1000)), (0, 0));
    }

    #[test]
    fn an_aligned_mapping_is_aligned_and_usable_to_its_end() {
        for pages in [HostPages::Small, HostPages::Huge] {
            let mapping = Mapping::aligned(4 << 20, pages).unwrap();
            assert!(mapping.base().addr().is_multiple_of(2 << 20));
            // SAFETY: L2: the first and the last byte.
            unsafe {
                mapping.base().write(1);
                mapping.base().add((4 << 20) - 1).write(2);
            }
            assert!(mapping.huge_bytes() <= if pages == HostPages::Small { 0 } else { 4 << 20 });
        }
    }
}
