//! Where programs come from: the initial archive. No more than that yet.
use crate::errno::{self, Errno};
use crate::process::archive;
/// Where a process is; there is one place only.
#[derive(Clone, Default)]
pub struct Place {
    _root: (),
}

/// A file to be run.
pub struct Program(&'static [u8]);

impl Program {
    /// Bytes from `at` on; how many there were.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> errno::Result<usize> {
        let from = self.0.get(at as usize..).unwrap_or(&[]);
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }
}

/// The program at `path`.
pub fn open_program(_place: &Place, path: &[u8]) -> errno::Result<Program> {
    let path = core::str::from_utf8(path).map_err(|_| Errno::ENOENT)?;
    archive::find(path).map(Program).ok_or(Errno::ENOENT)
}
