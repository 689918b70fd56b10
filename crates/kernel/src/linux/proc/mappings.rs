//! Texts about a process's mappings: `maps`, `smaps`, `smaps_rollup`.

use crate::linux::fs::inode::names;
use crate::linux::fs::mapped;
use crate::linux::process::Process;
use crate::linux::shm;
use crate::port::mm::Space;
use core::fmt::{self, Write};
use softfault::{ObjectId, Order, SmapsEntry, Vma, VmaFlags};

/// One line of `maps`: a mapping, and the order of its pages.
struct Line<'a>(&'a Vma, Order);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vma = self.0;
        let has = |flag| vma.flags.contains(flag);
        let letter = |flag, letter| if has(flag) { letter } else { '-' };
        let [r, w, x] = [letter(VmaFlags::READ, 'r'), letter(VmaFlags::WRITE, 'w'), letter(VmaFlags::EXEC, 'x')];
        let shared = if has(VmaFlags::SHARED) { 's' } else { 'p' };
        let (start, end) = (vma.range.start.addr(), vma.range.end.addr());
        let offset = vma.pgoff << 12;
        let is_of_file = vma.object != ObjectId::NONE || has(VmaFlags::FILE);
        let file = if is_of_file { names::find(vma.object) } else { None };
        let (device, number) = file.as_ref().map_or((0, 0), |name| (name.device, name.inode_number));
        let mut head = Head::default();
        write!(head, "{start:08x}-{end:08x} {r}{w}{x}{shared} {offset:08x} 00:{device:02x} {number} ")?;
        let named = |f: &mut fmt::Formatter<'_>, name| f.write_str(head.padded()).and_then(|()| f.write_str(name));
        match file {
            Some(name) => {
                f.write_str(head.padded())?;
                write!(f, "{}", Escaped(&mapped::path(&name).unwrap_or_default()))
            }
            None if has(VmaFlags::HEAP) => named(f, "[heap]"),
            None if has(VmaFlags::STACK) => named(f, "[stack]"),
            None if self.1 != Order::BASE => named(f, "/anon_hugepage (deleted)"),
            None if has(VmaFlags::SHARED) => named(f, "/dev/zero (deleted)"),
            None => f.write_str(head.text()),
        }
    }
}

/// A line up to the name.
struct Head {
    bytes: [u8; Head::MAX],
    len: usize,
}

impl Default for Head {
    fn default() -> Head {
        Head { bytes: [b' '; Head::MAX], len: 0 }
    }
}

impl Head {
    /// Where a name begins.
    const NAME_AT: usize = 73;
    /// Four numbers of 16 digits, one of 20, and what is between them.
    const MAX: usize = 112;

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
    fn padded(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len.max(Head::NAME_AT)]).unwrap_or("")
    }
}

impl Write for Head {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
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
    let Some((vma, page_order)) = space.next_mapping(from) else { return Ok(None) };
    writeln!(out, "{}", Line(&vma, page_order))?;
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
    /// Of pools: those that are mapped elsewhere, too, and the others. They are no part of the numbers above.
    hugetlb: [u64; 2],
    /// Base pages in a page of one mapping.
    page_pages: u64,
}

impl Sums {
    fn add(&mut self, entry: &SmapsEntry) {
        let has = |flag| entry.vma.flags.contains(flag);
        self.size += entry.vma.range.nr_pages();
        self.page_pages = entry.page_order.nr_pages();
        if entry.page_order != Order::BASE {
            self.hugetlb[0] += entry.shared_pages;
            self.hugetlb[1] += entry.rss_pages - entry.shared_pages;
            return;
        }
        self.rss += entry.rss_pages;
        self.shared += entry.shared_pages;
        self.referenced += entry.referenced_pages;
        self.dirty += entry.dirty_pages;
        self.anonymous += entry.anon_pages;
        self.anon_huge += entry.anon_huge_pages;
        self.locked += if has(VmaFlags::LOCKED) { entry.rss_pages } else { 0 };
    }
    /// Pages that are shared and dirty are not told apart from the others: they
    /// are counted as private where that can be.
    fn write(&self, out: &mut dyn Write, with_size: bool) -> fmt::Result {
        let private = self.rss - self.shared;
        let private_dirty = self.dirty.min(private);
        let shared_dirty = self.dirty - private_dirty;
        let mut lines = Lines::default();
        if with_size {
            lines.kib("Size:", self.size * 4);
            lines.kib("KernelPageSize:", self.page_pages * 4);
            // A page of a pool has one entry.
            lines.kib("MMUPageSize:", self.page_pages * 4);
        }
        let numbers = [
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
            ("Shared_Hugetlb:", self.hugetlb[0]),
            ("Private_Hugetlb:", self.hugetlb[1]),
            ("Swap:", 0),
            ("SwapPss:", 0),
            ("Locked:", self.locked),
        ];
        numbers.iter().for_each(|(name, pages)| lines.kib(name, pages * 4));
        out.write_str(lines.text())
    }
}

/// Lines with a name and a number each. A report of many mappings is little else, so that
/// they are put together by hand and written at once: `write!` costs three times as much,
/// for it pads by single letters.
struct Lines {
    bytes: [u8; Lines::MAX],
    len: usize,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { bytes: [b' '; Lines::MAX], len: 0 }
    }
}

impl Lines {
    const NAME_BYTES: usize = 16;
    /// Least width of a number; the largest has 20 digits.
    const WIDTH: usize = 8;
    const NR_LINES: usize = 20;
    const MAX: usize = Lines::NR_LINES * (Lines::NAME_BYTES + 20 + 4);

    fn put(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }
    /// `NAME:     NUMBER kB`.
    fn kib(&mut self, name: &str, kib: u64) {
        let end = self.len + Lines::NAME_BYTES;
        self.put(name.as_bytes());
        self.len = end;
        let mut digits = [b' '; 20];
        let (mut at, mut rest) = (digits.len(), kib);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.put(&digits[at.min(digits.len() - Lines::WIDTH)..]);
        self.put(b" kB\n");
    }
    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

fn vm_flags(entry: &SmapsEntry, out: &mut dyn Write) -> fmt::Result {
    const NAMES: [(VmaFlags, &str); 14] = [
        (VmaFlags::READ, " rd"),
        (VmaFlags::WRITE, " wr"),
        (VmaFlags::EXEC, " ex"),
        (VmaFlags::SHARED, " sh"),
        (VmaFlags::GROWSDOWN, " gd"),
        (VmaFlags::LOCKED, " lo"),
        (VmaFlags::SEQUENTIAL, " sr"),
        (VmaFlags::RANDOM, " rr"),
        (VmaFlags::DONTFORK, " dc"),
        (VmaFlags::WIPEONFORK, " wf"),
        (VmaFlags::DONTDUMP, " dd"),
        (VmaFlags::NORESERVE, " nr"),
        (VmaFlags::HUGEPAGE, " hg"),
        (VmaFlags::NOHUGEPAGE, " nh"),
    ];
    let mut flags = entry.vma.flags;
    if entry.page_order != Order::BASE && shm::of_object(entry.vma.object).is_some() {
        // The segment reserves, or does not: no mapping of it does, and Linux shows that of none.
        flags.set(VmaFlags::NORESERVE, false);
    }
    out.write_str("VmFlags:")?;
    for (_, name) in NAMES.iter().filter(|(flag, _)| flags.contains(*flag)) {
        out.write_str(name)?;
    }
    if entry.page_order != Order::BASE {
        out.write_str(" ht")?;
    }
    out.write_str(" mr mw me\n")
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
    writeln!(out, "{}", Line(&entry.vma, entry.page_order))?;
    sums.write(out, true)?;
    let may_be_huge = may_be_huge(space, &entry.vma);
    out.write_str(if may_be_huge { "THPeligible:           1\n" } else { "THPeligible:           0\n" })?;
    vm_flags(&entry, out)?;
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
