//! Runs steps in this process, by raw system calls and real accesses. The child of
//! `linux.rs` uses it, and a program that runs sequences on the reference kernel or, to
//! validate the program, on the host's Linux.
//!
//! The child implements fork and exit itself. Several threads may run steps at once, each in
//! its own part of the window. `probe` has their accesses.
//!
//! - **N4** from [`Turn::begin`] to [`Turn::end`] nobody in the process
//!   allocates; steps touch only the window, the heap past the break of the
//!   beginning, and mappings that the kernel placed for them.
//! - **N5** the signal handler runs on the stack of the thread that faulted,
//!   which no step touches, and changes only registers that a probe gives back.
#![allow(unsafe_code)]

mod files;
mod pool;
mod probe;

use crate::features::{Features, LOCKED_PAGES_MAX};
use crate::numbers::{MAP_HUGETLB, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::op::{
    Call, HEAP, HEAP_BYTES, HUGE, MARGIN_BYTES, MOST_POOL_PAGES, Op, Outcome, PAGE, POOL_WINDOW, POOL_WINDOW_PAGES,
    TASK_SIZE, WINDOW, WINDOW_PAGES, is_ours,
};
use core::convert::Infallible;
pub use pool::{host_pool_counts, open_host_pool};
use probe::{Probe, probe};

/// An account without rights, `nobody` on most systems.
const NOBODY: u64 = 65534;
/// Where a program's first stack may lie.
const TOP_BYTES: u64 = 64 << 20;

fn call(nr: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: N4: a raw system call with the step's arguments.
    let ret = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if ret != -1 {
        return ret;
    }
    // SAFETY: N4: the location of this thread's errno.
    -i64::from(unsafe { *libc::__errno_location() })
}

/// Takes the signals, and gives up root's rights, and huge pages until a step asks
/// for them, so that every Linux gives the same answers. A kernel lacks what it does not know of.
pub fn prepare() {
    probe::install();
    refuse_huge_pages();
    limit(libc::RLIMIT_STACK, 8 << 20);
    // Refused if the caller is not root and has less; then sequences go without.
    limit(libc::RLIMIT_MEMLOCK, 16 * LOCKED_PAGES_MAX * PAGE);
    call(libc::SYS_setresgid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
    call(libc::SYS_setresuid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
}

fn refuse_huge_pages() {
    call(libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0]);
}

fn limit(which: u32, bytes: u64) {
    let limits = [bytes; 2];
    call(libc::SYS_prlimit64, [0, u64::from(which), limits.as_ptr() as u64, 0, 0, 0]);
}

/// The kernel's features.
pub fn features() -> Features {
    let run = |steps: &[Op]| {
        let turn = Turn::begin();
        let good = steps.iter().fold(false, |_, op| turn.step(op).is_success());
        turn.end();
        Ok::<_, Infallible>(good)
    };
    Features::probe(run).unwrap_or_else(|never| match never {})
}

/// Whether a step keeps off what is this process's own and the model does not
/// have: the top of user memory, where its stack is, and what lies below the
/// heap of the beginning.
pub fn is_safe(op: &Op) -> bool {
    let addr = op.args[0];
    match op.call {
        Call::Mmap | Call::Munmap => true,
        Call::Brk => addr == 0 || addr >= HEAP,
        _ => !(TASK_SIZE - TOP_BYTES..TASK_SIZE).contains(&addr),
    }
}

/// The CPUs that this process may use, of the first 64.
#[derive(Clone, Copy)]
pub struct Cpus(u64);

impl Cpus {
    /// As the kernel says.
    pub fn allowed() -> Cpus {
        let mut mask = [0u64; 16];
        call(libc::SYS_sched_getaffinity, [0, size_of_val(&mask) as u64, mask.as_mut_ptr() as u64, 0, 0, 0]);
        Cpus(mask[0])
    }

    /// Goes on with the calling thread on one of them.
    pub fn hop(self, which: u64) {
        let mut left = self.0;
        for _ in 0..which % u64::from(self.0.count_ones().max(1)) {
            left &= left - 1;
        }
        let mask = left & left.wrapping_neg();
        call(libc::SYS_sched_setaffinity, [0, size_of_val(&mask) as u64, (&raw const mask) as u64, 0, 0, 0]);
    }
}

/// While a sequence runs.
pub struct Turn {
    /// The break at the beginning.
    brk: u64,
    /// Where steps see [`HEAP`]: the first page behind a gap that nobody has.
    heap: u64,
    files: files::Files,
    pool_file: pool::PoolFile,
}

/// [`HEAP`] and what stands for it are at the same place in a huge page.
const HUGE_BYTES: u64 = 2 << 20;
const _: () = assert!(HEAP.is_multiple_of(HUGE_BYTES));

impl Turn {
    /// From here on nobody may allocate (N4).
    pub fn begin() -> Turn {
        let brk = call(libc::SYS_brk, [0; 6]) as u64;
        let own_end = brk.next_multiple_of(PAGE);
        let heap = (own_end + PAGE).next_multiple_of(HUGE_BYTES);
        call(libc::SYS_brk, [heap, 0, 0, 0, 0, 0]);
        // No VMA of a step merges with the allocator's.
        call(libc::SYS_mprotect, [own_end, heap - own_end, 0, 0, 0, 0]);
        Turn { brk, heap, files: files::Files::default(), pool_file: pool::PoolFile::default() }
    }

    /// Unmaps all that steps may have mapped, and refuses huge pages again.
    pub fn end(&self) {
        refuse_huge_pages();
        self.files.close();
        self.leave_pool();
        call(libc::SYS_munmap, [WINDOW - MARGIN_BYTES, WINDOW_PAGES * PAGE + 2 * MARGIN_BYTES, 0, 0, 0, 0]);
        let now = call(libc::SYS_brk, [0; 6]) as u64;
        if now > self.heap {
            // A step may have unmapped the heap's end, and then the break does not
            // shrink: map the hole first.
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
            call(libc::SYS_mmap, [self.heap, (now - self.heap).next_multiple_of(PAGE), 3, flags, u64::MAX, 0]);
        }
        call(libc::SYS_brk, [self.brk, 0, 0, 0, 0, 0]);
        call(libc::SYS_munmap, [self.heap, HEAP_BYTES, 0, 0, 0, 0]);
    }

    /// Gives back all that the program has of the pool, behind the window, too. The kernel does so some time after the program's
    /// exit.
    pub fn leave_pool(&self) {
        self.pool_file.close();
        call(libc::SYS_munmap, [POOL_WINDOW, (POOL_WINDOW_PAGES + MOST_POOL_PAGES) * HUGE, 0, 0, 0, 0]);
    }

    /// Executes a step of the one program there is.
    pub fn step(&self, op: &Op) -> Outcome {
        let [a, b, c, d, e, f] = op.args;
        let at = self.to_real(a);
        match op.call {
            Call::Mmap => {
                let len = if d & MAP_HUGETLB != 0 { b.next_multiple_of(HUGE) } else { b };
                self.settle(call(libc::SYS_mmap, [at, b, c, d, u64::MAX, 0]), len, e)
            }
            Call::Mremap => self.settle(call(libc::SYS_mremap, [at, b, c, d, self.to_real(e), 0]), c, f),
            Call::Munmap => plain(call(libc::SYS_munmap, [at, b, 0, 0, 0, 0])),
            Call::Mprotect => plain(call(libc::SYS_mprotect, [at, b, c, 0, 0, 0])),
            Call::Madvise => plain(call(libc::SYS_madvise, [at, b, c, 0, 0, 0])),
            Call::Brk => Outcome::Value(self.to_logical(call(libc::SYS_brk, [at, 0, 0, 0, 0, 0]) as u64)),
            Call::Mincore => mincore(at, b),
            Call::Load => probe(if b == 1 { Probe::Load1 } else { Probe::Load8 }, at, 0),
            Call::Store => probe(if b == 1 { Probe::Store1 } else { Probe::Store8 }, at, c),
            Call::Exec => probe(Probe::Exec, at, 0),
            Call::Knobs => Outcome::Value(0),
            Call::ThpDisable => plain(call(libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, a, 0, 0, 0, 0])),
            Call::MakeFiles => self.files.make(),
            Call::MmapFile => {
                let (file, offset) = (self.files.get(f >> 32), (f & 0xffff_ffff) * PAGE);
                self.settle(call(libc::SYS_mmap, [at, b, c, d, file, offset]), b, e)
            }
            Call::FileSize | Call::FilePunch | Call::FileRead | Call::FileWrite => self.files.step(op),
            Call::PoolMap => self.settle(call(libc::SYS_mmap, [at, b, c, d, self.pool_file.get(), f * PAGE]), b, e),
            call if call.is_of_pool() => self.pool_file.step(op),
            _ => Outcome::Broken(2),
        }
    }

    /// Returns the outcome of a placing call: an address of ours, or one of the kernel's own
    /// choice, which is then moved to `landing` or unmapped.
    fn settle(&self, ret: i64, len: u64, landing: u64) -> Outcome {
        if ret < 0 {
            return Outcome::Errno(-ret as u64);
        }
        let logical = self.to_logical(ret as u64);
        if is_ours(logical) {
            return Outcome::Value(logical);
        }
        let len = len.next_multiple_of(PAGE);
        let moved = match landing {
            0 => call(libc::SYS_munmap, [ret as u64, len, 0, 0, 0, 0]) == 0,
            _ => {
                let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
                call(libc::SYS_mremap, [ret as u64, len, len, flags, landing, 0]) == landing as i64
            }
        };
        if moved { Outcome::Elsewhere } else { Outcome::Broken(3) }
    }

    fn to_real(&self, addr: u64) -> u64 {
        if (HEAP..HEAP + HEAP_BYTES).contains(&addr) { addr - HEAP + self.heap } else { addr }
    }

    fn to_logical(&self, addr: u64) -> u64 {
        if (self.heap..self.heap + HEAP_BYTES).contains(&addr) { addr - self.heap + HEAP } else { addr }
    }
}

fn plain(ret: i64) -> Outcome {
    if ret < 0 { Outcome::Errno(-ret as u64) } else { Outcome::Value(ret as u64) }
}

/// A bit for each page; of longer ranges only whether it failed.
fn mincore(addr: u64, len: u64) -> Outcome {
    // The kernel writes as far as it comes before it fails: at most what can be
    // mapped in one piece.
    let mut seen = [0u8; 2 * WINDOW_PAGES as usize];
    let ret = call(libc::SYS_mincore, [addr, len, seen.as_mut_ptr() as u64, 0, 0, 0]);
    if ret < 0 || len.div_ceil(PAGE) > 64 {
        return plain(ret);
    }
    Outcome::Value(seen[..64].iter().enumerate().fold(0, |bits, (i, byte)| bits | u64::from(byte & 1) << i))
}
