//! The coverage of a soak: call by class of arguments by result, with counts.

use crate::numbers::MAP_HUGETLB;
use crate::op::{Call, HEAP, KnobBits, Op, Outcome, PAGE, is_for_pool};
use core::fmt;
use std::collections::BTreeMap;

/// Counts of steps by what they were and what came of them.
#[derive(Default)]
pub struct Table {
    cells: BTreeMap<(Call, String, String), u64>,
    nr_good: u64,
    nr: u64,
}

impl Table {
    /// Counts a step.
    pub fn add(&mut self, op: &Op, outcome: Outcome) {
        *self.cells.entry((op.call, class_of(op), outcome.label())).or_insert(0) += 1;
        self.nr += 1;
        self.nr_good += u64::from(outcome.is_success());
    }
    /// Steps.
    pub fn nr(&self) -> u64 {
        self.nr
    }
    /// Percent of the steps that succeeded.
    pub fn percent_good(&self) -> u64 {
        self.nr_good * 100 / self.nr.max(1)
    }
    /// Cells with fewer than `nr` steps, of all cells.
    pub fn thin_cells(&self, nr: u64) -> (usize, usize) {
        (self.cells.values().filter(|count| **count < nr).count(), self.cells.len())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<13} {:<40} {:<14} {:>10}", "call", "class", "result", "steps")?;
        for ((call, class, result), count) in &self.cells {
            let call = format!("{call:?}").to_lowercase();
            writeln!(f, "{call:<13} {class:<40} {result:<14} {count:>10}")?;
        }
        Ok(())
    }
}

/// The class of a step's arguments.
pub fn class_of(op: &Op) -> String {
    let [a, _, _, d, ..] = op.args;
    let is_of_address =
        !op.call.is_of_file() && !matches!(op.call, Call::Fork | Call::Exit | Call::Knobs | Call::ThpDisable);
    let is_for_pool = is_of_address && is_for_pool(a);
    let class = class_of_any(op);
    match op.call {
        Call::Mmap if d & MAP_HUGETLB != 0 => format!("pool, {class}"),
        call if call.is_of_pool() || !is_for_pool => class,
        _ if class.is_empty() => "pool".into(),
        _ => format!("pool, {class}"),
    }
}

fn class_of_any(op: &Op) -> String {
    let [a, b, c, d, ..] = op.args;
    match op.call {
        Call::Mmap | Call::PoolMap => {
            let kind = match d & 0xf {
                1 => "shared",
                2 => "private",
                _ => "bad type",
            };
            let how = match d {
                d if d & 0x10_0000 != 0 => "noreplace",
                d if d & 0x10 != 0 => "fixed",
                _ if a == 0 => "anywhere",
                _ => "hint",
            };
            let extra = match d {
                d if d & 0x100 != 0 => ", growsdown",
                d if d & 0x8000 != 0 => ", populate",
                d if d & 0x2000 != 0 => ", locked",
                d if d & 0x4000 != 0 => ", noreserve",
                _ => "",
            };
            format!("{kind}, {how}{extra}")
        }
        Call::Mprotect => rights(c),
        Call::Mremap => {
            let how = match d {
                0 => "in place".into(),
                1 => "maymove".into(),
                3 => "fixed".into(),
                5 => "dontunmap".into(),
                7 => "dontunmap, fixed".into(),
                _ => "bad flags".to_string(),
            };
            // As the call sees them: in whole pages.
            let whole = |len: u64| len.checked_next_multiple_of(PAGE).unwrap_or(0);
            let size = match (whole(b), whole(b).cmp(&whole(c))) {
                (0, _) => "duplicate",
                (_, core::cmp::Ordering::Less) => "grow",
                (_, core::cmp::Ordering::Equal) => "same size",
                (_, core::cmp::Ordering::Greater) => "shrink",
            };
            format!("{how}, {size}")
        }
        Call::Madvise => advice(c),
        Call::Brk if a < HEAP => "query".into(),
        Call::Load | Call::Store => format!("{b} bytes"),
        Call::Knobs => KnobBits(a).class(),
        Call::ThpDisable => if a == 0 { "off" } else { "on" }.into(),
        Call::MmapFile => {
            let kind = if d & 0xf == 1 { "shared" } else { "private" };
            format!("{kind}, {}", if op.args[5] >> 32 == 0 { "memory" } else { "read" })
        }
        Call::FileSize | Call::FilePunch | Call::FileRead | Call::FileWrite => {
            if a == 0 { "memory" } else { "read" }.into()
        }
        Call::PoolSize if b == 0 => "no surplus".into(),
        Call::PoolSize => "surplus".into(),
        Call::PoolFile | Call::PoolFileSize | Call::PoolFilePunch | Call::PoolFileRead | Call::PoolFileWrite => {
            String::new()
        }
        Call::MakeFiles | Call::Brk | Call::Munmap | Call::Mincore | Call::Fork | Call::Exit | Call::Exec => {
            String::new()
        }
    }
}

fn rights(prot: u64) -> String {
    match prot {
        0..8 => {
            let letter = |bit: u64, letter| if prot & bit != 0 { letter } else { '-' };
            [letter(1, 'r'), letter(2, 'w'), letter(4, 'x')].iter().collect()
        }
        _ if prot >> 24 != 0 => "growing".into(),
        _ => "unknown bits".into(),
    }
}

fn advice(advice: u64) -> String {
    match advice {
        0 => "normal",
        1 => "random",
        2 => "sequential",
        3 => "willneed",
        4 => "dontneed",
        8 => "free",
        9 => "remove",
        10 => "dontfork",
        11 => "dofork",
        14 => "hugepage",
        15 => "nohugepage",
        16 => "dontdump",
        17 => "dodump",
        18 => "wipeonfork",
        19 => "keeponfork",
        20 => "cold",
        21 => "pageout",
        22 => "populate_read",
        23 => "populate_write",
        24 => "dontneed_locked",
        25 => "collapse",
        102 => "guard_install",
        103 => "guard_remove",
        _ => "unknown",
    }
    .into()
}
