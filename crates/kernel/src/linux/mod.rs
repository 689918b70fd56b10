//! The personality: what makes programs believe that they run on Linux. Processes,
//! signals, files, system calls.

#![forbid(unsafe_code)]

mod attached;
mod entry;
pub mod errno;
pub mod file;
pub mod fs;
pub mod futex;
pub mod khugepaged;
pub mod knobs;
pub mod main_thread;
mod number;
pub mod oom;
mod pools;
pub mod proc;
pub mod process;
pub mod shm;
pub mod signal;
mod stats;
pub mod syscall;
mod terminal;
