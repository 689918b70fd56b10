//! Write density: whether the programs on a CPU write all of each new page, or little.
//!
//! The best way of zeroing depends on it, and no measurement at boot can tell. So each CPU measures
//! the time from one refill to the next, which is the cost of a batch: its zeroing, and the
//! program's work on it. Now and then it zeroes a batch for the other write density, and switches if
//! that was cheaper. Other costs between two refills, such as traps or the program's own work, are the
//! same for both.
//!
//! This file only computes with times; the mechanism is in `clear/batch.rs`.

/// How much of each new page programs write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteDensity {
    /// They write all of each.
    Dense,
    /// They write little of each.
    Sparse,
}

impl WriteDensity {
    const fn other(self) -> WriteDensity {
        match self {
            WriteDensity::Dense => WriteDensity::Sparse,
            WriteDensity::Sparse => WriteDensity::Dense,
        }
    }
}

/// The state of a CPU, which fits a word. `Dense` at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Learned {
    /// Smoothed time per frame with each plan; 0 is not known.
    time: [u64; 2],
    /// Which is the cheaper one.
    density: WriteDensity,
    /// Batches since the last trial of the other.
    since: u64,
    /// Trials are 2^this batches apart.
    period_log2: u64,
}

/// Batches between two trials when nothing is sure, and when all is: a trial may cost
/// half as much again as a batch should, so that one in 64 costs below 1 %.
const FIRST_PERIOD_LOG2: u64 = 2;
const LAST_PERIOD_LOG2: u64 = 6;
/// The other plan has to save one part in so many.
const LEAST_SAVED: u64 = 16;
const TIME_BITS: u32 = 24;
const MOST_TIME: u64 = (1 << TIME_BITS) - 1;

impl Learned {
    /// The one that is believed.
    pub(crate) fn density(self) -> WriteDensity {
        self.density
    }

    /// The write density for the next batch that is timed.
    pub(crate) fn next(self) -> WriteDensity {
        let [known, other] = [self.density, self.density.other()].map(|density| self.time[density as usize]);
        let is_trial = known != 0 && (other == 0 || self.since >= 1 << self.period_log2);
        if is_trial { self.density.other() } else { self.density }
    }

    /// Learns from a batch that was zeroed for `density`, and its time per frame, including the
    /// program's work.
    pub(crate) fn after(mut self, density: WriteDensity, time: u64) -> Learned {
        let before = self.time[density as usize];
        let time = time.clamp(1, MOST_TIME);
        let is_trial = density != self.density;
        self.time[density as usize] = match before {
            0 => time,
            // An interrupt is no write density: one sample doubles nothing.
            _ => {
                let bounded = time.min(2 * before);
                // Trials are few.
                let weight = if is_trial { 2 } else { 4 };
                (before * (weight - 1) + bounded).div_ceil(weight).min(MOST_TIME)
            }
        };
        if is_trial {
            self.since = 0;
            self.period_log2 = (self.period_log2 + 1).min(LAST_PERIOD_LOG2);
        } else {
            self.since = (self.since + 1).min(1 << LAST_PERIOD_LOG2);
            // The program has begun to do something else; more than that was an interrupt.
            if before != 0 && (4 * time > 5 * before && time < 8 * before || 4 * time < 3 * before) {
                self.period_log2 = FIRST_PERIOD_LOG2;
            }
        }
        let [known, other] = [self.density, self.density.other()].map(|density| self.time[density as usize]);
        if known != 0 && other != 0 && other + known / LEAST_SAVED < known {
            Learned { density: self.density.other(), since: 0, period_log2: FIRST_PERIOD_LOG2, ..self }
        } else {
            self
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        let [dense, sparse] = self.time;
        let rest = self.density as u64 | self.since << 1 | self.period_log2 << 8;
        dense | sparse << TIME_BITS | rest << (2 * TIME_BITS)
    }

    /// Decodes a word of [`to_word`](Self::to_word); 0 is nothing learned. Any word is some value.
    pub(crate) fn from_word(word: u64) -> Learned {
        let rest = word >> (2 * TIME_BITS);
        Learned {
            time: [word & MOST_TIME, word >> TIME_BITS & MOST_TIME],
            density: if rest & 1 == 0 { WriteDensity::Dense } else { WriteDensity::Sparse },
            since: rest >> 1 & 0x7f,
            period_log2: (rest >> 8).clamp(FIRST_PERIOD_LOG2, LAST_PERIOD_LOG2),
        }
    }
}

#[cfg(test)]
mod tests;
