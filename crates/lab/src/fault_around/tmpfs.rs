//! A file of the host's Linux in large folios: in a tmpfs that is mounted nowhere, so that it goes with its
//! descriptors.
//!
//! With `huge=within_size` a write that makes a file longer gets a folio of its own length; `always` would make 2 MiB.
//!
//! One of the lab's files with `unsafe` (L1 is in `os.rs`).

use super::options::Folios;
use super::pattern::mark_of;
use crate::bench::PAGE_BYTES;
use crate::error::LabError;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// A new descriptor, or what errno says.
fn opened(what: &str, descriptor: libc::c_long) -> Result<File, LabError> {
    let refused = || LabError::host(format!("{what} of a tmpfs for --folios 1m"), std::io::Error::last_os_error());
    // SAFETY: L1: a new descriptor, which nobody else has.
    if descriptor < 0 { Err(refused()) } else { Ok(unsafe { File::from_raw_fd(descriptor as libc::c_int) }) }
}

fn configure(context: &File, command: libc::c_uint, texts: [Option<&CStr>; 2]) -> Result<(), LabError> {
    let [key, value] = texts.map(|text| text.map_or(std::ptr::null(), CStr::as_ptr));
    // SAFETY: L1: strings with their ends, or none.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0) };
    let refused = || LabError::host("fsconfig of a tmpfs for --folios 1m", std::io::Error::last_os_error());
    if done == 0 { Ok(()) } else { Err(refused()) }
}

/// A file without a name in a tmpfs of its own.
fn file() -> Result<File, LabError> {
    // SAFETY: L1: a string with its end.
    let context = opened("fsopen", unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 1) })?;
    configure(&context, FSCONFIG_SET_STRING, [Some(c"huge"), Some(c"within_size")])?;
    configure(&context, FSCONFIG_CMD_CREATE, [None, None])?;
    // SAFETY: L1: numbers alone.
    let mount = opened("fsmount", unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0) })?;
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: L1: a string with its end.
    opened("a file", unsafe { libc::openat(mount.as_raw_fd(), c".".as_ptr(), flags, 0o600) }.into())
}

/// Filled, a folio with each write; sees that it got these folios.
pub fn filled(nr_pages: u64, folios: Folios) -> Result<File, LabError> {
    let (file, folio_bytes) = (file()?, PAGE_BYTES << folios.order());
    let (before, mut bytes) = (nr_made(folios)?, vec![0; folio_bytes as usize]);
    for offset in (0..nr_pages * PAGE_BYTES).step_by(folio_bytes as usize) {
        for (i, page) in bytes.chunks_mut(PAGE_BYTES as usize).enumerate() {
            page[..8].copy_from_slice(&mark_of(offset / PAGE_BYTES + i as u64).to_ne_bytes());
        }
        file.write_all_at(&bytes, offset).map_err(|e| LabError::host("writing a file of a tmpfs", e))?;
    }
    let (made, wanted) = (nr_made(folios)? - before, nr_pages >> folios.order());
    if made < wanted {
        let why = format!("its tmpfs made {made} folios of {} KiB, not {wanted}", folios.kib());
        return Err(LabError::host("--folios 1m on this Linux (--against none leaves it out)", why));
    }
    Ok(file)
}

/// Folios of that size that files in memory got since the boot.
fn nr_made(folios: Folios) -> Result<u64, LabError> {
    let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/stats/shmem_alloc", folios.kib());
    let text = fs::read_to_string(&path).map_err(|e| LabError::host(&path, e))?;
    text.trim().parse().map_err(|e| LabError::host(&path, e))
}
