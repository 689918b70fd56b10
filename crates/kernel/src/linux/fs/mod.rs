//! The file system: one tree of names in memory, filled from the initial
//! archive, and beside it the generated files of `/proc` and `/sys` (`linux::proc`).
//!
//! `inode` is what a file is, `content` the bytes of a plain one, `seals` what may
//! not be done to them, `tree` the
//! names in directories, `walk` turns a path into an inode, `change` makes,
//! moves and removes names, `mounts` puts other file systems into the tree, of which `mount` is one, `archive` is what
//! the loader brought, `initial` fills the tree with it at boot, `text` is an open generated file, `buffer` a text that
//! is being written. Nothing here knows a process: a caller says what is to be known of some.
//! Bytes of files are the archive's own or lie in shared objects of the memory
//! subsystem, never on the kernel's heap; names and inodes are charged to it.
//!
//! Locks: the tree has one spin lock, under which nothing but the heap's is
//! taken; what is taken out of the tree is dropped after it. Contents and
//! positions have sleeping locks, taken with no spin lock held.

pub mod archive;
pub mod buffer;
pub mod change;
pub mod content;
mod cover;
pub mod initial;
pub mod inode;
pub mod mapped;
pub mod mount;
pub mod mounts;
mod options;
mod program;
pub mod seals;
pub mod text;
pub mod tree;
pub mod walk;

pub use inode::{Body, Inode, Spot};
pub use program::{Program, open_program};

use alloc::sync::Arc;

/// Longest name in a directory.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest path, with the zero at its end.
pub const MAX_PATH_BYTES: usize = 4096;

/// Where a process is in the tree.
#[derive(Clone)]
pub struct Place {
    /// Where relative paths begin.
    pub cwd: Arc<Inode>,
    /// Mode bits that new files do not get.
    pub umask: u32,
}

impl Place {
    /// At the root, with the usual mask.
    pub fn root() -> Place {
        Place { cwd: tree::root(), umask: 0o022 }
    }
}
