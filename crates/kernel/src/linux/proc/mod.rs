//! The contents of `/proc` and `/sys`: implementations of [`Generate`](crate::linux::fs::inode::generated::Generate).
//!
//! `names` has the names that are always there, `fixed` is what can be done with one; `process` has
//! those of a process, `fd` its open files, `subject` finds the process. `system`, `memory` and
//! `mappings` write the texts, `linux::knobs` are the numbers that can be set, `huge` the knobs of
//! huge pages, `hugetlb` those of their pools, `setting` is one of either. `sysvipc` lists segments of shared memory.

mod fd;
mod fixed;
mod huge;
mod hugetlb;
mod mappings;
mod memory;
mod names;
mod process;
mod setting;
mod subject;
mod system;
mod sysvipc;

pub use names::{proc, sys};
