//! Floating-point state of threads. xmm0-15 and MXCSR are in each entry's frame;
//! here is the whole image, x87 included, kept while a thread is off its CPU.
//! AVX stays off, and programs see that it is: CPUID has no bit of it (`softfault run`).

use core::arch::asm;
use core::cell::UnsafeCell;

/// Bytes of an FXSAVE image.
pub const IMAGE_BYTES: usize = 512;
/// Bits that MXCSR has.
pub const MXCSR_MASK: u32 = 0xffff;
const KERNEL_MXCSR: u32 = 0x1f80;

/// An FXSAVE image.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Image(pub [u8; IMAGE_BYTES]);

/// Stores the executing CPU's image.
///
/// # Safety
///
/// `to` is 512 bytes, aligned to 16, the caller's to write.
unsafe fn store(to: *mut u8) {
    // SAFETY: K6: writes those 512 bytes and changes no register.
    unsafe { asm!("fxsave64 [{}]", in(reg) to, options(nostack, preserves_flags)) }
}

/// Loads the executing CPU's image.
///
/// # Safety
///
/// `from` is an aligned image that [`store`] or [`Image::initial`] made, or one
/// whose MXCSR has no other bits than [`MXCSR_MASK`].
unsafe fn load(from: *const u8) {
    // SAFETY: K6: the image is legal; the compiler is told that all floating
    // registers change.
    unsafe { asm!("fxrstor64 [{}]", in(reg) from, clobber_abi("C"), options(nostack)) }
}

impl Image {
    /// The state of a new program: all exceptions masked, registers empty.
    pub const fn initial() -> Image {
        let mut bytes = [0; IMAGE_BYTES];
        bytes[0] = 0x7f;
        bytes[1] = 0x03;
        bytes[24] = 0x80;
        bytes[25] = 0x1f;
        Image(bytes)
    }
    /// The executing CPU's state now.
    pub fn current() -> Image {
        let mut image = Image::initial();
        // SAFETY: K6: the image is ours, aligned by its type.
        unsafe { store(image.0.as_mut_ptr()) };
        image
    }
    /// Makes its x87 part the executing CPU's state. A program's value for
    /// MXCSR goes to its frame; inside the kernel the kernel's own is in force.
    pub fn load(&mut self) {
        self.0[24..28].copy_from_slice(&KERNEL_MXCSR.to_le_bytes());
        // SAFETY: K6: aligned by its type, MXCSR set to a legal value.
        unsafe { load(self.0.as_ptr()) };
    }
}

/// Where a thread's image lies while it is off its CPU.
pub struct Saved(UnsafeCell<Image>);

// SAFETY: K4: only the CPU that runs the thread, or is about to, uses it.
unsafe impl Sync for Saved {}

impl Saved {
    /// Holding `image`.
    pub fn new(image: Image) -> Saved {
        Saved(UnsafeCell::new(image))
    }
    /// Saves the CPU's state; the thread runs on this CPU.
    pub fn save(&self) {
        // SAFETY: K4 as above, K6: aligned by its type.
        unsafe { store(self.0.get().cast()) }
    }
    /// Restores it; the thread is about to run on this CPU.
    pub fn restore(&self) {
        // SAFETY: K4 and K6: an image that `save` or `Image::initial` made.
        unsafe { load(self.0.get().cast_const().cast()) }
    }
}
