//! A file of this process's kernel, mapped by raw system calls: what private mappings of files do.
//!
//! Bytes of mappings are read and written by a pipe, so that a page that cannot be touched gives
//! EFAULT and no signal. N4 holds here, too: all mappings lie in a range that nobody else has.

use super::call;
use crate::op::PAGE;

/// Where the mappings lie, and how many pages they have room for.
pub const PLACE: u64 = 0x18_0000_0000;
/// See [`PLACE`].
pub const PLACE_PAGES: u64 = 32;

/// A file in memory, and a pipe.
pub struct NativeFile {
    file: u64,
    pipe: [i32; 2],
}

/// The number of a system call, or minus the errno.
pub type Answer = i64;

impl NativeFile {
    /// An empty file. Gives back what refuses.
    ///
    /// # Errors
    ///
    /// Minus the errno of memfd_create(2) or pipe(2).
    pub fn new() -> Result<NativeFile, Answer> {
        let name = c"softfault";
        let file = call(libc::SYS_memfd_create, [name.as_ptr() as u64, 0, 0, 0, 0, 0]);
        let mut pipe = [0; 2];
        let piped = call(libc::SYS_pipe2, [pipe.as_mut_ptr() as u64, 0, 0, 0, 0, 0]);
        if file < 0 || piped < 0 { Err(file.min(piped)) } else { Ok(NativeFile { file: file as u64, pipe }) }
    }

    /// mmap(2) of the file at a page of [`PLACE`].
    pub fn map(&self, page: u64, nr: u64, prot: u64, is_private: bool, first: u64) -> Answer {
        let kind = if is_private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        let flags = (kind | libc::MAP_FIXED) as u64;
        call(libc::SYS_mmap, [addr(page), nr * PAGE, prot, flags, self.file, first * PAGE]).min(0)
    }
    /// munmap(2).
    pub fn unmap(&self, page: u64, nr: u64) -> Answer {
        call(libc::SYS_munmap, [addr(page), nr * PAGE, 0, 0, 0, 0])
    }
    /// mprotect(2).
    pub fn protect(&self, page: u64, nr: u64, prot: u64) -> Answer {
        call(libc::SYS_mprotect, [addr(page), nr * PAGE, prot, 0, 0, 0])
    }
    /// mremap(2) of one page.
    pub fn move_page(&self, from: u64, to: u64, flags: u64) -> Answer {
        call(libc::SYS_mremap, [addr(from), PAGE, PAGE, flags, addr(to), 0]).min(0)
    }
    /// madvise(2).
    pub fn advise(&self, page: u64, nr: u64, advice: u64) -> Answer {
        call(libc::SYS_madvise, [addr(page), nr * PAGE, advice, 0, 0, 0])
    }
    /// A byte of the mappings.
    pub fn load(&self, page: u64) -> Answer {
        let written = call(libc::SYS_write, [self.pipe[1] as u64, addr(page), 1, 0, 0, 0]);
        if written == 1 { i64::from(self.take()) } else { written }
    }
    /// Writes the first byte of a page.
    pub fn store(&self, page: u64, byte: u8) -> Answer {
        call(libc::SYS_write, [self.pipe[1] as u64, (&raw const byte) as u64, 1, 0, 0, 0]);
        let read = call(libc::SYS_read, [self.pipe[0] as u64, addr(page), 1, 0, 0, 0]);
        if read == 1 {
            return 0;
        }
        self.take();
        read
    }
    fn take(&self) -> u8 {
        let mut byte = 0u8;
        call(libc::SYS_read, [self.pipe[0] as u64, (&raw mut byte) as u64, 1, 0, 0, 0]);
        byte
    }
    /// The first byte of a page of the file; -1 beyond its end.
    pub fn file_load(&self, page: u64) -> Answer {
        let mut byte = 0u8;
        let nr = call(libc::SYS_pread64, [self.file, (&raw mut byte) as u64, 1, page * PAGE, 0, 0]);
        if nr == 1 { i64::from(byte) } else { -1 }
    }
    /// Writes it.
    pub fn file_store(&self, page: u64, byte: u8) -> Answer {
        call(libc::SYS_pwrite64, [self.file, (&raw const byte) as u64, 1, page * PAGE, 0, 0]).min(0)
    }
    /// ftruncate(2).
    pub fn set_size(&self, bytes: u64) -> Answer {
        call(libc::SYS_ftruncate, [self.file, bytes, 0, 0, 0, 0])
    }
    /// fallocate(2) of a hole.
    pub fn punch(&self, page: u64, nr: u64) -> Answer {
        let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u64;
        call(libc::SYS_fallocate, [self.file, mode, page * PAGE, nr * PAGE, 0, 0])
    }
    /// mincore(2): a bit for each page, at most 8.
    pub fn mincore(&self, page: u64, nr: u64) -> Answer {
        let mut bytes = [0u8; 8];
        let ret = call(libc::SYS_mincore, [addr(page), nr * PAGE, bytes.as_mut_ptr() as u64, 0, 0, 0]);
        if ret < 0 {
            return ret;
        }
        bytes.iter().enumerate().map(|(i, byte)| i64::from(byte & 1) << i).sum()
    }
}

impl Drop for NativeFile {
    fn drop(&mut self) {
        self.unmap(0, PLACE_PAGES);
        for fd in [self.file, self.pipe[0] as u64, self.pipe[1] as u64] {
            call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        }
    }
}

fn addr(page: u64) -> u64 {
    PLACE + page * PAGE
}
