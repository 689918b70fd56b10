//! The figures of 2017 and of January 2026.
//!
//! 2017: the commit message of "clear target sub-page last when clearing huge
//! page" (Linux 4.14): vm-scalability's anon-w-seq on two Xeon E5-2699 v3.
//! 2026: the change of Linux that replaced that order by three runs, and the
//! measurements on three servers that led to it.

/// Processes that wrote their own memory in sequence.
pub const PROCESSES_2017: u32 = 72;
/// Throughput of `converge` over `forward`, percent more.
pub const THROUGHPUT_2017_PERCENT: f64 = 28.3;
/// Last-level cache misses, percent of references: `forward`, `converge`.
pub const CACHE_MISS_2017_PERCENT: (f64, f64) = (33.4, 31.7);
/// Instructions per cycle: `forward`, `converge`.
pub const IPC_2017: (f64, f64) = (0.56, 0.74);
/// Time in the program, percent more with `converge`.
pub const USER_TIME_2017_PERCENT: f64 = -7.9;

/// GB/s on an AMD server: `converge`, and the same page from start to end.
pub const SERVER_2026_GB_PER_S: (f64, f64) = (11.76, 23.58);
/// Kernel time saved there by `runs`, percent, from and to.
pub const RUNS_2026_SAVED_PERCENT: (f64, f64) = (2.0, 3.0);
