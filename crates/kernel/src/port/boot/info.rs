//! The PVH loader's information: memory, the initial archive, the command line.
//!
//! The structures are the loader's, in memory that nobody has taken yet; they
//! are read once, before the heap and the subsystem get theirs (K7).

use crate::port::arch::phys::{Span, direct_map, image_bounds};
use softfault::{FrameRange, Pfn};
use spin::Once;

const MAGIC: u32 = 0x336e_c578;
const MAX_REGIONS: usize = 16;

/// Ranges of frames, and how many there are.
pub type FreeRegions = ([FrameRange; MAX_REGIONS * 2], usize);
const MAX_CMDLINE: usize = 2048;
const USABLE: u32 = 1;
const PAGE: u64 = 4096;
/// Below lie the firmware's tables and the trampoline.
const LOW_END: u64 = 1 << 20;
/// Memory from here on is not in the direct map, and not used (K1).
const MAPPED_END: u64 = 512 << 30;

#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    nr_modules: u32,
    modules: u64,
    cmdline: u64,
    rsdp: u64,
    memmap: u64,
    nr_memmap: u32,
}

#[repr(C)]
struct Module {
    start: u64,
    bytes: u64,
    cmdline: u64,
    reserved: u64,
}

#[repr(C)]
struct MemmapEntry {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

/// The information, set by [`read`].
pub struct Info {
    spans: [Span; MAX_REGIONS],
    nr_spans: usize,
    /// The initial archive.
    archive: Span,
    cmdline: [u8; MAX_CMDLINE],
    cmdline_bytes: usize,
    /// The kernel heap's memory.
    pub heap: Span,
}

/// Why the kernel cannot start.
#[derive(Debug)]
pub enum BootError {
    /// Not started by a PVH loader.
    Loader,
    /// No memory behind the image for the heap.
    Memory,
    /// Entry number so many of the memory map has a page in common with one before it.
    Overlap(usize),
}

impl core::fmt::Display for BootError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BootError::Loader => f.write_str("wants a PVH loader"),
            BootError::Memory => f.write_str("wants 16 MiB of memory, and some behind the image"),
            BootError::Overlap(i) => {
                write!(f, "memory map: entry {i} should have no page in common with one before it")
            }
        }
    }
}

static INFO: Once<Info> = Once::new();

/// Returns the loader's information; after [`read`].
pub fn get() -> &'static Info {
    INFO.get().expect("read before all else")
}

/// The archive's bytes; they stay where the loader put them.
pub fn archive() -> &'static [u8] {
    let span = get().archive;
    if span.start == span.end {
        return &[];
    }
    // SAFETY: K7: the subsystem and the heap were given other memory; nobody
    // writes it.
    unsafe { core::slice::from_raw_parts(direct_map(span.start), (span.end - span.start) as usize) }
}

/// Reads a value at physical address `at`.
pub fn read(at: u64) -> Result<&'static Info, BootError> {
    // SAFETY: K7: the loader's structure, if it is one; the magic tells.
    let start = unsafe { &*direct_map(at).cast::<StartInfo>() };
    if start.magic != MAGIC || start.version < 1 {
        return Err(BootError::Loader);
    }
    let mut info = Info {
        spans: [Span::default(); MAX_REGIONS],
        nr_spans: 0,
        archive: Span::default(),
        cmdline: [0; MAX_CMDLINE],
        cmdline_bytes: 0,
        heap: Span::default(),
    };
    if start.nr_modules > 0 {
        // SAFETY: K7: the loader's list has at least one entry.
        let module = unsafe { &*direct_map(start.modules).cast::<Module>() };
        info.archive = Span { start: module.start, end: module.start + module.bytes };
    }
    if start.cmdline != 0 {
        info.read_cmdline(start.cmdline);
    }
    for i in 0..start.nr_memmap as usize {
        // SAFETY: K7: entry i of the loader's map.
        let entry = unsafe { &*direct_map(start.memmap).cast::<MemmapEntry>().add(i) };
        if entry.kind == USABLE {
            let span = Span { start: entry.start, end: entry.start.saturating_add(entry.bytes) };
            info.add(span).ok_or(BootError::Overlap(i))?;
        }
    }
    info.place_heap()?;
    Ok(INFO.call_once(|| info))
}

impl Info {
    fn read_cmdline(&mut self, at: u64) {
        for (i, byte) in self.cmdline.iter_mut().enumerate() {
            // SAFETY: K7: up to the zero that ends it.
            *byte = unsafe { direct_map(at + i as u64).read() };
            if *byte == 0 {
                return;
            }
            self.cmdline_bytes = i + 1;
        }
    }
    /// Whole pages of it that the direct map shows; `None` if one is there already.
    fn add(&mut self, span: Span) -> Option<()> {
        let start = span.start.clamp(LOW_END, MAPPED_END).next_multiple_of(PAGE);
        let end = span.end.min(MAPPED_END) & !(PAGE - 1);
        if start < end && self.nr_spans < MAX_REGIONS {
            if self.spans[..self.nr_spans].iter().any(|s| start < s.end && s.start < end) {
                return None;
            }
            self.spans[self.nr_spans] = Span { start, end };
            self.nr_spans += 1;
        }
        Some(())
    }
    /// The heap lies right behind the image: an eighth of memory, 4 to 256 MiB.
    fn place_heap(&mut self) -> Result<(), BootError> {
        let start = image_bounds().end;
        let bytes = (self.memory_bytes() / 8).clamp(4 << 20, 256 << 20) & !(PAGE - 1);
        self.heap = Span { start, end: start + bytes };
        let home = self.spans[..self.nr_spans].iter().find(|s| s.start <= start && start < s.end);
        let Some(home) = home else { return Err(BootError::Memory) };
        let archive_in_the_way = self.archive.start < self.heap.end && self.archive.end > start;
        if home.end < self.heap.end || archive_in_the_way {
            return Err(BootError::Memory);
        }
        Ok(())
    }
    /// Usable memory above 1 MiB.
    pub fn memory_bytes(&self) -> u64 {
        self.spans[..self.nr_spans].iter().map(|s| s.end - s.start).sum()
    }
    /// The command line.
    pub fn cmdline(&self) -> &str {
        core::str::from_utf8(&self.cmdline[..self.cmdline_bytes]).unwrap_or("")
    }
    /// The usable frames that nobody has: what the subsystem may take.
    pub fn free_regions(&self) -> FreeRegions {
        let mut free = [FrameRange { first: Pfn(0), nr_frames: 0 }; MAX_REGIONS * 2];
        let mut nr = 0;
        let mut push = |start: u64, end: u64| {
            let (start, end) = (start.next_multiple_of(PAGE), end & !(PAGE - 1));
            if start < end && nr < free.len() {
                free[nr] = FrameRange { first: Pfn((start / PAGE) as u32), nr_frames: (end - start) / PAGE };
                nr += 1;
            }
        };
        let image_to_heap = Span { start: LOW_END, end: self.heap.end };
        let mut taken = [image_to_heap, self.archive];
        taken.sort_unstable_by_key(|s| s.start);
        for span in &self.spans[..self.nr_spans] {
            let mut start = span.start;
            for hole in taken.iter().filter(|h| h.end > span.start && h.start < span.end) {
                push(start, hole.start.max(start));
                start = start.max(hole.end);
            }
            push(start, span.end.max(start));
        }
        (free, nr)
    }
}
