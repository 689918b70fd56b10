//! Station `source`: where the bytes of a page come from.
//!
//! Private anonymous memory needs nothing but frames of zeroes, which `frame`
//! has; shared memory has an object that remembers its frames. `object` is what
//! faults see of it, `handle` what the embedder holds, `discard` how pages leave
//! an object that lives on, `check` what has to be true of objects at rest.

mod check;
mod discard;
pub(crate) mod handle;
pub(crate) mod object;
mod pages;
