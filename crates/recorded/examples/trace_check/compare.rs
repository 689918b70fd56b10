//! Compares the recorder's accesses with those of the trace.

use super::work::{BEGIN, END, NR_CPUS};
use std::collections::HashMap;
use std::ops::Range;

const PAGE_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;
/// How many writes that nobody told of are named.
const NR_NAMED: usize = 5;

/// Every store of the process.
#[derive(Default)]
pub struct Traced {
    /// Address and length in bytes.
    pub stores: Vec<(u64, u64)>,
    /// The last message of valgrind.
    pub last_words: String,
}

/// Output of the child.
pub struct Told {
    memory: Range<u64>,
    vm: Range<u64>,
    marks: Range<u64>,
    /// CPU and address of each write, in order.
    writes: Vec<(u64, u64)>,
}

impl Told {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Told, String> {
        let number = |word: &str| u64::from_str_radix(word, 16).map_err(|e| format!("{word}: {e}"));
        let pair = |line: &str| {
            let (a, b) = line.split_once(' ').ok_or(format!("{line}: should be two numbers"))?;
            Ok::<_, String>((number(a)?, number(b)?))
        };
        let mut lines = text.lines();
        let mut range = || {
            let (start, bytes) = pair(lines.next().ok_or("the child printed too little")?)?;
            Ok::<_, String>(start..start + bytes)
        };
        let (memory, vm, marks) = (range()?, range()?, range()?);
        Ok(Told { memory, vm, marks, writes: lines.map(pair).collect::<Result<_, _>>()? })
    }
}

/// Prints what it comes to; whether the recorder missed nothing.
pub fn judge(told: &Told, traced: &Traced) -> bool {
    let mut told_of = told.writes.iter().peekable();
    // Cells that both know; later also those that only the trace has.
    let mut cells = Vec::new();
    // The others, in runs that nothing stands between.
    let mut untold = vec![Vec::new()];
    for (cpu, addr, bytes) in shared_stores(told, traced) {
        let run = untold.last_mut().expect("there is one from the start");
        match told_of.next_if(|write| **write == (cpu, addr)) {
            Some(write) => {
                cells.push(*write);
                untold.push(Vec::new());
            }
            None if run.last().is_some_and(|(_, last, _)| last / PAGE_BYTES != addr / PAGE_BYTES) => {
                untold.push(vec![(cpu, addr, bytes)]);
            }
            None => run.push((cpu, addr, bytes)),
        }
    }
    let nr_unseen = told_of.count();
    let (pages, missed): (Vec<_>, Vec<_>) =
        untold.into_iter().filter(|run| !run.is_empty()).partition(|run| is_whole_page(run));
    let missed: Vec<(u64, u64, u64)> = missed.concat();
    cells.extend(missed.iter().map(|(cpu, addr, _)| (*cpu, *addr)));
    println!("recorder  {:7} writes  {:6} transfers", told.writes.len(), transfers(&told.writes));
    println!("trace     {:7} writes  {:6} transfers", cells.len(), transfers(&cells));
    println!("besides, {} pages of content, each written whole and at one go", pages.len());
    for (cpu, addr, bytes) in missed.iter().take(NR_NAMED) {
        println!("MISSED: CPU {cpu} wrote {bytes} bytes at memory + {:#x}", addr.wrapping_sub(told.memory.start));
    }
    if nr_unseen > 0 {
        println!("{nr_unseen} writes of the recorder are not in the trace, in its order");
    }
    let whole = !told.writes.is_empty() && missed.is_empty() && nr_unseen == 0;
    println!("{}", if whole { "the recorder misses no shared write" } else { "the recorder and the trace differ" });
    whole
}

/// Stores into memory or the `Vm` between the marks, with the CPU that made them.
fn shared_stores(told: &Told, traced: &Traced) -> Vec<(u64, u64, u64)> {
    let (mut cpu, mut on) = (0, false);
    let mut seen = Vec::new();
    for (addr, bytes) in &traced.stores {
        if told.marks.contains(addr) {
            match (addr - told.marks.start) as usize {
                BEGIN => on = true,
                END => on = false,
                number => cpu = number.min(NR_CPUS) as u64,
            }
        } else if on && (told.memory.contains(addr) || told.vm.contains(addr)) {
            seen.push((cpu, *addr, *bytes));
        }
    }
    seen
}

/// Whether a run of stores, all to one page, leaves no byte of it out.
fn is_whole_page(run: &[(u64, u64, u64)]) -> bool {
    let mut written = vec![false; PAGE_BYTES as usize];
    for (_, addr, bytes) in run {
        (*addr..addr + bytes).for_each(|byte| written[(byte % PAGE_BYTES) as usize] = true);
    }
    written.iter().all(|byte| *byte)
}

/// Writes to a line that another CPU wrote last.
fn transfers(writes: &[(u64, u64)]) -> usize {
    let mut last: HashMap<u64, u64> = HashMap::new();
    writes
        .iter()
        .filter(|(cpu, addr)| last.insert(addr / LINE_BYTES, *cpu).is_some_and(|before| before != *cpu))
        .count()
}
