//! Module `source`: the sources of page content, that is, shared objects.
//!
//! Private anonymous memory only needs zeroed frames from `frame`. Shared memory has an object, which owns its
//! frames. `object` is the part that faults use, `pages` iterates over the pages, `handle` is the embedder's
//! handle, `discard` removes pages from a live object, `refs` counts references, `transit` moves pages to the
//! swap area and back, `file` reads them from a file, `keep` takes references from a frame of the object, `part` takes a part of a folio out of its
//! frames, `check` checks objects at rest.
//!
//! This module works on `Links`, except `handle`, `hole`, `io_bytes`, `prealloc`, `bring` and `write_error`, which are operations,
//! and `check`.

pub(crate) mod bring;
mod check;
mod create;
mod cut;
mod cut_nodes;
mod cut_plan;
mod discard;
#[cfg(feature = "files")]
pub(crate) mod explicit;
mod fail;
pub(crate) mod file;
mod file_slot;
pub(crate) mod file_write;
mod fill;
pub(crate) mod fill_large;
pub(crate) mod handle;
mod hole;
#[cfg(feature = "files")]
pub(crate) mod io_bytes;
pub(crate) mod keep;
pub(crate) mod late_calls;
mod late_words;
pub(crate) mod members;
mod node;
pub(crate) mod object;
pub(crate) mod object_slot;
mod pages;
pub(crate) mod part;
mod prealloc;
mod readahead;
mod refs;
pub(crate) mod reserved;
mod reserved_nodes;
mod reserved_slot;
pub(crate) mod slot;
mod spread;
pub(crate) mod swapped;
mod swapped_slot;
mod tail_descs;
pub(crate) mod transit;
pub(crate) mod write_error;
pub(crate) mod zero;
