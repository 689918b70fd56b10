//! A swap area in the host's memory. Tests can make its writes and reads fail.

use crate::arena::Arena;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use softfault::{Pfn, SwapError, SwapSlot};
use std::sync::{Mutex, MutexGuard, PoisonError};

const WORDS: usize = 512;

/// One page, if it has been written.
type Slot = Mutex<Option<Box<[u64; WORDS]>>>;

pub(crate) struct Swap {
    slots: Box<[Slot]>,
    fails_writes: AtomicBool,
    fails_reads: AtomicBool,
}

impl Swap {
    pub(crate) fn new(nr_slots: u32) -> Swap {
        let slots = (0..nr_slots).map(|_| Mutex::new(None)).collect();
        Swap { slots, fails_writes: AtomicBool::new(false), fails_reads: AtomicBool::new(false) }
    }

    pub(crate) fn nr_slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn fail(&self, writes: bool, reads: bool) {
        self.fails_writes.store(writes, Relaxed);
        self.fails_reads.store(reads, Relaxed);
    }

    fn slot(&self, slot: SwapSlot) -> Result<MutexGuard<'_, Option<Box<[u64; WORDS]>>>, SwapError> {
        let slot = self.slots.get(slot.0 as usize).ok_or(SwapError)?;
        Ok(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn write(&self, slot: SwapSlot, arena: &Arena, pfn: Pfn) -> Result<(), SwapError> {
        let mut page = self.slot(slot)?;
        if self.fails_writes.load(Relaxed) {
            // As a device that lost power: nobody may read what was there before.
            *page = None;
            return Err(SwapError);
        }
        let words = page.get_or_insert_with(|| Box::new([0; WORDS]));
        words.iter_mut().enumerate().for_each(|(i, word)| *word = arena.word(pfn, i * 8).load(Relaxed));
        Ok(())
    }

    pub(crate) fn read(&self, slot: SwapSlot, arena: &Arena, pfn: Pfn) -> Result<(), SwapError> {
        let page = self.slot(slot)?;
        let words = page.as_ref().filter(|_| !self.fails_reads.load(Relaxed)).ok_or(SwapError)?;
        words.iter().enumerate().for_each(|(i, word)| arena.word(pfn, i * 8).store(*word, Relaxed));
        Ok(())
    }
}
