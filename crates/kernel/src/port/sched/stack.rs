//! Kernel stacks, and what a new one holds.

use crate::port::arch::cpu::STACK_BYTES;
use crate::port::arch::frame::Frame;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr::NonNull;

/// Last word of a kernel stack, to notice that one was too small.
const CANARY: u64 = 0x5afe_57ac_c0de_b10c;

/// Memory for kernel code to run on.
pub struct KernelStack(NonNull<u8>);

// SAFETY: K4: owned memory, used by the CPU that runs the thread.
unsafe impl Send for KernelStack {}
// SAFETY: K4: as above.
unsafe impl Sync for KernelStack {}

impl KernelStack {
    const LAYOUT: Layout = match Layout::from_size_align(STACK_BYTES, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };
    /// A new stack, or nothing if the heap has no room.
    pub fn new() -> Option<KernelStack> {
        // SAFETY: K4: the layout is not empty.
        let bottom = NonNull::new(unsafe { alloc(KernelStack::LAYOUT) })?;
        // SAFETY: K4: just allocated, aligned to 16.
        unsafe { bottom.cast::<u64>().write(CANARY) };
        Some(KernelStack(bottom))
    }
    /// One past its last byte.
    pub fn top(&self) -> u64 {
        self.0.as_ptr() as u64 + STACK_BYTES as u64
    }
    /// Whether the stack has never run over.
    pub fn is_intact(&self) -> bool {
        // SAFETY: K4: inside the allocation.
        unsafe { self.0.cast::<u64>().read_volatile() == CANARY }
    }
    /// Lays `frame` on top; gives its address.
    pub(super) fn put_frame(&self, frame: Frame) -> u64 {
        let at = self.top() - size_of::<Frame>() as u64;
        // SAFETY: K4: the new stack is ours alone; its top is aligned to 16 and
        // the frame's size is a multiple of that.
        unsafe { (at as *mut Frame).write(frame) };
        at
    }
    /// Lays under `at` what makes a switch go to `begin` with `at` as stack
    /// pointer; gives the context to switch to.
    pub(super) fn put_context(&self, at: u64, begin: u64) -> u64 {
        let words = (at - 7 * 8) as *mut u64;
        // SAFETY: K4: as above, and far from the bottom.
        unsafe {
            (0..6).for_each(|i| words.add(i).write(0));
            words.add(6).write(begin);
        }
        words as u64
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the thread has left it (K4).
        unsafe { dealloc(self.0.as_ptr(), KernelStack::LAYOUT) }
    }
}
