//! The kernel's files that parse, and what they need of its file systems.
#![allow(dead_code, missing_docs)] // the kernel uses the rest, and documents it

#[path = "../../kernel/src/linux/errno.rs"]
pub mod errno;
pub mod fs;
#[path = "../../kernel/src/linux/number.rs"]
pub mod number;
pub mod process;
