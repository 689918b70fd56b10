//! The folder that becomes the root of a batch on both sides: busybox, the programs of its tests, and the script.

use super::list::Test;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nbin:x:2:2:bin:/bin:/bin/false\ndaemon:x:1:1:daemon:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nbin:x:2:\nnogroup:x:65534:\nnobody:x:65533:\n";

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// busybox, which has to be linked statically.
pub fn busybox() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("busybox")).find(|file| file.is_file());
    found.ok_or_else(|| "busybox: not found; install the Debian package busybox-static".into())
}

/// Makes the folder anew.
pub fn make(root: &Path, programs: &Path, tests: &[Test], script: &str) -> Result<(), String> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(root)(error)),
        _ => {}
    }
    for folder in ["bin", "etc", "proc", "sys", "dev", "tmp", "suite", "mnt"] {
        fs::create_dir_all(root.join(folder)).map_err(failed(root))?;
    }
    let copy = |from: &Path, to: PathBuf| fs::copy(from, &to).map(drop).map_err(failed(from));
    let busybox = busybox()?;
    copy(&busybox, root.join("bin/busybox"))?;
    for applet in applets(&busybox)?.iter().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).map_err(failed(root))?;
    }
    for (name, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP), ("batch.sh", script)] {
        fs::write(root.join(name), text).map_err(failed(root))?;
    }
    for file in wanted(programs, tests)? {
        let name = file.file_name().unwrap_or_default();
        copy(&file, root.join("suite").join(name))?;
    }
    Ok(())
}

fn applets(busybox: &Path) -> Result<Vec<String>, String> {
    let output = Command::new(busybox).arg("--list").output().map_err(failed(busybox))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
}

/// The programs whose names begin as those in the commands do, up to a digit: a test's helpers are called so.
fn wanted(programs: &Path, tests: &[Test]) -> Result<Vec<PathBuf>, String> {
    let files = crate::clients::files(programs)?;
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = tests.iter().flat_map(|test| test.command.split([' ', ';', '/']));
    let stems: Vec<&str> = words.filter(|w| files.iter().any(|file| name(file) == *w)).map(stem).collect();
    let is_wanted = |file: &PathBuf| stems.iter().any(|stem| name(file).starts_with(stem));
    Ok(files.into_iter().filter(is_wanted).collect())
}

fn stem(program: &str) -> &str {
    let end = program.find(|c: char| c.is_ascii_digit()).unwrap_or(program.len());
    &program[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_begin_as_their_tests_do() {
        assert_eq!(stem("execve04"), "execve");
        assert_eq!(stem("hugepage-mmap"), "hugepage-mmap");
        assert_eq!(stem("mlock2-tests"), "mlock");
    }
}
