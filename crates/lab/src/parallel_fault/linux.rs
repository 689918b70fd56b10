//! The stores on the host's Linux: a file of hugetlbfs, mapped shared, in pages of the host's pool, which is grown for that.
//!
//! One of the lab's files with `unsafe` (L1 is in `os.rs`):
//! - **L13** each byte of the mapping that is written is one thread's, through a raw pointer, while it is mapped.

use super::load::{Load, Sample};
use super::options::{Options, Page};
use crate::bench::crew;
use crate::error::LabError;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

fn refused(what: impl Into<String>) -> LabError {
    LabError::host(what, std::io::Error::last_os_error())
}

/// One row.
pub fn run(options: &Options, load: &Load, nr_threads: usize) -> Result<Sample, LabError> {
    let file = file(options.page, load.bytes())?;
    let spaces =
        (0..load.shape.nr_spaces()).map(|_| Mapping::new(&file, load.bytes())).collect::<Result<Vec<_>, _>>()?;
    let done = crew::together(nr_threads, &load.cpus, |thread, steps| {
        steps.timed(|| {
            for (space, bytes) in load.parts(thread, nr_threads) {
                load.touches(bytes).for_each(|at| spaces[space].store(at));
            }
            Ok(())
        })
    })?;
    Ok(Sample { wall: done.walls[0], locks: None })
}

fn file(page: Page, len: u64) -> Result<File, LabError> {
    let size = if page == Page::Mib2 { libc::MFD_HUGE_2MB } else { libc::MFD_HUGE_1GB };
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | size;
    // SAFETY: L1: the name is a string with its end.
    let fd = unsafe { libc::memfd_create(c"softfault parallel-fault".as_ptr(), flags) };
    if fd < 0 {
        return Err(refused("memfd_create with MFD_HUGETLB"));
    }
    // SAFETY: L1: a new descriptor, which nobody else has.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len).map_err(|e| LabError::host(format!("a file of {len} bytes of huge pages"), e))?;
    Ok(file)
}

/// The whole file.
struct Mapping {
    base: *mut u8,
    len: u64,
}

// SAFETY: L13.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, len: u64) -> Result<Mapping, LabError> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: L1: a new mapping, placed by the kernel, takes nothing that is in use.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, rights, shared, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(refused(format!("mmap of {len} bytes of huge pages")));
        }
        Ok(Mapping { base: base.cast(), len })
    }

    fn store(&self, at: u64) {
        assert!(at < self.len);
        // SAFETY: L13: inside the mapping. In other mappings of the file another thread writes the same value; the compiler does not know
        // that these are one byte.
        unsafe { self.base.add(at as usize).write_volatile(1) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: L1, L13: ours, and nobody stores any more.
        unsafe { libc::munmap(self.base.cast(), self.len as usize) };
    }
}
