//! The CPU: descriptor tables, entries, interrupt controller, clocks, floating
//! point, physical memory. Nothing here knows of threads or memory management.

pub mod apic;
pub mod cpu;
pub mod descriptors;
pub mod fpu;
pub mod frame;
pub mod phys;
pub mod segments;
pub mod serial;
pub mod time;

core::arch::global_asm!(include_str!("bytes.s"));
core::arch::global_asm!(include_str!("entry.s"));
