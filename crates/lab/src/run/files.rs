//! The files that go into the machine, and which of them is the program.

use super::content::{About, Content, Entry};
use super::room::{Room, read_at_most};
use super::{MachineOptions, RunError, host_folder};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything that is packed.
#[derive(Clone)]
pub struct Payload {
    /// Folders before what is in them.
    pub files: Vec<Entry>,
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

/// Reads a file that an argument names. It belongs to root, and has its time on the host.
fn read(argument: &str, path: &Path, room: &mut Room) -> Result<(About, Vec<u8>), RunError> {
    let unreadable = |e| wrong(format!("{argument}: should be a readable file: {e}"));
    let host = fs::metadata(path).map_err(unreadable)?;
    room.clone().take(argument, host.len())?;
    let bytes = read_at_most(path, room.most_bytes()).map_err(unreadable)?;
    room.take(argument, bytes.len() as u64)?;
    Ok((About::made(EXECUTABLE, About::of(&host).modified_s), bytes))
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
        let (mut files, mut room) = (Vec::new(), Room::of_archive());
        if let Some(root) = &options.root {
            for note in host_folder::add(&mut files, root, &mut room)? {
                eprintln!("softfault: --root {}: {note}", root.display());
            }
        }
        let nr_from_root = files.len();
        for spec in &options.files {
            let (source, destination) = split(spec)?;
            if files[nr_from_root..].iter().any(|entry| entry.path == destination) {
                return Err(wrong(format!("--file {spec}: there should be one file only at {destination}")));
            }
            let (about, bytes) = read(&format!("--file {spec}"), &source, &mut room)?;
            let entry = Entry { path: destination, about, content: Content::File(bytes) };
            match files[..nr_from_root].iter_mut().find(|of_root| of_root.path == entry.path) {
                Some(of_root) => *of_root = entry,
                None => files.push(entry),
            }
        }
        let program = add_program(&mut files, Path::new(&command[0]), &mut room)?;
        let mut whole = vec![program.into_bytes()];
        whole.extend(command[1..].iter().map(|a| a.as_bytes().to_vec()));
        Ok(Payload { files, command: whole })
    }
}

/// Returns the content at an absolute path, links followed as a kernel would.
fn resolve<'a>(files: &'a [Entry], path: &Path) -> Option<&'a Content> {
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
        found = files.iter().find(|entry| Path::new(&entry.path) == at).map(|entry| &entry.content);
        if let Some(Content::Link(target)) = found {
            at.pop();
            rest.extend(Path::new(OsStr::from_bytes(target)).iter().rev().map(OsString::from));
        }
    }
    None
}

/// Finds the program among the files, or on the host and adds it; gives its path
/// inside the machine.
fn add_program(files: &mut Vec<Entry>, program: &Path, room: &mut Room) -> Result<String, RunError> {
    let name = program.display().to_string();
    match resolve(files, program) {
        Some(Content::Folder) => return Err(wrong(format!("{name}: should be a program, and is a folder"))),
        Some(Content::File(bytes)) if !is_script(bytes) => return check_program(&name, bytes).map(|()| name),
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
    if files.iter().any(|entry| entry.path == inside) {
        return Err(wrong(format!("{name}: a file is at {inside} already; should be called by that path")));
    }
    let (about, bytes) = read(&name, program, room)?;
    check_program(&name, &bytes)?;
    files.push(Entry { path: inside.clone(), about, content: Content::File(bytes) });
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
    fn links_are_followed() {
        let at = |path: &str, content: Content| Entry { path: path.into(), about: About::made(0, 0), content };
        let link = |path: &str, to: &str| at(path, Content::Link(to.as_bytes().to_vec()));
        let mut files = vec![link("/bin", "usr/bin"), at("/usr", Content::Folder), link("/usr/bin/sh", "dash")];
        let file = at("/usr/bin/dash", Content::File(b"x".to_vec()));
        files.extend([file, link("/up", "../usr"), link("/round", "/round")]);
        let is_file = |path: &str| matches!(resolve(&files, Path::new(path)), Some(Content::File(_)));
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
