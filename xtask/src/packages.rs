//! The Debian packages that the tests need.
//!
//! Without QEMU the kernel tests would have to be skipped, and a skipped test is no pass.
//! So the packages are installed as root; otherwise the check names them and fails.

use crate::shell::{self, Line};
use std::path::PathBuf;

/// A program that the tests call, and the package that has it.
const NEEDED: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("musl-gcc", "musl-tools"),
    ("gcc", "gcc"),
    ("busybox", "busybox-static"),
    ("bash-static", "bash-static"),
];

/// The package that `softfault compare` fetches when its tests run.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Makes sure that all of them are there, and that apt can tell where to fetch
/// the Linux that the reference kernel is compared with.
pub fn ensure() -> Result<(), String> {
    ensure_programs()?;
    if is_root() && is_there("apt-get") && !linux_was_fetched() {
        // The lists of a fresh machine may be empty or stale. If they cannot be
        // brought, the tests that need them say so.
        let updated = shell::run(&Line::new("apt-get", "-q update"));
        println!("{META_PACKAGE}: apt's lists {}", if updated.is_ok() { "are new" } else { "are as they were" });
    }
    Ok(())
}

/// Whether `softfault compare` has a kernel in its cache.
fn linux_was_fetched() -> bool {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let entries = cache.and_then(|cache| std::fs::read_dir(cache.join("softfault")).ok());
    entries.is_some_and(|mut e| e.any(|e| e.is_ok_and(|e| e.path().join("vmlinuz").is_file())))
}

fn ensure_programs() -> Result<(), String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() || !is_there("apt-get") {
        return Err(format!("missing Debian packages: install them with `apt-get install {list}`"));
    }
    println!("installing {list}");
    let install = Line::new("apt-get", &format!("install -y --no-install-recommends {list}"));
    let install = install.with("DEBIAN_FRONTEND", "noninteractive");
    if shell::run(&install).is_err() {
        // The lists of a fresh machine may be empty or stale.
        shell::run(&Line::new("apt-get", "update"))?;
        shell::run(&install)?;
    }
    match self::missing().first() {
        None => Ok(()),
        Some(package) => Err(format!("{package} was installed and its program is still not found")),
    }
}

fn missing() -> Vec<&'static str> {
    NEEDED.iter().filter(|(program, _)| !is_there(program)).map(|&(_, package)| package).collect()
}

/// Whether a program is on the search path.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    shell::output_of(&Line::new("id", "-u")).is_ok_and(|id| id.trim() == "0")
}
