//! Station `source`: where the bytes of a page come from.
//!
//! Private anonymous memory needs nothing but frames of zeroes, which `frame`
//! has; shared anonymous memory has an object that remembers its frames.

pub(crate) mod object;
