//! Files of bytes, in place of the kernel's: a program, and the place where it finds its loader.

use super::errno::{self, Errno};
use crate::port::mm;
use std::sync::Arc;

#[path = "../../../kernel/src/linux/fs/options.rs"]
pub mod options;

/// A file that can be run.
pub struct Program(pub Arc<[u8]>);

/// A folder with one file, the loader, whatever its name is.
pub struct Place(pub Arc<[u8]>);

/// The file behind a program.
pub struct Inode {
    size_bytes: u64,
}

impl Inode {
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

/// Finds the loader. No path with `?` exists.
pub fn open_program(place: &Place, path: &[u8]) -> errno::Result<Program> {
    if path.contains(&b'?') { Err(Errno::ENOENT) } else { Ok(Program(place.0.clone())) }
}

impl Program {
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
        let there = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    pub fn inode(&self) -> Inode {
        Inode { size_bytes: self.0.len() as u64 }
    }

    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        let object = mm::vm().new_shared_object(self.0.len() as u64).map_err(|_| Errno::ENOMEM)?;
        object.write(0, &self.0).map_err(|_| Errno::ENOMEM)?;
        Ok(Arc::new(object))
    }
}
