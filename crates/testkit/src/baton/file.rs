//! The file of a round. Of each page one word is known: what the storage has, or what was stored to the page since it
//! was read.
//!
//! ```text
//! at once     reads end in the call
//! blocking    so do they, and others run before and after the bytes are read
//! late        an actor of its own ends them, whenever its turn comes
//! never       the same, but only when everybody left waits: then all of them have to be operations that want a page
//! ```
//! The bytes of a late read may be older than its end: the bytes are read first or last, at random.

use super::turns::Turns;
use super::{FILE_PAGES, file_pages, offset_of};
use crate::op::PAGE;
use crate::random::Random;
use softfault::{FileFill, FillError, Filling, Vm};
use softfault_host::{HostFile, HostFill, Hosted};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The storage's first value of a page, less the number of the page.
const AT_FIRST: u64 = 0xf11e_0000;

/// When reads end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answers {
    AtOnce,
    Blocking,
    Late,
    Never,
}

/// How the machine answers the reads of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reads {
    pub(super) answers: Answers,
    /// Of 100 reads so many fail, and this one, by number.
    pub(super) failing_percent: u64,
    pub(super) fails_at: Option<u64>,
}

impl Reads {
    /// Before and after a round.
    pub(super) const GOOD: Reads = Reads { answers: Answers::AtOnce, failing_percent: 0, fails_at: None };

    /// Those of a seed. Late reads need an actor of their own.
    pub(super) fn of(seed: u64, may_be_late: bool) -> Reads {
        let mut random = Random::new(seed ^ 0xf111);
        use Answers::*;
        let all = [Late, Never, AtOnce, AtOnce, Blocking, Blocking];
        let answers = random.pick(if may_be_late { &all } else { &all[2..] });
        let failing_percent = random.pick(&[0, 0, 30]);
        Reads { answers, failing_percent, fails_at: random.chance(30).then(|| random.below(6)) }
    }

    pub(super) fn is_late(&self) -> bool {
        matches!(self.answers, Answers::Late | Answers::Never)
    }

    pub(super) fn may_fail(&self) -> bool {
        self.failing_percent > 0 || self.fails_at.is_some()
    }
}

/// A read that is under way.
struct Kept {
    fill: FileFill,
    fails: bool,
    /// The bytes, if they were read at its beginning.
    bytes: Option<Vec<u8>>,
}

struct State {
    reads: Reads,
    random: Random,
    nr_reads: u64,
    kept: Vec<Kept>,
}

pub(super) struct RoundFile {
    storage: [AtomicU64; FILE_PAGES as usize],
    state: Mutex<State>,
    turns: Arc<Turns>,
}

impl RoundFile {
    pub(super) fn new(seed: u64, turns: Arc<Turns>) -> RoundFile {
        let storage = core::array::from_fn(|page| AtomicU64::new(AT_FIRST + page as u64));
        let state = State { reads: Reads::GOOD, random: Random::new(seed ^ 0xf11e), nr_reads: 0, kept: Vec::new() };
        RoundFile { storage, state: Mutex::new(state), turns }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, reads: Reads) {
        self.state().reads = reads;
    }

    /// The known word of a page of the file.
    pub(super) fn word(&self, index: u64) -> u64 {
        self.storage[index as usize].load(SeqCst)
    }

    /// The storage changes. Afterwards the page has to be discarded.
    pub(super) fn set_word(&self, index: u64, value: u64) {
        self.storage[index as usize].store(value, SeqCst);
    }

    fn content(&self, fill: &FileFill) -> Vec<u8> {
        let mut bytes = vec![0; fill.len_bytes() as usize];
        let first = fill.offset_bytes() / PAGE;
        for (i, page) in bytes.chunks_mut(PAGE as usize).enumerate() {
            let index = first + i as u64;
            let at = offset_of(file_pages().start + index as usize) as usize;
            page[at..at + 8].copy_from_slice(&self.word(index).to_ne_bytes());
        }
        bytes
    }

    /// Ends some reads that are under way, or all.
    pub(super) fn answer(&self, vm: &Vm<Hosted>, all: bool) {
        loop {
            let kept = {
                let mut state = self.state();
                let nr = state.kept.len() as u64;
                if nr == 0 || !all && !state.random.chance(30) {
                    return;
                }
                let i = state.random.below(nr) as usize;
                state.kept.swap_remove(i)
            };
            let Kept { mut fill, fails, bytes } = kept;
            let result = if fails { Err(FillError) } else { Ok(()) };
            if !fails {
                let bytes = bytes.unwrap_or_else(|| self.content(&fill));
                vm.write_fill(&mut fill, 0, &bytes).expect("a fill of this machine");
            }
            vm.filled(fill, result).expect("a fill of this machine");
        }
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.state().kept.is_empty()
    }
}

impl HostFile for RoundFile {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        let (reads, fails, is_early) = {
            let mut state = self.state();
            state.nr_reads += 1;
            let (nr, reads) = (state.nr_reads - 1, state.reads);
            (reads, reads.fails_at == Some(nr) || state.random.chance(reads.failing_percent), state.random.chance(50))
        };
        if reads.is_late() {
            let bytes = is_early.then(|| self.content(&fill));
            self.state().kept.push(Kept { fill: fill.keep(), fails, bytes });
            self.turns.wake();
            // It may end before the core knows that it is under way.
            self.turns.pass();
            return Filling::UnderWay;
        }
        if reads.answers == Answers::Blocking {
            self.turns.pass();
        }
        let result = if fails { Err(FillError) } else { Ok(()) };
        if !fails {
            let content = self.content(&fill);
            fill.bytes().copy_from_slice(&content);
        }
        if reads.answers == Answers::Blocking {
            self.turns.pass();
        }
        fill.end(result)
    }
}
