//! A file that is to be executed.

use super::inode::access::Running;
use super::inode::names;
use super::{Inode, Place, walk};
use crate::linux::errno::{self, Errno};
use crate::port::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One. Nobody writes it meanwhile.
pub struct Program {
    running: Running,
    /// Its path from the root, links followed.
    pub path: Vec<u8>,
}

/// Finds the program at `path`, as execve(2) does.
pub fn open_program(place: &Place, path: &[u8]) -> errno::Result<Program> {
    let found = walk::walk(&place.cwd, path, walk::Follow::Last)?;
    if let Some(open) = &found.open {
        let path = walk::path_of(&open.inode, open.spot.as_ref())?;
        return Program::new(open.inode.clone(), path);
    }
    let mut full = match &found.dir {
        dir if found.name.is_empty() || found.inode.is_none() => walk::path_of_dir(dir).unwrap_or_default(),
        dir => walk::path_of_dir(dir)?,
    };
    if !full.ends_with(b"/") {
        full.push(b'/');
    }
    full.extend_from_slice(&found.name);
    Program::new(found.found()?, full)
}

impl Program {
    fn new(inode: Arc<Inode>, path: Vec<u8>) -> errno::Result<Program> {
        // Even root needs somebody to be allowed to execute it.
        if inode.content().is_err() || inode.meta().mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        Ok(Program { running: Running::of(&inode)?, path })
    }
    /// Reads from `offset` on, up to the end.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
        self.inode().read_at(offset, into)
    }
    /// The file.
    pub fn inode(&self) -> &Arc<Inode> {
        self.running.inode()
    }
    /// Keeps writers away, for as long as it runs.
    pub fn into_running(self) -> Running {
        self.running
    }
    /// The shared object that holds it, for mapping it.
    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        let object = self.inode().object()?;
        // Without a name it can still be mapped.
        let _ = names::set(object.id(), self.inode(), &self.path);
        Ok(object)
    }
}
