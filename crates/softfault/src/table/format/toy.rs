//! A toy format for the model checker: two levels of four entries, laid out as
//! x86-64 entries are, so that a whole address space is 16 pages and a model
//! has few states.

use crate::addr::Pfn;

use super::{Entry, Format, Kept, X86_64};

/// Two levels of four entries.
pub struct Toy;

// SAFETY: I32 to I37: as `X86_64`, whose words these are. I38: two levels of four
// entries are 16 pages.
#[allow(unsafe_code)]
unsafe impl Format for Toy {
    const LEVELS: u8 = 2;
    const TOP_LEAF: u8 = 1;
    const INDEX_BITS: u32 = 2;
    const USER_PAGES: u64 = 16;
    const LOCK: u64 = X86_64::LOCK;
    const NEXT_FRAME: u64 = X86_64::NEXT_FRAME;
    fn decode(word: u64, level: u8) -> Entry {
        X86_64::decode(word, level)
    }
    fn encode(entry: Entry, level: u8) -> u64 {
        X86_64::encode(entry, level)
    }
    fn table(word: u64) -> Option<Pfn> {
        X86_64::table(word)
    }
    fn busy_of(word: u64, level: u8) -> u64 {
        X86_64::busy_of(word, level)
    }
    fn kept(word: u64, level: u8) -> Option<Kept> {
        X86_64::kept(word, level)
    }
    fn set_accessed(word: u64) -> u64 {
        X86_64::set_accessed(word)
    }
    fn set_dirty(word: u64) -> u64 {
        X86_64::set_dirty(word)
    }
    fn clear_accessed(word: u64) -> u64 {
        X86_64::clear_accessed(word)
    }
    fn clear_dirty(word: u64) -> u64 {
        X86_64::clear_dirty(word)
    }
}
