//! Loading an ELF program, at its own addresses or (position-independent) at
//! ours, and the loader that it may name.

use crate::linux::errno::Errno;
use crate::linux::fs;
use crate::port::console::log;
use crate::port::mm::{Space, USER_END, copy_out_forced};
use alloc::vec::Vec;
use core::fmt;
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};
use softfault::{MapFlags, ObjectPart, Prot};

const PAGE: u64 = 4096;
/// Where a position-independent program goes: two thirds up, as on Linux.
const PIE_BASE: u64 = 0x5555_5555_4000;
const IDENT_BYTES: usize = 16;
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
/// Program headers, together.
const MAX_HEADERS_BYTES: usize = 65_536;
const MAX_PATH: u64 = 4096;

/// Why a file is no program that can run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadError {
    /// Not an ELF file for this kind of machine, or one that contradicts itself.
    Format,
    /// The loader that it names is not there, or is none.
    Loader(Errno),
    /// A segment, or the first instruction, lies where no program can have it.
    Address,
    /// No memory for it.
    Memory,
    /// The file cannot be read.
    Read(Errno),
}

impl LoadError {
    /// As execve(2) gives it.
    pub fn errno(self) -> Errno {
        match self {
            LoadError::Format => Errno::ENOEXEC,
            LoadError::Address | LoadError::Memory => Errno::ENOMEM,
            LoadError::Loader(errno) | LoadError::Read(errno) => errno,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadError::Format => "is not a 64-bit x86-64 ELF program",
            LoadError::Loader(_) => "is linked dynamically, and its loader is not in the archive",
            LoadError::Address => {
                "has a segment or its first instruction outside the program's half of the address space"
            }
            LoadError::Memory => "does not fit into the machine's memory",
            LoadError::Read(_) => "cannot be read",
        })
    }
}

/// A program in memory, as its first instructions need to know it.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// Where the thread begins: the loader's first instruction if there is one.
    pub start: u64,
    /// First instruction of the program itself.
    pub entry: u64,
    /// Where its program headers are, in its memory.
    pub headers: u64,
    /// Size of one.
    pub header_bytes: u64,
    /// How many.
    pub nr_headers: u64,
    /// Where the loader lies; 0 without one.
    pub loader_base: u64,
}

/// A file's header.
struct Head {
    header: FileHeader<LittleEndian>,
    segments: Vec<ProgramHeader>,
}

fn read_exactly(program: &fs::Program, at: u64, into: &mut [u8]) -> Result<(), LoadError> {
    match program.read_at(at, into) {
        Ok(len) if len == into.len() => Ok(()),
        Ok(_) => Err(LoadError::Format),
        Err(errno) => Err(LoadError::Read(errno)),
    }
}

fn read_head(program: &fs::Program) -> Result<Head, LoadError> {
    let format = |_| LoadError::Format;
    let mut bytes = [0u8; HEADER_BYTES];
    read_exactly(program, 0, &mut bytes)?;
    let ident = parse_ident::<LittleEndian>(&bytes[..IDENT_BYTES]).map_err(format)?;
    if ident.1 != Class::ELF64 {
        return Err(LoadError::Format);
    }
    let header = FileHeader::parse_tail(ident, &bytes[IDENT_BYTES..]).map_err(format)?;
    let headers_bytes = usize::from(header.e_phnum) * SEGMENT_BYTES;
    let fits = header.e_machine == EM_X86_64
        && usize::from(header.e_phentsize) == SEGMENT_BYTES
        && (1..=MAX_HEADERS_BYTES).contains(&headers_bytes);
    if !fits {
        return Err(LoadError::Format);
    }
    let mut table = alloc::vec![0u8; headers_bytes];
    read_exactly(program, header.e_phoff, &mut table)?;
    let segments = SegmentTable::new(LittleEndian, Class::ELF64, &table).iter().collect();
    Ok(Head { header, segments })
}

impl Head {
    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(|s| s.p_type == PT_LOAD && s.p_memsz > 0)
    }
    /// Addresses from the first to the last segment, rounded to pages.
    fn span(&self) -> Result<(u64, u64), LoadError> {
        let start = self.loads().map(|s| s.p_vaddr & !(PAGE - 1)).min().ok_or(LoadError::Format)?;
        let end = |s: &ProgramHeader| s.p_vaddr.checked_add(s.p_memsz).filter(|e| *e <= USER_END);
        let ends: Option<Vec<u64>> = self.loads().map(end).collect();
        let end = ends.and_then(|ends| ends.into_iter().max()).ok_or(LoadError::Address)?;
        Ok((start, end.next_multiple_of(PAGE)))
    }
    /// Maps and fills the segments, `base` above the addresses they name.
    fn map(&self, space: &Space, program: &fs::Program, base: u64) -> Result<(), LoadError> {
        self.loads().try_for_each(|segment| map_segment(space, program, segment, base))
    }
    /// Where the program headers come to lie, if any segment has them.
    fn headers_at(&self, base: u64) -> u64 {
        let own = self.segments.iter().find(|s| s.p_type == PT_PHDR).map(|s| s.p_vaddr);
        let inside = |s: &ProgramHeader| {
            let offset = self.header.e_phoff.wrapping_sub(s.p_offset);
            (offset < s.p_filesz).then(|| s.p_vaddr.wrapping_add(offset))
        };
        own.or_else(|| self.loads().find_map(inside)).map_or(0, |at| base.wrapping_add(at))
    }
    /// Path of the loader that the program names.
    fn loader(&self, program: &fs::Program) -> Result<Option<Vec<u8>>, LoadError> {
        let Some(segment) = self.segments.iter().find(|s| s.p_type == PT_INTERP) else { return Ok(None) };
        if !(2..=MAX_PATH).contains(&segment.p_filesz) {
            return Err(LoadError::Format);
        }
        let mut path = alloc::vec![0u8; segment.p_filesz as usize];
        read_exactly(program, segment.p_offset, &mut path)?;
        if path.pop() != Some(0) || path.contains(&0) {
            return Err(LoadError::Format);
        }
        Ok(Some(path))
    }
}

/// Loads `program`, the loader that it names too, and says where the heap begins.
pub fn load(space: &Space, program: &fs::Program, place: &fs::Place) -> Result<Loaded, LoadError> {
    let head = read_head(program)?;
    let base = match head.header.e_type {
        ET_EXEC => 0,
        ET_DYN => PIE_BASE,
        _ => return Err(LoadError::Format),
    };
    let loader = head.loader(program)?;
    let (_, end) = head.span()?;
    let entry = base + head.header.e_entry.min(USER_END);
    if base + end > USER_END || entry >= USER_END {
        return Err(LoadError::Address);
    }
    head.map(space, program, base)?;
    space.set_brk(base + end);
    let (start, loader_base) = match loader {
        Some(path) => load_loader(space, place, &path)?,
        None => (entry, 0),
    };
    Ok(Loaded {
        start,
        entry,
        headers: head.headers_at(base),
        header_bytes: SEGMENT_BYTES as u64,
        nr_headers: head.header.e_phnum.into(),
        loader_base,
    })
}

/// Loads the loader where the address space has room. Returns its first instruction, and
/// where it lies. Linux refuses a first instruction outside the program's half, too.
fn load_loader(space: &Space, place: &fs::Place, path: &[u8]) -> Result<(u64, u64), LoadError> {
    let program = fs::open_program(place, path).map_err(LoadError::Loader)?;
    let head = read_head(&program).map_err(|_| LoadError::Loader(Errno::ELIBBAD))?;
    if head.header.e_type != ET_DYN {
        return Err(LoadError::Loader(Errno::ELIBBAD));
    }
    let (start, end) = head.span()?;
    let room = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let at = space.mmap(0, end - start, Prot::NONE, room).map_err(|_| LoadError::Memory)?;
    let base = at.wrapping_sub(start);
    let first = base.wrapping_add(head.header.e_entry);
    if first >= USER_END {
        return Err(LoadError::Address);
    }
    head.map(space, &program, base)?;
    Ok((first, base))
}

fn protection(flags: u32) -> Prot {
    let bit = |flag, prot| if flags & flag != 0 { prot } else { Prot::NONE };
    bit(PF_R, Prot::READ) | bit(PF_W, Prot::WRITE) | bit(PF_X, Prot::EXEC)
}

/// Maps one segment. The part that the program cannot write is the file itself, mapped;
/// the rest is memory of its own, filled past the rights that it is to have.
fn map_segment(space: &Space, program: &fs::Program, segment: &ProgramHeader, base: u64) -> Result<(), LoadError> {
    let start = base.wrapping_add(segment.p_vaddr);
    let end = start.checked_add(segment.p_memsz).filter(|e| *e <= USER_END).ok_or(LoadError::Address)?;
    let file_end = segment.p_offset.checked_add(segment.p_filesz).ok_or(LoadError::Format)?;
    if segment.p_filesz > segment.p_memsz {
        return Err(LoadError::Format);
    }
    let is_file = segment.p_flags & PF_W == 0
        && segment.p_filesz == segment.p_memsz
        && segment.p_offset % PAGE == start % PAGE
        && file_end <= program.inode().size_bytes();
    let first = start & !(PAGE - 1);
    let (bytes, prot) = (end - first, protection(segment.p_flags));
    if is_file {
        return map_file(space, program, first, bytes, prot, segment.p_offset & !(PAGE - 1));
    }
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    space.mmap(first, bytes, prot, flags).map_err(|error| {
        log!("segment {start:#x}..{end:#x}: {error}");
        LoadError::Address
    })?;
    fill(space, program, start, segment)
}

/// All who run the program share these pages; nobody can make them writable.
fn map_file(
    space: &Space,
    program: &fs::Program,
    first: u64,
    bytes: u64,
    prot: Prot,
    offset_bytes: u64,
) -> Result<(), LoadError> {
    let object = program.object().map_err(|_| LoadError::Memory)?;
    let part = ObjectPart::new(&object).with_offset_bytes(offset_bytes).with_may_write(false);
    space.mmap_object(first, bytes, prot, MapFlags::SHARED | MapFlags::FIXED, part).map_err(|error| {
        log!("segment at {first:#x}: {error}");
        LoadError::Address
    })?;
    Ok(())
}

/// Copies the segment's bytes, a page at a time.
fn fill(space: &Space, program: &fs::Program, start: u64, segment: &ProgramHeader) -> Result<(), LoadError> {
    let mut page = [0u8; PAGE as usize];
    let mut done = 0;
    while done < segment.p_filesz {
        let room = PAGE - (start + done) % PAGE;
        let part = &mut page[..room.min(segment.p_filesz - done) as usize];
        read_exactly(program, segment.p_offset + done, part)?;
        copy_out_forced(space, start + done, part).map_err(|_| LoadError::Memory)?;
        done += part.len() as u64;
    }
    Ok(())
}
