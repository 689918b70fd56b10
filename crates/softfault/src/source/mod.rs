//! Module `source`: where the bytes of a page come from.
//!
//! Private anonymous memory needs nothing but frames of zeroes, which `frame`
//! has; shared memory has an object that remembers its frames. `object` is what
//! faults see of it, `pages` goes over them in order, `handle` is what the embedder
//! holds, `discard` how pages leave an object that lives on, `refs` how long an object
//! lives, `transit` how its pages go to the swap area and come back, `keep` what keeps it for who comes from a frame of it, `check` what has to be true of objects at rest.
//!
//! This module works on `Links`, save `handle`, `prealloc`, `bring` and `write_error`, which are operations, and `check`.

pub(crate) mod bring;
mod check;
mod cut;
mod cut_nodes;
mod cut_plan;
mod discard;
mod fail;
mod fill;
pub(crate) mod fill_large;
pub(crate) mod handle;
pub(crate) mod keep;
pub(crate) mod members;
pub(crate) mod object;
mod pages;
mod prealloc;
mod refs;
pub(crate) mod slot;
pub(crate) mod swapped;
mod swapped_slot;
mod tail_descs;
pub(crate) mod transit;
pub(crate) mod write_error;
