//! The host's pool of 2 MiB pages, and a file of it: for a process whose parent could open the pool's files.
//!
//! N4 holds here: nothing is allocated.

use super::files::{punch, read_byte};
use super::probe::{Probe, probe};
use super::{call, plain};
use crate::model::PoolCounts;
use crate::op::{Call, HUGE, Op, Outcome};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The files of the pool. Opened with root's rights, and used without. Its size, which is with surplus pages.
static SIZE: AtomicI64 = AtomicI64::new(-1);
/// Its surplus pages.
static SURPLUS: AtomicI64 = AtomicI64::new(-1);
/// Those that nobody has.
static FREE: AtomicI64 = AtomicI64::new(-1);
/// Of these, those that are promised.
static RESERVED: AtomicI64 = AtomicI64::new(-1);
/// Pages that the host's kernel has reserved for nobody, for good: some sequences leave one. They are no sequence's: its pool is that much larger.
static KEPT: AtomicI64 = AtomicI64::new(0);
/// The most surplus pages.
static MOST_SURPLUS: AtomicI64 = AtomicI64::new(-1);

const FILES: [(&AtomicI64, &CStr, i32); 5] = [
    (&SIZE, c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", libc::O_RDWR),
    (&SURPLUS, c"/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", libc::O_RDONLY),
    (&FREE, c"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", libc::O_RDONLY),
    (&RESERVED, c"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", libc::O_RDONLY),
    (&MOST_SURPLUS, c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", libc::O_RDWR),
];

/// Lets this process and its children set the size of the host's pool, in which `nr_kept` pages are reserved for nobody. Returns
/// whether it may.
pub fn open_host_pool(nr_kept: u64) -> bool {
    KEPT.store(nr_kept as i64, Relaxed);
    for (file, path, how) in FILES {
        let opened = call(libc::SYS_openat, [libc::AT_FDCWD as u64, path.as_ptr() as u64, how as u64, 0, 0, 0]);
        file.store(opened, Relaxed);
    }
    FILES.iter().all(|(file, ..)| file.load(Relaxed) >= 0)
}

/// The counts of the host's pool, or `None` where this process may not set it. Exact where nobody else uses the pool. Fewer than the
/// kernel kept before the sequence, or a number that could not be read, is beyond any size: a number below 0.
pub fn host_pool_counts() -> Option<PoolCounts> {
    let kept = KEPT.load(Relaxed);
    let [nr, free, reserved] = [&SIZE, &FREE, &RESERVED].map(|file| (read_number(file) - kept) as u64);
    let surplus = read_number(&SURPLUS) as u64;
    (SIZE.load(Relaxed) >= 0).then_some(PoolCounts { nr, free, reserved, surplus })
}

/// Digits of the largest number.
const DIGITS: usize = 20;

fn write_number(file: &AtomicI64, mut number: u64) -> i64 {
    let (mut text, mut at) = ([0; DIGITS], DIGITS);
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let (descriptor, digits) = (file.load(Relaxed) as u64, &text[at..]);
    call(libc::SYS_pwrite64, [descriptor, digits.as_ptr() as u64, digits.len() as u64, 0, 0, 0])
}

fn read_number(file: &AtomicI64) -> i64 {
    let mut text = [0u8; DIGITS + 1];
    let descriptor = file.load(Relaxed) as u64;
    let nr = call(libc::SYS_pread64, [descriptor, text.as_mut_ptr() as u64, text.len() as u64, 0, 0, 0]);
    let digits = text.iter().take(nr.max(0) as usize).take_while(|byte| byte.is_ascii_digit());
    if nr < 0 { nr } else { digits.fold(0, |number, byte| number * 10 + i64::from(byte - b'0')) }
}

/// Sets both. Returns the size that the pool has then, without surplus pages.
fn set(nr: u64, most_surplus: u64) -> Outcome {
    let kept = KEPT.load(Relaxed);
    for (file, number) in [(&MOST_SURPLUS, most_surplus), (&SIZE, nr + kept as u64)] {
        let written = write_number(file, number);
        if written < 0 {
            return plain(written);
        }
    }
    plain(read_number(&SIZE) - read_number(&SURPLUS) - kept)
}

/// The file of a sequence.
pub(super) struct PoolFile(AtomicI64);

impl Default for PoolFile {
    fn default() -> PoolFile {
        PoolFile(AtomicI64::new(-1))
    }
}

impl PoolFile {
    /// The descriptor, as an argument.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }

    pub(super) fn close(&self) {
        let descriptor = self.0.swap(-1, Relaxed);
        if descriptor >= 0 {
            call(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]);
        }
    }

    fn make(&self, nr_pages: u64) -> Outcome {
        self.close();
        let flags = u64::from(libc::MFD_HUGETLB | libc::MFD_HUGE_2MB);
        let made = call(libc::SYS_memfd_create, [c"softfault".as_ptr() as u64, flags, 0, 0, 0, 0]);
        let sized = call(libc::SYS_ftruncate, [made as u64, nr_pages * HUGE, 0, 0, 0, 0]);
        if made < 0 || sized < 0 {
            return plain(made.min(sized));
        }
        self.0.store(made, Relaxed);
        Outcome::Value(0)
    }

    /// A step about the pool or the file, but for a mapping.
    pub(super) fn step(&self, op: &Op) -> Outcome {
        let ([a, b, ..], file) = (op.args, self.get());
        match op.call {
            _ if SIZE.load(Relaxed) < 0 => Outcome::Broken(2),
            Call::PoolSize => set(a, b),
            Call::PoolFile => self.make(a),
            Call::PoolFileSize => plain(call(libc::SYS_ftruncate, [file, a, 0, 0, 0, 0])),
            Call::PoolFilePunch => punch(file, a, b),
            Call::PoolFileRead => read_byte(file, a),
            Call::PoolFileWrite => self.write(a, b),
            _ => Outcome::Broken(4),
        }
    }

    /// Linux has no write(2) for it: a mapping without a reservation stores the byte.
    fn write(&self, at: u64, byte: u64) -> Outcome {
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
        let page = at & !(HUGE - 1);
        let mapped = call(libc::SYS_mmap, [0, HUGE, 3, flags, self.get(), page]);
        if mapped < 0 {
            return plain(mapped);
        }
        let stored = probe(Probe::Store1, mapped as u64 + (at - page), byte);
        call(libc::SYS_munmap, [mapped as u64, HUGE, 0, 0, 0, 0]);
        if stored == Outcome::ADRERR { Outcome::Errno(libc::ENOSPC as u64) } else { stored }
    }
}
