//! The reference kernel, as `build.rs` built it.

/// An ELF file that QEMU's `-kernel` takes (PVH).
pub const KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softfault-kernel"));
