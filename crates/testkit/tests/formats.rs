//! Suites of this folder on other page tables: those of RISC-V, on machines that leave
//! accessed and dirty to software, and Arm's. `common/format.rs` chooses the format by the name of
//! the module, and how much less is repeated.
#![allow(clippy::duplicate_mod)] // compiled for each format

#[path = "formats/sv39.rs"]
mod sv39;
#[path = "formats/sv48.rs"]
mod sv48;
#[path = "formats/vmsa48.rs"]
mod vmsa48;
