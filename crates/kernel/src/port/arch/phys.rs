//! Physical memory as the kernel sees it: spans of it, the direct map, the image.

/// Where all physical memory below 512 GiB is mapped, without execution (K1).
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Where the image is linked: physical address + this.
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;

/// Bytes `start..end` of physical memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

unsafe extern "C" {
    static __text_start: u8;
    static __image_end: u8;
}

/// Where the byte at physical address `at` is mapped.
#[inline(always)]
pub fn direct_map(at: u64) -> *mut u8 {
    (DIRECT_MAP + at) as *mut u8
}

/// The image, in physical memory.
pub fn image_bounds() -> Span {
    Span { start: &raw const __text_start as u64 - IMAGE_BASE, end: &raw const __image_end as u64 - IMAGE_BASE }
}
