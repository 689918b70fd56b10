//! Huge pages: what is common to all stations that know them.

pub(crate) mod khugepaged;
pub(crate) mod knobs;
pub(crate) mod now;
