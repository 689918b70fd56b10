//! The kernel image that `build.rs` built.

/// The reference kernel: an ELF file that QEMU's `-kernel` takes (PVH).
pub const KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softfault-kernel"));
/// The program that times other programs, for both systems.
pub const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softfault-probe"));
