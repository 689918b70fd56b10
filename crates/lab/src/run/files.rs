//! The files that go into the machine, and which of them is the program.

use super::content::Content;
use super::{MachineOptions, RunError, host_folder};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything that is packed.
#[derive(Clone)]
pub struct Payload {
    /// Path inside the machine (absolute), content; folders before what is in them.
    pub files: Vec<(String, Content)>,
    /// The program's path inside the machine, and its arguments.
    pub command: Vec<Vec<u8>>,
}

const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Class 64, little-endian.
const ELF_KIND: [u8; 2] = [2, 1];
const ELF_X86_64: [u8; 2] = [62, 0];

fn wrong(text: String) -> RunError {
    RunError::Argument(text)
}

/// `/NAME` for a path that ends in NAME.
fn default_destination(source: &Path) -> Option<String> {
    Some(format!("/{}", source.file_name()?.to_str()?))
}

/// The two halves of `SRC[:DST]`.
fn split(spec: &str) -> Result<(PathBuf, String), RunError> {
    let (source, destination) = match spec.rsplit_once(':') {
        Some((source, destination)) => (source, Some(destination.to_owned())),
        None => (spec, None),
    };
    let source = PathBuf::from(source);
    let destination = destination
        .or_else(|| default_destination(&source))
        .ok_or_else(|| wrong(format!("--file {spec}: SRC should name a file")))?;
    if !destination.starts_with('/') || destination.len() < 2 || destination.ends_with('/') {
        return Err(wrong(format!("--file {spec}: DST should be the absolute path of a file")));
    }
    Ok((source, destination))
}

/// Permissions of a file that `--file` names: a program that is named is meant to run.
const EXECUTABLE: u32 = 0o755;

/// The sizes in an archive have 32 bits, and QEMU loads none that is larger.
const MOST_BYTES: u64 = u32::MAX as u64;

/// Refuses an argument with which the files would have more than `most` bytes.
fn check_size(argument: &str, files: &[(String, Content)], more: u64, most: u64) -> Result<(), RunError> {
    // A header and a name of 4 KiB, at most, and the ends of both.
    let bytes_of =
        |content: &Content| 4608 + if let Content::File { bytes, .. } = content { bytes.len() as u64 } else { 0 };
    let bytes: u64 = files.iter().map(|(_, content)| bytes_of(content)).sum();
    if bytes.saturating_add(more) < most {
        return Ok(());
    }
    Err(wrong(format!("{argument}: the files should have less than 4 GiB, all together")))
}

/// Reads the file that goes beside `files`.
fn read(argument: &str, path: &Path, files: &[(String, Content)]) -> Result<Vec<u8>, RunError> {
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    check_size(argument, files, bytes, MOST_BYTES)?;
    fs::read(path).map_err(|e| wrong(format!("{argument}: should be a readable file: {e}")))
}

/// Whether the bytes can be a program; the kernel looks closer.
fn check_program(name: &str, bytes: &[u8]) -> Result<(), RunError> {
    let is_elf = bytes.len() >= 64 && bytes[..4] == ELF_MAGIC && bytes[4..6] == ELF_KIND && bytes[18..20] == ELF_X86_64;
    if is_elf { Ok(()) } else { Err(wrong(format!("{name}: should be a 64-bit x86-64 ELF program"))) }
}

/// A script names its interpreter, which the kernel then looks for.
fn is_script(bytes: &[u8]) -> bool {
    bytes.starts_with(b"#!")
}

impl Payload {
    /// Reads what the options name, and finds the program.
    pub fn collect(options: &MachineOptions, command: &[OsString]) -> Result<Payload, RunError> {
        let mut files = Vec::new();
        if let Some(root) = &options.root {
            let left_out = host_folder::add(&mut files, root)?;
            check_size(&format!("--root {}", root.display()), &files, 0, MOST_BYTES)?;
            if !left_out.is_empty() {
                eprintln!("softfault: --root {}: left out ({left_out})", root.display());
            }
        }
        let nr_from_root = files.len();
        for spec in &options.files {
            let (source, destination) = split(spec)?;
            if files[nr_from_root..].iter().any(|(path, _)| *path == destination) {
                return Err(wrong(format!("--file {spec}: there should be one file only at {destination}")));
            }
            let content = Content::File { bytes: read(&format!("--file {spec}"), &source, &files)?, mode: EXECUTABLE };
            match files[..nr_from_root].iter_mut().find(|(path, _)| *path == destination) {
                Some((_, of_root)) => *of_root = content,
                None => files.push((destination, content)),
            }
        }
        let program = add_program(&mut files, Path::new(&command[0]))?;
        let mut whole = vec![program.into_bytes()];
        whole.extend(command[1..].iter().map(|a| a.as_bytes().to_vec()));
        Ok(Payload { files, command: whole })
    }
}

/// Returns the content at an absolute path, links followed as a kernel would.
fn resolve<'a>(files: &'a [(String, Content)], path: &Path) -> Option<&'a Content> {
    let mut rest: Vec<OsString> = path.iter().rev().map(OsString::from).collect();
    let mut at = PathBuf::new();
    let mut found = None;
    // As many steps as a path of such links can take, for one that leads in a circle.
    for _ in 0..4096 {
        let Some(name) = rest.pop() else { return found };
        match name.as_bytes() {
            b"/" => at = PathBuf::from("/"),
            b"." => {}
            b".." => _ = at.pop(),
            _ => at.push(&name),
        }
        found = files.iter().find(|(path, _)| Path::new(path) == at).map(|(_, content)| content);
        if let Some(Content::Link(target)) = found {
            at.pop();
            rest.extend(Path::new(OsStr::from_bytes(target)).iter().rev().map(OsString::from));
        }
    }
    None
}

/// Finds the program among the files, or on the host and adds it; gives its path
/// inside the machine.
fn add_program(files: &mut Vec<(String, Content)>, program: &Path) -> Result<String, RunError> {
    let name = program.display().to_string();
    match resolve(files, program) {
        Some(Content::Folder) => return Err(wrong(format!("{name}: should be a program, and is a folder"))),
        Some(Content::File { bytes, .. }) if !is_script(bytes) => return check_program(&name, bytes).map(|()| name),
        Some(_) => return Ok(name),
        None => {}
    }
    if !program.is_file() {
        return Err(wrong(format!("{name}: should be the DST of a --file, in --root, or a program on this host")));
    }
    let inside = match program.to_str() {
        Some(path) if program.is_absolute() => path.to_owned(),
        _ => default_destination(program).ok_or_else(|| wrong(format!("{name}: should be a name in UTF-8")))?,
    };
    if files.iter().any(|(path, _)| *path == inside) {
        return Err(wrong(format!("{name}: a file is at {inside} already; should be called by that path")));
    }
    let bytes = read(&name, program, files)?;
    check_program(&name, &bytes)?;
    files.push((inside.clone(), Content::File { bytes, mode: EXECUTABLE }));
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let at = |spec: &str| split(spec).map(|(s, d)| (s.display().to_string(), d)).ok();
        assert_eq!(at("a/b"), Some(("a/b".into(), "/b".into())));
        assert_eq!(at("/a/b:/c/d"), Some(("/a/b".into(), "/c/d".into())));
        assert_eq!(at("b:c"), None);
        assert_eq!(at("b:/"), None);
        assert_eq!(at("b:/c/"), None);
        assert_eq!(at(".."), None);
    }

    #[test]
    fn files_that_no_archive_holds_are_refused_by_their_argument() {
        let file = |nr_bytes| ("/a".to_string(), Content::File { bytes: vec![0; nr_bytes], mode: 0o755 });
        assert!(check_size("--root x", &[file(1000), file(1000)], 0, 20_000).is_ok());
        let refused = |files: &[_], more| check_size("--file x", files, more, 20_000).map_err(|e| e.to_string());
        let why = "--file x: the files should have less than 4 GiB, all together".to_string();
        assert_eq!(refused(&[file(10_800)], 4592), Err(why.clone()));
        assert_eq!(refused(&[file(10_800)], 4591), Ok(()));
        assert_eq!(refused(&[], u64::MAX), Err(why));
    }

    #[test]
    fn links_are_followed() {
        let link = |to: &str| Content::Link(to.as_bytes().to_vec());
        let file = Content::File { bytes: b"x".to_vec(), mode: 0o755 };
        let at = |path: &str, content: Content| (path.to_string(), content);
        let mut files = vec![at("/bin", link("usr/bin")), at("/usr", Content::Folder), at("/usr/bin/sh", link("dash"))];
        files.extend([at("/usr/bin/dash", file), at("/up", link("../usr")), at("/round", link("/round"))]);
        let is_file = |path: &str| matches!(resolve(&files, Path::new(path)), Some(Content::File { .. }));
        assert!(is_file("/bin/sh") && is_file("/usr/bin/dash") && is_file("/up/./bin/../bin/sh"));
        assert!(!is_file("/bin") && !is_file("/bin/ash") && !is_file("/round") && !is_file("bin/sh"));
        assert!(matches!(resolve(&files, Path::new("/usr")), Some(Content::Folder)));
    }

    #[test]
    fn programs() {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(check_program("x", &elf).is_err());
        elf[18] = 62;
        assert!(check_program("x", &elf).is_ok());
        assert!(check_program("x", &elf[..63]).is_err());
        assert!(check_program("x", b"#!/bin/sh\n").is_err());
    }
}
