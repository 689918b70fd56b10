//! A toy format for the model checker: two levels of four entries, laid out as
//! x86-64 entries are, so that a whole address space is 16 pages and a model
//! has few states.

use crate::addr::Pfn;

use super::{Entry, Format, Kept, X86_64};

/// Two levels of four entries.
pub struct Toy;

impl Format for Toy {
    const LEVELS: u8 = 2;
    const INDEX_BITS: u32 = 2;
    const USER_PAGES: u64 = 16;
    fn decode(word: u64, level: u8) -> Entry {
        X86_64::decode(word, level)
    }
    fn encode(entry: Entry, level: u8) -> u64 {
        X86_64::encode(entry, level)
    }
    fn table(word: u64) -> Option<Pfn> {
        X86_64::table(word)
    }
    fn busy_of(word: u64) -> u64 {
        X86_64::busy_of(word)
    }
    fn kept(word: u64, level: u8) -> Option<Kept> {
        X86_64::kept(word, level)
    }
    const HARDWARE_BITS: u64 = X86_64::HARDWARE_BITS;
    const ACCESSED: u64 = X86_64::ACCESSED;
    const DIRTY: u64 = X86_64::DIRTY;
    const LOCK: u64 = X86_64::LOCK;
}
