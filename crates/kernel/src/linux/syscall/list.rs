//! Reading directories.

use super::call::Call;
use super::path::open_file;
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::linux::fs::{Body, tree, walk};
use crate::port::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Names that are taken out of a directory at a time.
const BATCH: usize = 64;
/// Type of a directory entry: the file's type, shifted.
const TYPE_SHIFT: u32 = 12;
/// Cookies of `.` and `..`; names have larger ones.
const NR_DOTS: u64 = 2;

/// How entries are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// getdents(2): the type is the last byte.
    Old,
    /// getdents64(2): the type stands before the name.
    New,
}

impl Layout {
    /// Lays an entry out. Returns how many bytes of it mean something: nobody is given what follows them.
    fn pack(self, number: u64, cookie: u64, kind: u8, name: &[u8], into: &mut Vec<u8>) -> usize {
        let start = into.len();
        let fixed = if self == Layout::New { 19 } else { 18 };
        let extra = if self == Layout::New { 1 } else { 2 };
        let len = (fixed + name.len() + extra).next_multiple_of(8);
        into.extend_from_slice(&number.to_le_bytes());
        into.extend_from_slice(&cookie.to_le_bytes());
        into.extend_from_slice(&(len as u16).to_le_bytes());
        if self == Layout::New {
            into.push(kind);
        }
        into.extend_from_slice(name);
        into.resize(start + len, 0);
        if self == Layout::New {
            return fixed + name.len() + 1;
        }
        into[start + len - 1] = kind;
        len
    }
}

/// Entries are written one by one, as many as fit.
struct Output<'a, 'b> {
    call: &'a Call<'b>,
    layout: Layout,
    addr: u64,
    left: u64,
    done: u64,
}

impl Output<'_, '_> {
    /// False once nothing fits any more.
    fn add(&mut self, number: u64, cookie: u64, kind: u32, name: &[u8]) -> errno::Result<bool> {
        let mut entry = Vec::new();
        entry.try_reserve_exact(name.len() + 32).map_err(|_| Errno::ENOMEM)?;
        let used = self.layout.pack(number, cookie, (kind >> TYPE_SHIFT) as u8, name, &mut entry);
        if entry.len() as u64 > self.left {
            return if self.done == 0 { Err(Errno::EINVAL) } else { Ok(false) };
        }
        mm::copy_out(self.call.space(), self.addr.wrapping_add(self.done), &entry[..used])?;
        self.done += entry.len() as u64;
        self.left -= entry.len() as u64;
        Ok(true)
    }
}

/// Lists from `position` on, which moves with each entry.
fn list(open: &Arc<Open>, position: &mut u64, output: &mut Output) -> errno::Result<()> {
    let dir = &open.inode;
    // One that was removed has not even dots.
    walk::above(dir)?;
    for (cookie, name) in [(1, &b"."[..]), (NR_DOTS, b"..")] {
        if *position < cookie {
            let inode = if cookie == 1 { dir.clone() } else { walk::above(dir)? };
            if !output.add(inode.number, cookie, inode.kind(), name)? {
                return Ok(());
            }
            *position = cookie;
        }
    }
    loop {
        let batch = match &dir.body {
            Body::Generated(generated) => generated.list(dir, *position, BATCH)?,
            _ => tree::list(dir, *position, BATCH)?,
        };
        if batch.is_empty() {
            return Ok(());
        }
        for listed in batch {
            if !output.add(listed.inode.number, listed.cookie, listed.inode.kind(), &listed.name)? {
                return Ok(());
            }
            *position = listed.cookie;
        }
    }
}

/// getdents(2) and getdents64(2).
pub fn getdents(call: &mut Call, layout: Layout) -> errno::Result {
    let open = open_file(call, 0)?;
    match open.kind {
        Kind::Dir => {}
        Kind::Path => return Err(Errno::EBADF),
        _ => return Err(Errno::ENOTDIR),
    }
    let mut output = Output { call, layout, addr: call.args[1], left: call.int(2).into(), done: 0 };
    let mut position = open.position.lock();
    match list(&open, &mut position, &mut output) {
        Err(errno) if output.done == 0 => Err(errno),
        _ => Ok(output.done),
    }
}
