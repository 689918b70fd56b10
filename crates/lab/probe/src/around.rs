//! The program of 2014 on a system whose window of fault-around can be set: a file in memory is read, and the reads
//! are counted in instructions.
//!
//! Word 0 of page n of the file is n + 1, all others are 0.

use crate::Args;
use crate::console::{Console, Line};
use crate::count::counted;
use crate::sys::{self, PAGE};
use core::ffi::CStr;
use core::fmt::Write;
use linux_raw_sys::general::{O_RDONLY, O_RDWR};

const DEBUGFS: &CStr = c"/dbg";
const KNOB: &CStr = c"/dbg/fault_around_bytes";
const PAGEMAP: &CStr = c"/proc/self/pagemap";
/// Pages that one leaf table maps.
const TABLE_PAGES: usize = 512;
const PAGE_WORDS: usize = PAGE / 8;

/// The file to read, and how often.
struct Load {
    file: isize,
    nr_pages: usize,
    is_sparse: bool,
    nr_rounds: usize,
}

/// Counts of a window.
#[derive(Default)]
struct Sums {
    first: u64,
    second: u64,
    minor_faults: usize,
    major_faults: usize,
    nr_mapped: usize,
}

/// `PATTERN PAGES ROUNDS ORDER...`: a record for each order.
pub fn run(console: &Console, marker: &CStr, args: Args) {
    if let Err(why) = windows(console, marker, args) {
        console.complain(format_args!("{why}"));
    }
}

fn number(args: Args, i: usize) -> Result<usize, &'static str> {
    args.get(i).to_str().ok().and_then(|text| text.parse().ok()).ok_or("around: should be numbers")
}

fn windows(console: &Console, marker: &CStr, args: Args) -> Result<(), &'static str> {
    let (nr_pages, nr_rounds) = (number(args, 1)?, number(args, 2)?);
    let file = sys::file_in_memory(c"around", nr_pages * PAGE).ok_or("memfd_create was refused")?;
    let load = Load { file, nr_pages, is_sparse: args.get(0) == c"sparse", nr_rounds };
    load.fill()?;
    sys::mount(c"debugfs", DEBUGFS);
    // The first one finds caches of the kernel that are cold, and does not count.
    set_window(number(args, 3)?)?;
    load.read()?;
    for i in 3..args.len() {
        let order = number(args, i)?;
        set_window(order)?;
        let sums = load.read()?;
        console.record(
            marker,
            format_args!(
                "{{\"order\":{order},\"first\":{},\"second\":{},\"minor_faults\":{},\"major_faults\":{},\"nr_mapped\":{}}}",
                sums.first, sums.second, sums.minor_faults, sums.major_faults, sums.nr_mapped
            ),
        );
    }
    Ok(())
}

/// Sets it, and sees that it is set.
fn set_window(order: usize) -> Result<(), &'static str> {
    let knob = sys::open(KNOB, O_RDWR);
    let (mut line, mut text) = (Line::default(), [0; 32]);
    let _ = writeln!(line, "{}", PAGE << order);
    sys::write(knob, line.bytes());
    sys::rewind(knob);
    let len = sys::read(knob, &mut text);
    sys::close(knob);
    if &text[..len] == line.bytes() { Ok(()) } else { Err("fault_around_bytes cannot be set") }
}

impl Load {
    fn fill(&self) -> Result<(), &'static str> {
        let base = sys::map_file(self.file, None, self.nr_pages * PAGE).ok_or("mmap was refused")?;
        for page in 0..self.nr_pages {
            // SAFETY: L2: inside the mapping, which one thread has.
            unsafe { base.add(page * PAGE).cast::<u64>().write_volatile(page as u64 + 1) };
        }
        // SAFETY: L2: nobody else knows of it.
        unsafe { sys::unmap(base, self.nr_pages * PAGE) };
        Ok(())
    }

    /// All rounds, each in a mapping of its own that begins with a leaf table.
    fn read(&self) -> Result<Sums, &'static str> {
        let (mut sums, table_bytes) = (Sums::default(), TABLE_PAGES * PAGE);
        let len = self.nr_pages * PAGE;
        for _ in 0..self.nr_rounds {
            let reserved = sys::map(len + table_bytes).ok_or("mmap was refused")?;
            let aligned = reserved.map_addr(|addr| addr.next_multiple_of(table_bytes));
            let base = sys::map_file(self.file, Some(aligned), len).ok_or("mmap was refused")?;
            let (minor, major) = sys::nr_faults();
            let mut found = [0; 2];
            sums.first += counted(|| found[0] = self.pass(base));
            let (minor_now, major_now) = sys::nr_faults();
            sums.minor_faults += minor_now - minor;
            sums.major_faults += major_now - major;
            sums.second += counted(|| found[1] = self.pass(base));
            sums.nr_mapped += nr_present(base.addr() / PAGE, self.nr_pages);
            // SAFETY: L2: what was reserved, of which nobody else knows.
            unsafe { sys::unmap(reserved, len + table_bytes) };
            if found != [self.expected(); 2] {
                return Err("the words do not add up to what the file has");
            }
        }
        Ok(sums)
    }

    /// The pages that are read.
    fn pages(&self) -> impl Iterator<Item = usize> {
        (0..self.nr_pages).step_by(if self.is_sparse { TABLE_PAGES } else { 1 })
    }

    fn expected(&self) -> u64 {
        self.pages().map(|page| page as u64 + 1).sum()
    }

    /// The sum of the words: all of each page, or the first one of each table's first page.
    #[inline(never)]
    fn pass(&self, base: *mut u8) -> u64 {
        let nr_words = if self.is_sparse { 1 } else { PAGE_WORDS };
        let sum_of = |page: usize| -> u64 {
            // SAFETY: L2: inside the mapping.
            let word = |i: usize| unsafe { base.add(page * PAGE).cast::<u64>().add(i).read_volatile() };
            (0..nr_words).map(word).sum()
        };
        self.pages().map(sum_of).sum()
    }
}

/// How many of these pages of this process are mapped.
fn nr_present(first: usize, nr_pages: usize) -> usize {
    let pagemap = sys::open(PAGEMAP, O_RDONLY);
    let (mut buffer, mut nr_present) = ([0; PAGE], 0);
    for page in (0..nr_pages).step_by(PAGE_WORDS) {
        let len = sys::read_at(pagemap, &mut buffer, (first + page) * 8);
        let words = buffer[..len].as_chunks::<8>().0.iter().take(nr_pages - page);
        // The highest bit: the page is there.
        nr_present += words.filter(|word| u64::from_ne_bytes(**word) >> 63 == 1).count();
    }
    sys::close(pagemap);
    nr_present
}
