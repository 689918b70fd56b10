//! The common part of calls with paths: getting one from the program, and
//! where it begins.

use super::call::Call;
use crate::linux::errno::{self, Errno};
use crate::linux::file::Open;
use crate::linux::fs::walk::{self, Follow, Walked};
use crate::linux::fs::{Inode, MAX_PATH_BYTES};
use crate::port::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};

/// Bytes that are looked at at a time; never over the end of a page, behind
/// which there may be nothing.
const CHUNK_BYTES: u64 = 128;

/// Where a path begins if it is relative.
#[derive(Clone, Copy)]
pub enum From {
    /// In the current directory.
    Cwd,
    /// In the directory that this argument is the number of.
    Argument(usize),
}

/// Returns the open file that argument `n` names.
pub fn open_file(call: &Call, n: usize) -> errno::Result<Arc<Open>> {
    call.process.files.lock().get(call.int(n))
}

/// The text at `addr`, up to its zero; ENAMETOOLONG if there is none in time.
pub fn read_path(call: &Call, addr: u64) -> errno::Result<Vec<u8>> {
    let mut path = Vec::new();
    while path.len() < MAX_PATH_BYTES {
        let at = addr.wrapping_add(path.len() as u64);
        let mut chunk = [0; CHUNK_BYTES as usize];
        let nr = (4096 - at % 4096).min(CHUNK_BYTES) as usize;
        mm::copy_in(call.space(), at, &mut chunk[..nr])?;
        let end = chunk[..nr].iter().position(|b| *b == 0);
        path.extend_from_slice(&chunk[..end.unwrap_or(nr)]);
        if end.is_some() {
            return if path.len() < MAX_PATH_BYTES { Ok(path) } else { Err(Errno::ENAMETOOLONG) };
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// The current directory.
pub fn cwd(call: &Call) -> Arc<Inode> {
    call.process.place.lock().cwd.clone()
}

fn start(call: &Call, from: From, path: &[u8]) -> errno::Result<Arc<Inode>> {
    match from {
        From::Argument(n) if call.int(n) as i32 != AT_FDCWD && !path.starts_with(b"/") => {
            let inode = open_file(call, n)?.inode.clone();
            if inode.is_dir() || path.is_empty() { Ok(inode) } else { Err(Errno::ENOTDIR) }
        }
        _ => Ok(cwd(call)),
    }
}

/// Translates AT_SYMLINK_NOFOLLOW in `flags`.
pub fn follow(flags: u32) -> Follow {
    if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::Slash } else { Follow::Last }
}

/// Follows the path at argument `n`.
pub fn resolve(call: &Call, from: From, n: usize, follow: Follow) -> errno::Result<Walked> {
    let path = read_path(call, call.args[n])?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    walk::walk(&start(call, from, &path)?, &path, follow)
}

/// The inode at the path, or, with AT_EMPTY_PATH in `flags` and no path, the
/// one that is open.
pub fn resolve_inode(call: &Call, from: From, n: usize, follow: Follow, flags: u32) -> errno::Result<Arc<Inode>> {
    if flags & AT_EMPTY_PATH != 0 {
        let path = if call.args[n] == 0 { Vec::new() } else { read_path(call, call.args[n])? };
        if path.is_empty() {
            return match from {
                From::Argument(n) if call.int(n) as i32 != AT_FDCWD => Ok(open_file(call, n)?.inode.clone()),
                _ => Ok(cwd(call)),
            };
        }
    }
    resolve(call, from, n, follow)?.found()
}
