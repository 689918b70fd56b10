//! Programs.

#[path = "../../../kernel/src/linux/process/elf.rs"]
pub mod elf;
