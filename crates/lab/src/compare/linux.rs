//! A Linux kernel to boot: out of a Debian package, which is fetched if there is
//! none, unpacked into a cache folder, and never installed.

use crate::run::RunError;
use crate::run::verdict::last_line;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs, process};

/// The package that depends on the newest kernel of its kind.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
const OTHERWISE: &str = "a kernel package of Debian's can be given by --linux FILE.deb";

/// A kernel that can be booted.
pub struct Kernel {
    /// Package and version.
    pub name: String,
    /// The file for QEMU's `-kernel`.
    pub image: PathBuf,
}

/// The kernel of that package, or the newest that there is.
pub fn find(package: Option<&Path>) -> Result<Kernel, RunError> {
    let cache = cache_folder();
    fs::create_dir_all(&cache).map_err(|e| RunError::Host(format!("{}: {e}", cache.display())))?;
    match package {
        Some(file) => from_file(&cache, file),
        None => newest(&cache),
    }
}

fn cache_folder() -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute()).or_else(home);
    base.unwrap_or_else(env::temp_dir).join("softfault")
}

/// Runs a tool; a missing one is an error that names the package it is in.
fn tool(package: &str, command: &mut Command) -> Result<Output, RunError> {
    let name = command.get_program().display().to_string();
    command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RunError::Host(format!("{name}: not found; install the Debian package {package}")),
        _ => RunError::Host(format!("{name}: {error}")),
    })
}

fn from_file(cache: &Path, file: &Path) -> Result<Kernel, RunError> {
    let wrong = |why: String| RunError::Argument(format!("--linux {}: {why}", file.display()));
    let about = fs::metadata(file).map_err(|e| wrong(format!("should be a readable file: {e}")))?;
    let format = "--showformat=${Package}_${Version}_${Architecture}";
    let output = tool("dpkg", Command::new("dpkg-deb").args(["--show", format]).arg(file))?;
    let name = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || name.is_empty() || name.contains('/') {
        return Err(wrong(format!("should be a Debian package: {}", last_line(&output.stderr))));
    }
    // A package that was built anew under the same version is another one.
    let changed_s = about.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let key = format!("{name}-{}-{}", about.len(), changed_s.map_or(0, |d| d.as_secs()));
    let image = cache.join(key).join("vmlinuz");
    if !image.is_file() {
        unpack(file, &image)?;
    }
    Ok(Kernel { name, image })
}

fn newest(cache: &Path) -> Result<Kernel, RunError> {
    let (package, version) = match resolve() {
        Ok(found) => found,
        // An earlier download serves without a network.
        Err(why) => return newest_cached(cache).ok_or(why),
    };
    let name = format!("{package}_{version}");
    let image = cache.join(&name).join("vmlinuz");
    if !image.is_file() {
        fetch(cache, &package, &image)?;
    }
    Ok(Kernel { name, image })
}

/// Package and version that the meta package depends on.
fn resolve() -> Result<(String, String), RunError> {
    let none = |why: &str| RunError::Host(format!("no Linux to compare with: {why}; {OTHERWISE}"));
    let output = Command::new("apt-cache").args(["show", "--no-all-versions", META_PACKAGE]).output();
    let output = output.map_err(|e| none(&format!("apt-cache: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    depends_on(&text).ok_or_else(|| none(&format!("apt knows no {META_PACKAGE} (apt-get update may help)")))
}

/// From `Depends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)`.
fn depends_on(text: &str) -> Option<(String, String)> {
    let list = text.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let one = list.split(',').map(str::trim).find(|d| d.starts_with("linux-image-"))?;
    let (package, version) = one.split_once(" (= ")?;
    Some((package.to_owned(), version.strip_suffix(')')?.to_owned()))
}

/// Fetched before, the latest.
fn newest_cached(cache: &Path) -> Option<Kernel> {
    let entries = fs::read_dir(cache).ok()?.filter_map(Result::ok);
    let fetched = entries.filter(|e| e.file_name().to_string_lossy().starts_with("linux-image-"));
    let images = fetched.filter_map(|e| {
        let image = e.path().join("vmlinuz");
        let time = fs::metadata(&image).and_then(|m| m.modified()).ok()?;
        Some((time, Kernel { name: e.file_name().to_string_lossy().into_owned(), image }))
    });
    images.max_by_key(|(time, _)| *time).map(|(_, kernel)| kernel)
}

fn fetch(cache: &Path, package: &str, image: &Path) -> Result<(), RunError> {
    eprintln!("softfault compare: fetching {package} (some 30 MB, once)");
    let folder = cache.join(format!("fetching-{}", process::id()));
    fs::create_dir_all(&folder).map_err(|e| RunError::Host(format!("{}: {e}", folder.display())))?;
    let done = fetch_into(&folder, package, image);
    let _ = fs::remove_dir_all(&folder);
    done
}

fn fetch_into(folder: &Path, package: &str, image: &Path) -> Result<(), RunError> {
    let output = tool("apt", Command::new("apt-get").args(["-q", "download", package]).current_dir(folder))?;
    let is_package = |path: &PathBuf| path.extension() == Some(OsStr::new("deb"));
    let entries = fs::read_dir(folder).map_err(|e| RunError::Host(format!("{}: {e}", folder.display())))?;
    let file = entries.filter_map(Result::ok).map(|e| e.path()).find(is_package);
    match file.filter(|_| output.status.success()) {
        Some(file) => unpack(&file, image),
        None => Err(RunError::Host(format!("apt-get download {package}: {}; {OTHERWISE}", last_line(&output.stderr)))),
    }
}

/// Writes the package's kernel to `image`, whole or not at all.
fn unpack(package: &Path, image: &Path) -> Result<(), RunError> {
    let host = |what: &str, why: &dyn std::fmt::Display| RunError::Host(format!("{what}: {why}"));
    let mut files = Command::new("dpkg-deb");
    files.arg("--fsys-tarfile").arg(package).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut files = files.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => host("dpkg-deb", &"not found; install the Debian package dpkg"),
        _ => host("dpkg-deb", &error),
    })?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout", "--wildcards", "./boot/vmlinuz-*"]).stderr(Stdio::null());
    let stream = files.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let output = tar.stdin(stream).output().map_err(|e| host("tar", &e));
    let _ = files.wait();
    let bytes = output?.stdout;
    if bytes.is_empty() {
        let name = package.display();
        return Err(RunError::Argument(format!("--linux {name}: should be a package with a kernel in /boot")));
    }
    let folder = image.parent().unwrap_or(Path::new("."));
    let part = folder.join(format!("part-{}", process::id()));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&part, bytes))
        .and_then(|()| fs::rename(&part, image))
        .map_err(|e| host(&folder.display().to_string(), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meta_package_names_the_kernel() {
        let text = "Package: x\nDepends: a (>= 1), linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\nSection: kernel\n";
        let wanted = ("linux-image-6.1.0-56-cloud-amd64".to_string(), "6.1.192-2".to_string());
        assert_eq!(depends_on(text), Some(wanted));
        assert_eq!(depends_on("Package: x\n"), None);
        assert_eq!(depends_on("Depends: libc6 (= 2)\n"), None);
    }
}
