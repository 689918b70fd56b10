//! The mapping itself: `mmap(2)`, or an allocation under Miri, which knows no mapping with flags.
#![allow(unsafe_code)]

const ALIGN_BYTES: usize = 2 << 20;

pub(super) use of_host::{map, unmap};

#[cfg(not(miri))]
mod of_host {
    use super::ALIGN_BYTES;
    use core::ffi::c_void;
    use core::ptr::{self, NonNull};
    use rustix::io::Errno;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Maps `len` bytes of zeroes, aligned to 2 MiB.
    pub fn map(len: usize, huge: bool) -> Result<NonNull<u8>, Errno> {
        let padded = len.checked_add(ALIGN_BYTES).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: E1: a new mapping at an address of the host's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let head = start.addr().next_multiple_of(ALIGN_BYTES) - start.addr();
        let tail = padded - head - len;
        // SAFETY: E1: `head` is below the alignment, so all stays in the mapping.
        let base = unsafe { start.byte_add(head) };
        // SAFETY: E1: the two ends that alignment leaves over, which nobody knows
        // of yet; they are whole pages.
        unsafe {
            trim(start, head);
            trim(base.byte_add(len), tail);
            // Advice that a host without huge pages refuses changes nothing.
            let _ = madvise(base, len, if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage });
        }
        NonNull::new(base.cast()).ok_or(Errno::NOMEM)
    }

    /// # Safety
    ///
    /// E1: a whole mapping of `map`, which nobody uses.
    pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: E1: the caller's promise.
        unsafe { trim(base.as_ptr().cast(), len) }
    }

    /// # Safety
    ///
    /// E1: nobody uses these pages.
    unsafe fn trim(start: *mut c_void, len: usize) {
        if len > 0 {
            // SAFETY: E1: the caller's promise. A refusal would leave pages mapped
            // that nobody uses, which harms nobody.
            let _ = unsafe { munmap(start, len) };
        }
    }
}

#[cfg(miri)]
mod of_host {
    use super::ALIGN_BYTES;
    use core::ptr::NonNull;
    use rustix::io::Errno;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len, ALIGN_BYTES).ok().filter(|layout| layout.size() > 0)
    }

    /// Allocates `len` bytes of zeroes, aligned to 2 MiB.
    pub fn map(len: usize, _huge: bool) -> Result<NonNull<u8>, Errno> {
        let layout = layout(len).ok_or(Errno::INVAL)?;
        // SAFETY: E1: the layout has a size.
        NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)
    }

    /// # Safety
    ///
    /// E1: a whole allocation of `map`, which nobody uses.
    pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
        if let Some(layout) = layout(len) {
            // SAFETY: E1: the caller's promise.
            unsafe { dealloc(base.as_ptr(), layout) }
        }
    }
}
