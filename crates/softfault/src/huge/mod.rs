//! Huge pages: what is common to all stations that know them.

mod ahead;
pub(crate) mod khugepaged;
pub(crate) mod knobs;
pub(crate) mod now;
mod underused;
pub(crate) mod words;
