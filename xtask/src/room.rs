//! Checks that the disk has room for the gate's builds. A compiler that runs out of disk space reports an unrelated
//! file.

use crate::shell;
use std::path::Path;

/// The disk space of a fresh clone and one run, `target` and the files of the tests, in bytes.
const NEEDED: u64 = 4 << 30;
const TARGETS: [&str; 3] = ["target", "crates/kernel/target", "crates/lab/probe/target"];

/// Makes sure that a run fits, counting what earlier runs have built.
pub fn ensure() -> Result<(), String> {
    let top = shell::top();
    let disk = rustix::fs::statvfs(&top).map_err(|error| format!("the free space of this disk: {error}"))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    judge(free, TARGETS.iter().map(|target| size_of(&top.join(target))).sum())
}

fn judge(free: u64, built: u64) -> Result<(), String> {
    if free.saturating_add(built) >= NEEDED {
        return Ok(());
    }
    Err(format!(
        "this disk has {} MiB free; a first run takes {} MiB, and {} are built",
        mib(free),
        mib(NEEDED),
        mib(built)
    ))
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// Of all files below, without following links; what vanishes meanwhile counts as nothing.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size_of(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_counts_as_room() {
        assert!(judge(NEEDED, 0).is_ok());
        assert!(judge(NEEDED / 2, NEEDED / 2).is_ok());
        let why = judge(3 << 20, 1 << 20).unwrap_err();
        assert_eq!(why, "this disk has 3 MiB free; a first run takes 4096 MiB, and 1 are built");
    }

    #[test]
    fn sizes_are_those_of_all_files_below() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let one = std::fs::metadata(src.join("main.rs")).unwrap().len();
        assert!(size_of(&src) > size_of(&src.join("lint")) + one);
        assert_eq!(size_of(&src.join("nowhere")), 0);
    }
}
