//! A folder for the files that QEMU reads, removed at the end.

use super::RunError;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// The folder.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, in the system's place for such things.
    pub fn new() -> Result<Scratch, RunError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("softfault-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|e| RunError::Host(format!("{}: {e}", path.display())))?;
        Ok(Scratch(path))
    }
    /// Puts a file in.
    pub fn put(&self, name: &str, content: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.path().join(name);
        fs::write(&path, content).map_err(|e| RunError::Host(format!("{}: {e}", path.display())))?;
        Ok(path)
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
