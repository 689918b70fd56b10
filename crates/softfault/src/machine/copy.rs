//! How a machine has copied a frame.

/// The answer of [`Machine::copy_frame`](super::Machine::copy_frame).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameCopy {
    /// Nothing was done: the core copies this frame, and those behind it that it copies together, by ordinary loads, which
    /// cannot fail.
    ByCore,
    /// All bytes were copied.
    Done,
    /// The memory of the source failed. The target has any bytes.
    SourceFailed,
}
