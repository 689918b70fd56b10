//! Loading a static ELF program, at its own addresses or (static-pie) at ours.

use crate::log;
use crate::mm::{Space, USER_END};
use core::fmt;
use elf::ElfBytes;
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE};

const PAGE: u64 = 4096;
/// Where a position-independent program goes: two thirds up, as on Linux.
const PIE_BASE: u64 = 0x5555_5555_4000;

/// Why a file is no program that can run here.
#[derive(Debug)]
pub enum LoadError {
    /// Not an ELF file for this kind of machine.
    Format,
    /// Wants a dynamic loader.
    Dynamic,
    /// A segment lies where no program can have it.
    Address,
    /// No memory for it.
    Memory,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadError::Format => "is not a 64-bit x86-64 ELF program",
            LoadError::Dynamic => "is linked dynamically; it has to be linked with -static",
            LoadError::Address => "has a segment outside the program's half of the address space",
            LoadError::Memory => "does not fit into the machine's memory",
        })
    }
}

/// A program in memory, as its first instructions need to know it.
pub struct Loaded {
    /// First instruction.
    pub entry: u64,
    /// Where its program headers are, in its memory.
    pub headers: u64,
    /// Size of one.
    pub header_bytes: u64,
    /// How many.
    pub nr_headers: u64,
}

/// Maps and fills the segments of `file`, and says where the heap begins.
pub fn load(space: &Space, file: &[u8]) -> Result<Loaded, LoadError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| LoadError::Format)?;
    let header = elf.ehdr;
    if header.e_machine != EM_X86_64 || header.class != elf::file::Class::ELF64 {
        return Err(LoadError::Format);
    }
    let base = match header.e_type {
        ET_EXEC => 0,
        ET_DYN => PIE_BASE,
        _ => return Err(LoadError::Format),
    };
    let segments = elf.segments().ok_or(LoadError::Format)?;
    if segments.iter().any(|s| s.p_type == PT_INTERP) {
        return Err(LoadError::Dynamic);
    }
    let (mut end, mut headers) = (0, None);
    for segment in segments.iter().filter(|s| s.p_type == PT_LOAD && s.p_memsz > 0) {
        end = end.max(map_segment(space, file, &segment, base)?);
        let offset = header.e_phoff.wrapping_sub(segment.p_offset);
        if offset < segment.p_filesz {
            headers = headers.or(Some(base + segment.p_vaddr + offset));
        }
    }
    if let Some(own) = segments.iter().find(|s| s.p_type == PT_PHDR) {
        headers = Some(base.wrapping_add(own.p_vaddr));
    }
    let entry = base.wrapping_add(header.e_entry);
    if end == 0 || entry >= USER_END {
        return Err(LoadError::Address);
    }
    space.set_brk(end.next_multiple_of(PAGE));
    Ok(Loaded {
        entry,
        headers: headers.unwrap_or(0),
        header_bytes: u64::from(header.e_phentsize),
        nr_headers: u64::from(header.e_phnum),
    })
}

fn protection(flags: u32) -> u64 {
    let bit = |flag, prot: u32| if flags & flag != 0 { u64::from(prot) } else { 0 };
    bit(PF_R, PROT_READ) | bit(PF_W, PROT_WRITE) | bit(PF_X, PROT_EXEC)
}

/// One segment: mapped with the rights that it is to have, filled past them.
/// Gives its last address + 1.
fn map_segment(space: &Space, file: &[u8], segment: &ProgramHeader, base: u64) -> Result<u64, LoadError> {
    let start = base.checked_add(segment.p_vaddr).ok_or(LoadError::Address)?;
    let end = start.checked_add(segment.p_memsz).filter(|e| *e <= USER_END).ok_or(LoadError::Address)?;
    let file_end = segment.p_offset.checked_add(segment.p_filesz).ok_or(LoadError::Format)?;
    let bytes = file.get(segment.p_offset as usize..file_end as usize).ok_or(LoadError::Format)?;
    if segment.p_filesz > segment.p_memsz {
        return Err(LoadError::Format);
    }
    let first = start & !(PAGE - 1);
    let flags = u64::from(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    space.mmap(first, end - first, protection(segment.p_flags), flags).map_err(|error| {
        log!("segment {start:#x}..{end:#x}: {error}");
        LoadError::Address
    })?;
    space.write_forced(start, bytes).map_err(|_| LoadError::Memory)?;
    Ok(end)
}
