//! Station `huge`: the knobs of huge pages, and the steps of their daemons.
//!
//! | file | contents |
//! | --- | --- |
//! | `knobs` | all knobs as one value |
//! | `words`, `now` | the knobs as a running [`Vm`](crate::Vm) keeps them, and how they are changed |
//! | `khugepaged` | one step of the scan of a space |
//! | `ahead` | zeroing of free blocks ahead of time |
//! | `underused` | splitting from outside, and of huge pages that are mostly zeroes |
//!
//! Faults on huge pages are in `fault/huge.rs`, huge frames in `frame/huge.rs`, the
//! entries in `table/pmd.rs`, the split of a mapping in `space/split.rs`, the collapse
//! in `space/ops/collapse.rs`. Of the last three files only `underused` is called from
//! below: it is half of [`Relief`](crate::space::vm::Relief).

mod ahead;
pub(crate) mod khugepaged;
pub(crate) mod knobs;
pub(crate) mod now;
mod underused;
pub(crate) mod words;
