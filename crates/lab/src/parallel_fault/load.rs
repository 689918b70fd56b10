//! The pages that each thread touches, and the result of a run.

use super::options::Shape;
use std::ops::Range;
use std::time::Duration;

/// The pages that every row touches.
#[derive(Clone, Debug)]
pub struct Load {
    /// By whom.
    pub shape: Shape,
    /// Pages of the pool.
    pub nr_pages: u64,
    /// Bytes of one.
    pub page_bytes: u64,
    /// From one byte that is written to the next.
    pub skip_bytes: u64,
    /// Host CPUs to pin threads to, in turn.
    pub cpus: Vec<usize>,
}

impl Load {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.nr_pages * self.page_bytes
    }

    /// The parts of a thread: address space, and which bytes of it.
    pub fn parts(&self, thread: usize, nr_threads: usize) -> impl Iterator<Item = (usize, Range<u64>)> + use<> {
        let is_linear = self.shape == Shape::Linear;
        let part = self.nr_pages / nr_threads as u64 * self.page_bytes;
        let whole = 0..self.bytes();
        let spaces = if is_linear { 0..1 } else { thread..self.shape.nr_spaces() };
        let step = if is_linear { 1 } else { nr_threads };
        let bytes = if is_linear { thread as u64 * part..(thread as u64 + 1) * part } else { whole };
        spaces.step_by(step).map(move |space| (space, bytes.clone()))
    }

    /// The bytes that are written.
    pub fn touches(&self, bytes: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        bytes.step_by(self.skip_bytes as usize)
    }

    /// Pages that are touched, in all spaces together.
    pub fn nr_touched(&self, nr_threads: usize) -> u64 {
        let of = |bytes: Range<u64>| match self.skip_bytes {
            skip if skip <= self.page_bytes => (bytes.end - bytes.start) / self.page_bytes,
            skip => (bytes.end - bytes.start).div_ceil(skip),
        };
        (0..nr_threads).flat_map(|thread| self.parts(thread, nr_threads)).map(|(_, bytes)| of(bytes)).sum()
    }
}

/// The costs of one run of a row.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sample {
    /// From the first thread's start to the last one's end.
    pub wall: Duration,
    /// Mutexes; none without any, or where nobody tells.
    pub locks: Option<Locks>,
}

/// Statistics of the mutexes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Locks {
    /// How many there are.
    pub mutexes: u64,
    /// Times taken.
    pub acquisitions: u64,
    /// Not at the first try.
    pub contentions: u64,
    /// Microseconds that these took, all threads together.
    pub wait_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shape: Shape, skip_bytes: u64) -> Load {
        Load { shape, nr_pages: 12, page_bytes: 2 << 20, skip_bytes, cpus: vec![0] }
    }

    #[test]
    fn parts_are_equal_and_cover_all() {
        let linear = load(Shape::Linear, 2 << 20);
        let parts: Vec<_> = (0..3).flat_map(|thread| linear.parts(thread, 3)).collect();
        assert!(parts.iter().all(|(space, bytes)| *space == 0 && bytes.end - bytes.start == 8 << 20));
        assert_eq!((parts[0].1.start, parts[2].1.end), (0, linear.bytes()));
        assert_eq!(linear.touches(parts[1].1.clone()).count(), 4);
        let database = load(Shape::Database, 2 << 20);
        let mut spaces: Vec<usize> =
            (0..4).flat_map(|thread| database.parts(thread, 4)).map(|(space, _)| space).collect();
        spaces.sort_unstable();
        assert_eq!(spaces, (0..130).collect::<Vec<_>>());
    }

    #[test]
    fn pages_that_are_touched() {
        assert_eq!(load(Shape::Linear, 4096).nr_touched(3), 12);
        assert_eq!(load(Shape::Linear, 4 << 20).nr_touched(3), 6);
        assert_eq!(Load { nr_pages: 768, ..load(Shape::Database, 2 << 20) }.nr_touched(2), 99_840, "130 times 768");
    }
}
