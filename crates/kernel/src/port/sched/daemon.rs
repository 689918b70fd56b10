//! Words on which the kernel's daemons sleep. A CPU that learns that there is work
//! changes a word and wakes its sleepers; nobody calls a daemon.

use super::parking;
use crate::port::mm;
use core::sync::atomic::{AtomicU64, Ordering};
use softfault::sync::Word;

/// Grows with each reason for khugepaged to look again.
pub static COLLAPSE: Word = Word::new(0);
/// Grows with each request for a free block of 2 MiB (kcompactd).
pub static COMPACT: Word = Word::new(0);

/// No block is waited for.
const NO_WISH: u64 = u64::MAX;
/// How often a block had become free when khugepaged found none.
static WISH: AtomicU64 = AtomicU64::new(NO_WISH);

/// One more reason to look: wakes the daemon that sleeps on `word`.
pub fn tell(word: &Word) {
    word.fetch_add(1, Ordering::SeqCst);
    parking::unpark(word);
}

/// Asks to be told by [`COLLAPSE`] once a block has become free, of which there had
/// been `nr_emptied` so far.
pub fn wish_for_block(nr_emptied: u64) {
    WISH.store(nr_emptied, Ordering::Relaxed);
}

/// Withdraws that.
pub fn wish_for_none() {
    WISH.store(NO_WISH, Ordering::Relaxed);
}

/// Tells khugepaged if a block is free that it waits for. Called when the subsystem
/// tells of blocks (or of something else), and at each tick of the clock, since it
/// frees some where nobody could be woken.
pub fn look_for_blocks() {
    let wish = WISH.load(Ordering::Relaxed);
    if wish != NO_WISH
        && mm::vm().nr_blocks_emptied() != wish
        && WISH.compare_exchange(wish, NO_WISH, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        tell(&COLLAPSE);
    }
}

/// Tells kcompactd if a fault has asked. Called when the subsystem wakes somebody.
pub fn look_for_requests() {
    if mm::vm().poll_compaction_request() {
        tell(&COMPACT);
    }
}
