//! The types of a machine's swap area.

/// The machine could not write or read a page of its swap area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapError;

impl core::fmt::Display for SwapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("swap area: the page could not be written or read")
    }
}
impl core::error::Error for SwapError {}
