//! From the loader's hand-over to a machine with all CPUs up: what the loader
//! says (`info`), the kernel's own page tables (`paging`), the other CPUs
//! (`smp`).

pub mod info;
pub mod paging;
pub mod smp;

core::arch::global_asm!(include_str!("start.s"), options(att_syntax));
