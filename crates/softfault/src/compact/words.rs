//! The state of compaction: plain words, which `Vm` contains.

use crate::sync::Word;

/// State that is kept between attempts. All of it is a hint.
pub(crate) struct CompactWords {
    /// Number of the block at which the next search begins.
    pub(crate) cursor: Word,
    /// The round: blocks with this number + 1 were tried without success.
    pub(crate) round: Word,
    /// [`Deferral`](crate::policy::compact::Deferral) of faults.
    pub(crate) deferral: Word,
    /// Requests for a block in the background.
    pub(crate) wanted: Word,
}

impl CompactWords {
    pub(crate) fn new() -> CompactWords {
        let [cursor, round, deferral, wanted] = [0; 4].map(Word::new);
        CompactWords { cursor, round, deferral, wanted }
    }
}
