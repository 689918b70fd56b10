//! The parsers of the reference kernel, for what programs and their authors hand it: ELF programs and loaders, options of a
//! hugetlbfs, numbers of sysfs and sysctl, and the archive.
//!
//! The kernel's own files are modules here, by path, over a hosted machine instead of the kernel's. [`run`] is the fuzz target
//! `parsers`.
//!
//! | first byte, modulo 8 | parsed are the other bytes as |
//! | --- | --- |
//! | 0 | options of a mount of hugetlbfs |
//! | 1 | numbers |
//! | 2 | an archive |
//! | 3 to 7 | the length of a program, 2 bytes, the program, and the loader that it may name |
#![deny(unsafe_code)]

extern crate alloc;

mod linux;
mod port;

use linux::{fs, number, process::elf};
use port::mm;
use softfault::Vm;
use softfault_host::Hosted;
use std::sync::Arc;

/// Parses the bytes.
///
/// # Errors
///
/// An answer of the kernel's that cannot be right.
///
/// # Panics
///
/// If a parser does.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let Some((which, bytes)) = bytes.split_first() else { return Ok(()) };
    mm::alone(|vm| match which % 8 {
        0 => options(bytes),
        1 => numbers(bytes),
        2 => archive(bytes),
        _ => load(vm, bytes),
    })
}

/// Options that are shown parse to the same.
fn options(bytes: &[u8]) -> Result<(), String> {
    let Ok(options) = fs::options::Options::parse(bytes, [0, 0]) else { return Ok(()) };
    let shown = options.to_string();
    match fs::options::Options::parse(shown.trim_start_matches(',').as_bytes(), [0, 0]).map(|again| again.to_string()) {
        Ok(again) if again == shown => Ok(()),
        again => Err(format!("{shown} is parsed to {again:?}")),
    }
}

fn numbers(bytes: &[u8]) -> Result<(), String> {
    _ = (number::of_sysfs(bytes), number::size(bytes));
    match number::of_sysctl(bytes) {
        Ok((_, len)) if len == 0 || len > bytes.len() => Err(format!("a number takes {len} of {} bytes", bytes.len())),
        _ => Ok(()),
    }
}

/// The kernel's view of an archive: no entry has bytes that the archive has not.
fn archive(bytes: &[u8]) -> Result<(), String> {
    for entry in cpio_reader::iter_files(bytes) {
        let name = entry.name().trim_start_matches("./").trim_start_matches('/');
        if name.len() + entry.file().len() > bytes.len() {
            return Err(format!("{name}: {} bytes of {}", entry.file().len(), bytes.len()));
        }
    }
    Ok(())
}

/// Loads a program into a new address space; everything that it took is free again afterwards.
fn load(vm: &'static Vm<Hosted>, bytes: &[u8]) -> Result<(), String> {
    let Some((&[low, high], rest)) = bytes.split_first_chunk::<2>() else { return Ok(()) };
    let (program, loader) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let nr_free = vm.vmstat().nr_free_pages;
    let loaded = {
        let space = vm.new_space().map_err(|error| error.to_string())?;
        elf::load(&space, &fs::Program(Arc::from(program)), &fs::Place(Arc::from(loader)))
    };
    if vm.vmstat().nr_free_pages != nr_free {
        return Err(format!("{nr_free} frames were free, and {} are", vm.vmstat().nr_free_pages));
    }
    match loaded {
        Ok(loaded) if loaded.start >= mm::USER_END => Err(format!("the program starts at {:#x}", loaded.start)),
        Ok(loaded) if loaded.entry >= mm::USER_END => Err(format!("the program's entry is {:#x}", loaded.entry)),
        Err(error) if error.to_string().is_empty() || error.errno().0 <= 0 => Err(format!("{error:?} has no name")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
