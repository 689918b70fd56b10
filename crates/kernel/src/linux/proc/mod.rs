//! The contents of `/proc` and `/sys`: implementations of [`Generate`](crate::linux::fs::inode::generated::Generate).
//!
//! `fixed` has the names that are always there, `process` those of a process,
//! `system`, `memory` and `mappings` write the texts, `linux::knobs` are the numbers that
//! can be set, `huge` the knobs of huge pages, `hugetlb` those of their pools.

mod fd;
mod fixed;
mod huge;
mod hugetlb;
mod mappings;
mod memory;
mod process;
mod system;

pub use fixed::{proc, sys};
