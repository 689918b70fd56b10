//! The initial archive (cpio, newc): files, directories and links, and what to
//! run.

use crate::port::boot::info;
use alloc::vec::Vec;

/// The entry that says what to run: path and arguments, each ended by a zero.
pub const ARGUMENTS: &str = ".softfault/arguments";

/// One entry.
pub struct Item {
    /// Its path, without a slash in front.
    pub name: &'static [u8],
    /// Type and rights.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was changed: seconds since 1970.
    pub modified_s: u64,
    /// Its content; of a link, where it leads.
    pub bytes: &'static [u8],
}

/// Everything in it, in its order.
pub fn items() -> impl Iterator<Item = Item> {
    cpio_reader::iter_files(info::archive()).map(|entry| Item {
        name: entry.name().trim_start_matches("./").trim_start_matches('/').as_bytes(),
        mode: entry.mode().bits(),
        uid: entry.uid(),
        gid: entry.gid(),
        modified_s: entry.mtime(),
        bytes: entry.file(),
    })
}

/// The file at `path`; a slash in front makes no difference.
pub fn find(path: &str) -> Option<&'static [u8]> {
    let path = path.trim_start_matches('/').as_bytes();
    items().filter(|item| item.name == path).last().map(|item| item.bytes)
}

/// Path of the program and its arguments, the path first.
pub fn arguments() -> Vec<Vec<u8>> {
    let list = find(ARGUMENTS).unwrap_or(&[]);
    list.split_inclusive(|b| *b == 0).map(|part| part.strip_suffix(&[0]).unwrap_or(part).to_vec()).collect()
}
