//! The loom facade: each operation is one of the model checker's.
//!
//! Loom's atomics cannot be laid over raw memory, and every one of them must be
//! born before the threads are. So a `Word` here is its raw value plus, while a
//! model runs, a loom atomic found by address in a registry:
//!
//! 1. the closure sets its machine up; words are plain memory;
//! 2. [`begin`] gives each *known* word a loom atomic with its present value;
//! 3. threads run; an unknown word is noted, and stays plain for this run;
//! 4. [`end`] writes the values back for the checkers. If an unknown word was
//!    met, the run proved nothing: [`explore`] starts again knowing it.
//!
//! Loom runs its threads as coroutines of one system thread, so the registry is
//! thread-local, and never borrowed across an operation.

#![allow(unsafe_code)] // raw values by address, see `begin`

extern crate std;

use super::Ordering;
use core::sync::atomic::AtomicU64;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

type Cell = Rc<loom::sync::atomic::AtomicU64>;

#[derive(Default)]
struct Registry {
    known: BTreeSet<usize>,
    /// With what lies in memory under each meanwhile.
    live: HashMap<usize, (Cell, u64)>,
    running: bool,
    found: bool,
}

std::thread_local! {
    static REGISTRY: RefCell<Registry> = RefCell::default();
}

/// Runs `model` under loom until no unknown word takes part, then in full.
/// Gives the number of restarts. `model` has to call [`begin`] and [`end`].
pub fn explore(builder: impl Fn() -> loom::model::Builder, model: impl Fn() + Sync + Send + Clone + 'static) -> usize {
    REGISTRY.with(|r| *r.borrow_mut() = Registry::default());
    for restarts in 0.. {
        let model = model.clone();
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder().check(model)));
        let Err(payload) = run else { return restarts };
        // A failure of a run with unknown words proves nothing either.
        let again = REGISTRY.with(|r| {
            let mut r = r.borrow_mut();
            r.running = false;
            core::mem::take(&mut r.found)
        });
        if !again || restarts > 10_000 {
            std::panic::resume_unwind(payload);
        }
    }
    unreachable!("the loop ends by return or panic")
}

/// The words become cells of the model. Call before the threads are spawned.
pub fn begin() {
    let known: std::vec::Vec<usize> = REGISTRY.with(|r| r.borrow().known.iter().copied().collect());
    let live = known
        .into_iter()
        .map(|addr| {
            // SAFETY: I1: the address was taken from a live Word of the same
            // machine, whose memory outlives the exploration.
            let raw = unsafe { &*core::ptr::with_exposed_provenance::<AtomicU64>(addr) }.load(Ordering::Relaxed);
            (addr, (Rc::new(loom::sync::atomic::AtomicU64::new(raw)), raw))
        })
        .collect();
    REGISTRY.with(|r| {
        let mut r = r.borrow_mut();
        r.live = live;
        r.running = true;
        r.found = false;
    });
}

/// The words become plain memory again, with their last values. Call after the
/// threads were joined.
pub fn end() {
    let live: std::vec::Vec<(usize, (Cell, u64))> =
        REGISTRY.with(|r| r.borrow().live.iter().map(|(a, c)| (*a, c.clone())).collect());
    for (addr, (cell, in_memory)) in live {
        // A frame that is a table in one execution is a program's page in another,
        // and a program's bytes are not cells: what no cell has changed stays.
        // A load might give what a thread had written before the last change, which the
        // language allows it, for all that the threads were joined.
        // SAFETY: I1: no other thread could write.
        let now = unsafe { cell.unsync_load() };
        if now != in_memory {
            // SAFETY: I1, as in `begin`.
            unsafe { &*core::ptr::with_exposed_provenance::<AtomicU64>(addr) }.store(now, Ordering::Relaxed);
        }
    }
    let found = REGISTRY.with(|r| {
        let mut r = r.borrow_mut();
        r.running = false;
        r.found
    });
    if found {
        std::panic::resume_unwind(std::boxed::Box::new("an unknown word took part"));
    }
}

/// The bytes of programs; core's atomics.
pub use core::sync::atomic::AtomicU64 as Cell64;

/// A shared 64-bit cell; all zeroes is a valid value.
#[repr(transparent)]
#[derive(Default, Debug)]
pub struct Word(AtomicU64);

impl Word {
    fn cell(&self) -> Option<Cell> {
        REGISTRY.with(|r| {
            let mut r = r.borrow_mut();
            if !r.running {
                return None;
            }
            let addr = core::ptr::from_ref(self).expose_provenance();
            let cell = r.live.get(&addr).map(|(cell, _)| cell.clone());
            if cell.is_none() && r.known.insert(addr) {
                r.found = true;
            }
            cell
        })
    }
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        #[allow(missing_docs)] // as on core's AtomicU64
        impl Word {
            $(#[track_caller] pub fn $name(&self, $($arg: $ty),*) -> $ret {
                match self.cell() {
                    Some(cell) => cell.$name($($arg),*),
                    None => self.0.$name($($arg),*),
                }
            })*
        }
    };
}

forward! {
    load(order: Ordering) -> u64;
    store(value: u64, order: Ordering) -> ();
    swap(value: u64, order: Ordering) -> u64;
    compare_exchange(current: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64>;
    fetch_add(n: u64, order: Ordering) -> u64;
    fetch_sub(n: u64, order: Ordering) -> u64;
    fetch_or(bits: u64, order: Ordering) -> u64;
    fetch_and(bits: u64, order: Ordering) -> u64;
}

#[allow(missing_docs)] // as on core's AtomicU64
impl Word {
    pub const fn new(value: u64) -> Word {
        Word(AtomicU64::new(value))
    }
}

/// A full fence.
pub fn fence() {
    if REGISTRY.with(|r| r.borrow().running) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// The light barrier. A SeqCst fence here would order fault against fault,
/// which the real one does not do, and would hide bugs; a read-modify-write of
/// the slot orders this CPU against the CPU that probes the slot, and no other.
pub fn enter(slot: &Word, odd: u64) {
    let _ = odd;
    slot.fetch_add(1, Ordering::AcqRel);
}

/// A read-modify-write again: loom does not order a plain store after the
/// read-modify-writes of others that came before it, and a prober could read its
/// own last value for ever.
pub fn leave(slot: &Word, even: u64) {
    let _ = even;
    slot.fetch_add(1, Ordering::AcqRel);
}

/// As [`leave`], for the same reason.
pub fn unlock(word: &Word, value: u64) {
    word.swap(value, Ordering::AcqRel);
}

/// The heavy barrier against the slot's owner, and the reading of it.
pub fn probe(slot: &Word) -> u64 {
    fence();
    let value = slot.fetch_add(0, Ordering::AcqRel);
    fence();
    value
}

/// Reads a word that says where something lies. It is a cell of the model only in models in
/// which a thread writes it: elsewhere it has one value, and a read adds orders that differ in
/// nothing.
pub fn read_mostly(place: &Word) -> u64 {
    let addr = core::ptr::from_ref(place).addr();
    let cell = REGISTRY.with(|r| {
        let r = r.borrow();
        r.live.get(&addr).filter(|_| r.running).map(|(cell, _)| cell.clone())
    });
    cell.map_or_else(|| place.0.load(Ordering::Acquire), |cell| cell.load(Ordering::Acquire))
}

/// Always worth a try here: a plain load may return the old value for as long as
/// it likes, and a model has no end then.
pub fn seems_zero(_: &Word) -> bool {
    true
}

/// See the recording facade.
#[inline(always)]
pub fn streamed() {}

/// See the recording facade.
#[inline(always)]
pub fn stream_done() {}

/// See the shuttle facade.
#[inline(always)]
pub fn about_to_touch(_: *const u8, _: usize) {}

/// Words of this memory were zeroed as plain memory: the model's cells follow.
pub fn zeroed(first: *const u8, bytes: usize) {
    let range = first.addr()..first.addr() + bytes;
    let mut cells: std::vec::Vec<(usize, Cell)> = REGISTRY.with(|r| {
        let r = r.borrow();
        r.live.iter().filter(|(a, _)| r.running && range.contains(a)).map(|(a, (c, _))| (*a, c.clone())).collect()
    });
    // In the order of addresses: a model has to be the same every time.
    cells.sort_by_key(|(addr, _)| *addr);
    cells.iter().for_each(|(_, cell)| cell.store(0, Ordering::Relaxed));
    // The memory under them is zero, too, from now on.
    REGISTRY.with(|r| {
        let mut r = r.borrow_mut();
        r.live.iter_mut().filter(|(a, _)| range.contains(a)).for_each(|(_, (_, in_memory))| *in_memory = 0);
    });
}

/// One turn of a spin inside a section, where nothing of the machine's may be
/// called.
pub fn spin() {
    if REGISTRY.with(|r| r.borrow().running) {
        loom::thread::yield_now();
    }
}

/// See the shuttle facade.
#[inline(always)]
pub fn copies_frames_at_once() -> bool {
    false
}

/// Whether long passes answer other CPUs. Not here: to loom an answer is a yield, after which
/// it runs the others first, and never what they do half-way.
pub const PASSES_ANSWER: bool = false;
