//! The files that go into the machine, and which of them is the program.

use super::{RunError, RunOptions};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything that is packed.
pub struct Payload {
    /// Path inside the machine (absolute), content.
    pub files: Vec<(String, Vec<u8>)>,
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

fn read(argument: &str, path: &Path) -> Result<Vec<u8>, RunError> {
    fs::read(path).map_err(|e| wrong(format!("{argument}: should be a readable file: {e}")))
}

/// Whether the bytes can be a program; the kernel looks closer.
fn check_program(name: &str, bytes: &[u8]) -> Result<(), RunError> {
    let is_elf = bytes.len() >= 64 && bytes[..4] == ELF_MAGIC && bytes[4..6] == ELF_KIND && bytes[18..20] == ELF_X86_64;
    if is_elf { Ok(()) } else { Err(wrong(format!("{name}: should be a 64-bit x86-64 ELF program"))) }
}

impl Payload {
    /// Reads the files that the options name.
    pub fn collect(options: &RunOptions) -> Result<Payload, RunError> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for spec in &options.files {
            let (source, destination) = split(spec)?;
            if files.iter().any(|(path, _)| *path == destination) {
                return Err(wrong(format!("--file {spec}: there should be one file only at {destination}")));
            }
            files.push((destination, read(&format!("--file {spec}"), &source)?));
        }
        let program = add_program(&mut files, Path::new(&options.command[0]))?;
        let mut command = vec![program.into_bytes()];
        command.extend(options.command[1..].iter().map(|a| a.as_bytes().to_vec()));
        Ok(Payload { files, command })
    }
}

/// Finds the program among the files, or on the host and adds it; gives its path
/// inside the machine.
fn add_program(files: &mut Vec<(String, Vec<u8>)>, program: &Path) -> Result<String, RunError> {
    let name = program.display().to_string();
    if let Some((path, bytes)) = files.iter().find(|(path, _)| Path::new(path) == program) {
        check_program(&name, bytes)?;
        return Ok(path.clone());
    }
    if !program.is_file() {
        return Err(wrong(format!("{name}: should be the DST of a --file, or a program on this host")));
    }
    let inside = match program.to_str() {
        Some(path) if program.is_absolute() => path.to_owned(),
        _ => default_destination(program).ok_or_else(|| wrong(format!("{name}: should be a name in UTF-8")))?,
    };
    if files.iter().any(|(path, _)| *path == inside) {
        return Err(wrong(format!("{name}: a --file is at {inside} already; should be called by that path")));
    }
    let bytes = read(&name, program)?;
    check_program(&name, &bytes)?;
    files.push((inside.clone(), bytes));
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
