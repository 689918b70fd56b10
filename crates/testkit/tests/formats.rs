//! Suites of this folder on other page tables: RISC-V's, on machines where software sets
//! accessed and dirty bits, and Arm's. `common/format.rs` chooses the format by the name of the
//! module, and a smaller number of repetitions.
#![allow(clippy::duplicate_mod)] // compiled for each format

#[path = "formats/sv39.rs"]
mod sv39;
#[path = "formats/sv48.rs"]
mod sv48;
#[path = "formats/vmsa48.rs"]
mod vmsa48;
