//! Kinds of files under `/sys/kernel/mm`: a knob of huge pages, a number of theirs, a size of
//! one of their pools, which `/proc/sys/vm` has for the default size, too. The subsystem keeps the values.

use crate::linux::errno::{self, Errno};
use crate::linux::khugepaged;
use crate::linux::number;
use crate::port::mm;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};
use softfault::{HugeKnobs, HugetlbCounts, HugetlbError, Order};

/// A knob's file: how it shows its value, and how it takes another. `order` is the
/// size that it is about, if it is about one.
pub struct Setting {
    pub(super) order: Order,
    pub(super) show: fn(&HugeKnobs, Order, &mut dyn Write) -> fmt::Result,
    pub(super) set: fn(&mut HugeKnobs, Order, &str) -> errno::Result<()>,
}

/// A text without its end of line.
fn line(bytes: &[u8]) -> errno::Result<&str> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    Ok(text.strip_suffix('\n').unwrap_or(text))
}

impl Setting {
    /// Writes its value as a reader sees it.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        (self.show)(&mm::vm().huge_knobs(), self.order, out)?;
        out.write_char('\n')
    }
    /// Takes what was written, whole: a line without, or with, its end.
    pub fn set(&self, bytes: &[u8]) -> errno::Result<()> {
        let text = line(bytes)?;
        let mut understood = Ok(());
        let changed = mm::vm().change_huge_knobs(&mut |knobs| {
            understood = (self.set)(knobs, self.order, text);
            Ok(())
        });
        understood.and(changed.map_err(|error| error.errno()))?;
        khugepaged::look_again();
        Ok(())
    }
}

/// One of some words. It is shown as it was set and has no effect.
pub struct Word {
    words: &'static [&'static str],
    /// Its place among them.
    chosen: AtomicUsize,
}

impl Word {
    /// The word at that place is chosen at first.
    pub const fn new(words: &'static [&'static str], chosen: usize) -> Word {
        Word { words, chosen: AtomicUsize::new(chosen) }
    }
    /// Writes all words, the chosen one in brackets.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let chosen = self.chosen.load(Ordering::Relaxed);
        for (i, word) in self.words.iter().enumerate() {
            let (before, end) = (if i == 0 { "" } else { " " }, if i + 1 == self.words.len() { "\n" } else { "" });
            if i == chosen { write!(out, "{before}[{word}]{end}")? } else { write!(out, "{before}{word}{end}")? }
        }
        Ok(())
    }
    /// Chooses a word.
    pub fn set(&self, bytes: &[u8]) -> errno::Result<()> {
        let text = line(bytes)?;
        let place = self.words.iter().position(|word| *word == text).ok_or(Errno::EINVAL)?;
        self.chosen.store(place, Ordering::Relaxed);
        Ok(())
    }
}

/// A number that can only be read.
pub struct Stat {
    pub(super) order: Order,
    pub(super) get: fn(Order) -> u64,
}

impl Stat {
    /// Writes its value as a reader sees it.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "{}", (self.get)(self.order))
    }
}

/// A number of a pool that can be set.
pub struct PoolKnob {
    pub(super) get: fn(HugetlbCounts) -> u64,
    pub(super) set: fn(Order, u64) -> Result<(), HugetlbError>,
}

impl PoolKnob {
    /// Its value, of the pool of that size.
    pub fn get(&self, order: Order) -> u64 {
        (self.get)(mm::huge_counts(order))
    }
    /// Sets it to the number that `text` is, as in sysfs. A pool gets as many pages as there is memory for.
    pub fn set(&self, order: Order, text: &[u8]) -> errno::Result<()> {
        (self.set)(order, number::of_sysfs(text)?).map_err(|error| error.errno())
    }
    /// The same as in `/proc/sys`; returns how many bytes of `text` were read.
    pub fn set_sysctl(&self, order: Order, text: &[u8]) -> errno::Result<usize> {
        let (number, len) = number::of_sysctl(text)?;
        let number = u64::try_from(number).map_err(|_| Errno::EINVAL)?;
        (self.set)(order, number).map(|()| len).map_err(|error| error.errno())
    }
}
