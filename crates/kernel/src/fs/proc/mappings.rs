//! Texts about a process's mappings: `maps`, `smaps`, `smaps_rollup`.

use crate::fs::mapped;
use crate::mm::Space;
use crate::process::Process;
use core::fmt::{self, Write};
use softfault::{SmapsEntry, Vma, VmaFlags};

/// One line of `maps`.
struct Line<'a>(&'a Vma);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vma = self.0;
        let has = |flag| vma.flags.contains(flag);
        let letter = |flag, letter| if has(flag) { letter } else { '-' };
        let [r, w, x] = [letter(VmaFlags::READ, 'r'), letter(VmaFlags::WRITE, 'w'), letter(VmaFlags::EXEC, 'x')];
        let shared = if has(VmaFlags::SHARED) { 's' } else { 'p' };
        let (start, end) = (vma.range.start.addr(), vma.range.end.addr());
        let offset = if has(VmaFlags::SHARED) { vma.pgoff * 4096 } else { 0 };
        let file = if has(VmaFlags::SHARED) { mapped::find(vma.object) } else { None };
        let (device, number) = file.as_ref().map_or((0, 0), |name| (name.device, name.inode_number));
        let numbers = format_args!("{shared} {offset:08x} 00:{device:02x} {number}");
        let head = alloc::format!("{start:08x}-{end:08x} {r}{w}{x}{numbers}");
        match file {
            Some(name) => write!(f, "{head:<73}{}", Escaped(&name.path().unwrap_or_default())),
            None if has(VmaFlags::HEAP) => write!(f, "{head:<73}[heap]"),
            None if has(VmaFlags::STACK) => write!(f, "{head:<73}[stack]"),
            None if has(VmaFlags::SHARED) => write!(f, "{head:<73}/dev/zero (deleted)"),
            None => write!(f, "{head} "),
        }
    }
}

/// A path in a line: a newline in it is written as a number.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            let mut lines = chunk.valid().split('\n');
            f.write_str(lines.next().unwrap_or(""))?;
            lines.try_for_each(|line| write!(f, "\\012{line}"))?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_char(char::REPLACEMENT_CHARACTER) }
        })
    }
}

/// A text with a part for each mapping: writes that of the first one at the address or
/// above, and gives where that ends.
pub type Part = fn(&Space, u64, &mut dyn Write) -> Result<Option<u64>, fmt::Error>;

/// `maps`.
pub fn maps(space: &Space, from: u64, out: &mut dyn Write) -> Result<Option<u64>, fmt::Error> {
    let Some(vma) = space.next_vma(from) else { return Ok(None) };
    writeln!(out, "{}", Line(&vma))?;
    Ok(Some(vma.range.end.addr()))
}

/// The numbers of one mapping, or of all, in pages.
#[derive(Default)]
struct Sums {
    size: u64,
    rss: u64,
    shared: u64,
    referenced: u64,
    dirty: u64,
    anonymous: u64,
    locked: u64,
    anon_huge: u64,
}

impl Sums {
    fn add(&mut self, entry: &SmapsEntry) {
        let has = |flag| entry.vma.flags.contains(flag);
        self.size += entry.vma.range.nr_pages();
        self.rss += entry.rss_pages;
        self.shared += entry.shared_pages;
        self.referenced += entry.referenced_pages;
        self.dirty += entry.dirty_pages;
        self.anonymous += if has(VmaFlags::SHARED) { 0 } else { entry.rss_pages };
        self.anon_huge += entry.anon_huge_pages;
        self.locked += if has(VmaFlags::LOCKED) { entry.rss_pages } else { 0 };
    }
    /// Pages that are shared and dirty are not told apart from the others: they
    /// are counted as private where that can be.
    fn write(&self, out: &mut dyn Write, with_size: bool) -> fmt::Result {
        let private = self.rss - self.shared;
        let private_dirty = self.dirty.min(private);
        let shared_dirty = self.dirty - private_dirty;
        if with_size {
            writeln!(out, "Size:           {:>8} kB", self.size * 4)?;
            writeln!(out, "KernelPageSize:        4 kB\nMMUPageSize:           4 kB")?;
        }
        let lines = [
            ("Rss:", self.rss),
            ("Pss:", private + self.shared / 2),
            ("Shared_Clean:", self.shared - shared_dirty),
            ("Shared_Dirty:", shared_dirty),
            ("Private_Clean:", private - private_dirty),
            ("Private_Dirty:", private_dirty),
            ("Referenced:", self.referenced),
            ("Anonymous:", self.anonymous),
            ("LazyFree:", 0),
            ("AnonHugePages:", self.anon_huge),
            ("ShmemPmdMapped:", 0),
            ("FilePmdMapped:", 0),
            ("Shared_Hugetlb:", 0),
            ("Private_Hugetlb:", 0),
            ("Swap:", 0),
            ("SwapPss:", 0),
            ("Locked:", self.locked),
        ];
        lines.iter().try_for_each(|(name, pages)| writeln!(out, "{name:<16}{:>8} kB", pages * 4))
    }
}

fn vm_flags(vma: &Vma, out: &mut dyn Write) -> fmt::Result {
    const NAMES: [(VmaFlags, &str); 14] = [
        (VmaFlags::READ, "rd"),
        (VmaFlags::WRITE, "wr"),
        (VmaFlags::EXEC, "ex"),
        (VmaFlags::SHARED, "sh"),
        (VmaFlags::GROWSDOWN, "gd"),
        (VmaFlags::LOCKED, "lo"),
        (VmaFlags::SEQUENTIAL, "sr"),
        (VmaFlags::RANDOM, "rr"),
        (VmaFlags::DONTFORK, "dc"),
        (VmaFlags::WIPEONFORK, "wf"),
        (VmaFlags::DONTDUMP, "dd"),
        (VmaFlags::NORESERVE, "nr"),
        (VmaFlags::HUGEPAGE, "hg"),
        (VmaFlags::NOHUGEPAGE, "nh"),
    ];
    write!(out, "VmFlags:")?;
    for (_, name) in NAMES.iter().filter(|(flag, _)| vma.flags.contains(*flag)) {
        write!(out, " {name}")?;
    }
    writeln!(out, " mr mw me")
}

/// Whether a fault in it could, as things stand, be given more than a base page.
fn may_be_huge(space: &Space, vma: &Vma) -> bool {
    !space.huge_orders(vma.flags).fitting(vma.range).is_empty()
}

/// `smaps`.
pub fn smaps(space: &Space, from: u64, out: &mut dyn Write) -> Result<Option<u64>, fmt::Error> {
    let Some(entry) = space.next_smaps(from) else { return Ok(None) };
    let mut sums = Sums::default();
    sums.add(&entry);
    writeln!(out, "{}", Line(&entry.vma))?;
    sums.write(out, true)?;
    writeln!(out, "THPeligible:    {:>8}", u8::from(may_be_huge(space, &entry.vma)))?;
    vm_flags(&entry.vma, out)?;
    Ok(Some(entry.vma.range.end.addr()))
}

/// `smaps_rollup`.
pub fn smaps_rollup(process: &Process, _: u32, out: &mut dyn Write) -> fmt::Result {
    let Some(mm) = process.mm() else { return Ok(()) };
    let mut sums = Sums::default();
    let (mut start, mut end) = (u64::MAX, 0);
    mm.space.smaps(&mut |entry| {
        start = start.min(entry.vma.range.start.addr());
        end = entry.vma.range.end.addr();
        sums.add(entry);
    });
    writeln!(out, "{start:08x}-{end:08x} ---p 00000000 00:00 0                          [rollup]")?;
    sums.write(out, false)
}
