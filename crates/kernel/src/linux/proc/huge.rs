//! `/sys/kernel/mm/transparent_hugepage`: the knobs of huge pages and their
//! counters, with Linux's names, words, permissions and errors. The
//! subsystem keeps them; nothing is kept here.

use super::fixed::{Fixed, What, dir, setting, stat};
use super::setting::{Setting, Word};
use crate::linux::errno::{self, Errno};
use crate::linux::khugepaged;
use crate::port::mm;
use core::num::IntErrorKind;
use softfault::policy::huge::{Defrag, Enabled, SizeEnabled};
use softfault::{Order, SizeStat};

/// One of the words that a knob knows.
fn word<T>(found: Option<T>) -> errno::Result<T> {
    found.ok_or(Errno::EINVAL)
}

/// A number, which has to be one of 32 bits.
fn number(text: &str) -> errno::Result<u32> {
    text.parse().map_err(|_| Errno::EINVAL)
}

/// 0 or 1; a number that no word holds has an error of its own.
fn flag(text: &str) -> errno::Result<bool> {
    match text.parse::<u64>() {
        Ok(value @ 0..=1) => Ok(value != 0),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(Errno::ERANGE),
        _ => Err(Errno::EINVAL),
    }
}

/// Yes or no as Linux's kstrtobool takes it: by the first letter, `on` and `off` by
/// the second.
fn yes_or_no(text: &str) -> errno::Result<bool> {
    match text.as_bytes() {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// A setting of one kind: what it reads from, how its text is understood.
macro_rules! knob {
    ($name:literal, $($field:ident).+, word $type:ident) => {
        setting($name, Setting {
            order: Order::BASE,
            show: |knobs, _, out| knobs.$($field).+.write_choices(out),
            set: |knobs, _, text| { knobs.$($field).+ = word($type::parse(text))?; Ok(()) },
        })
    };
    ($name:literal, $($field:ident).+, $parse:ident as $shown:ty) => {
        setting($name, Setting {
            order: Order::BASE,
            show: |knobs, _, out| write!(out, "{}", knobs.$($field).+ as $shown),
            set: |knobs, _, text| { knobs.$($field).+ = $parse(text)?; Ok(()) },
        })
    };
}

/// Which memory of shmem has huge pages on Linux. Here it changes nothing.
static SHMEM_ENABLED: Word = Word::new(&["always", "within_size", "advise", "never", "deny", "force"], 3);

/// `transparent_hugepage/`.
pub(super) static NAMES: [Fixed; 15] = [
    knob!("enabled", enabled, word Enabled),
    knob!("defrag", defrag, word Defrag),
    Fixed { name: "shmem_enabled", what: What::Word(&SHMEM_ENABLED) },
    knob!("use_zero_page", use_zero_page, flag as u8),
    knob!("shrink_underused", shrink_underused, yes_or_no as u8),
    stat("hpage_pmd_size", Order::PMD, |order| order.nr_pages() * 4096),
    dir("khugepaged", &KHUGEPAGED),
    dir("hugepages-16kB", &SIZES[0]),
    dir("hugepages-32kB", &SIZES[1]),
    dir("hugepages-64kB", &SIZES[2]),
    dir("hugepages-128kB", &SIZES[3]),
    dir("hugepages-256kB", &SIZES[4]),
    dir("hugepages-512kB", &SIZES[5]),
    dir("hugepages-1024kB", &SIZES[6]),
    dir("hugepages-2048kB", &SIZES[7]),
];

static KHUGEPAGED: [Fixed; 9] = [
    knob!("defrag", khugepaged.defrag, flag as u8),
    knob!("pages_to_scan", khugepaged.pages_to_scan, number as u32),
    knob!("scan_sleep_millisecs", khugepaged.scan_sleep_millisecs, number as u32),
    knob!("alloc_sleep_millisecs", khugepaged.alloc_sleep_millisecs, number as u32),
    knob!("max_ptes_none", khugepaged.max_ptes_none, number as u32),
    knob!("max_ptes_swap", khugepaged.max_ptes_swap, number as u32),
    knob!("max_ptes_shared", khugepaged.max_ptes_shared, number as u32),
    stat("pages_collapsed", Order::PMD, |_| khugepaged::pages_collapsed()),
    stat("full_scans", Order::BASE, |_| khugepaged::full_scans()),
];

/// `hugepages-<n>kB/`.
const fn size(order: u8, stats: &'static [Fixed]) -> [Fixed; 2] {
    let enabled = Setting {
        order: Order(order),
        show: |knobs, order, out| knobs.size(order).map_or(Ok(()), |size| size.write_choices(out)),
        set: |knobs, order, text| {
            let to = word(SizeEnabled::parse(text))?;
            knobs.set_size(order, to).map_err(|error| error.errno())
        },
    };
    [setting("enabled", enabled), dir("stats", stats)]
}

static SIZES: [[Fixed; 2]; 8] = [
    size(2, &STATS[0]),
    size(3, &STATS[1]),
    size(4, &STATS[2]),
    size(5, &STATS[3]),
    size(6, &STATS[4]),
    size(7, &STATS[5]),
    size(8, &STATS[6]),
    size(9, &STATS[7]),
];

fn counters(order: Order) -> SizeStat {
    mm::vm().huge_stat(order).unwrap_or_default()
}

/// `hugepages-<n>kB/stats/`.
const fn stats(order: u8) -> [Fixed; 3] {
    [
        stat("anon_fault_alloc", Order(order), |order| counters(order).anon_fault_alloc),
        stat("anon_fault_fallback", Order(order), |order| counters(order).anon_fault_fallback),
        stat("split", Order(order), |order| counters(order).split),
    ]
}

static STATS: [[Fixed; 3]; 8] = [stats(2), stats(3), stats(4), stats(5), stats(6), stats(7), stats(8), stats(9)];
