//! Numbers under `/proc/sys` and `/sys/kernel/mm`: those that programs ask for.
//! Setting one is remembered; the few that do something have a function for it.

use crate::linux::errno::{self, Errno};
use crate::linux::number;
use crate::port::mm;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// A number with its bounds.
pub struct Knob {
    value: AtomicU64,
    most: u64,
    /// Can be set.
    pub is_writable: bool,
    /// It is an `int`, which may be below 0: the lower half of the value.
    is_int: bool,
    /// Further effects of setting it.
    apply: fn(u64),
}

/// One that cannot be set.
pub const fn fixed(value: u64) -> Knob {
    Knob { value: AtomicU64::new(value), most: value, is_writable: false, is_int: false, apply: |_| () }
}

const fn settable(value: u64, most: u64) -> Knob {
    Knob { value: AtomicU64::new(value), most, is_writable: true, is_int: false, apply: |_| () }
}

const fn applied(value: u64, most: u64, apply: fn(u64)) -> Knob {
    Knob { apply, ..settable(value, most) }
}

const fn int(value: i32) -> Knob {
    Knob { is_int: true, ..settable(value as u32 as u64, u32::MAX as u64) }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_int { write!(f, "{}", self.get() as i32) } else { write!(f, "{}", self.get()) }
    }
}

impl Knob {
    /// Its value.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
    /// Sets an `int`, and returns its value before.
    pub fn swap_int(&self, value: i32) -> i32 {
        self.value.swap(u64::from(value as u32), Ordering::Relaxed) as i32
    }
}

/// Sets a knob to the number at the beginning of `text`, and returns how many bytes of it were read.
pub fn set(knob: &Knob, text: &[u8]) -> errno::Result<usize> {
    if !knob.is_writable {
        return Err(Errno::EACCES);
    }
    let (number, len) = number::of_sysctl(text)?;
    let value =
        if knob.is_int { i32::try_from(number).map(|value| u64::from(value as u32)) } else { u64::try_from(number) };
    let value = value.ok().filter(|value| *value <= knob.most).ok_or(Errno::EINVAL)?;
    knob.value.store(value, Ordering::Relaxed);
    (knob.apply)(value);
    Ok(len)
}

/// Memory is given when it is touched: there is no accounting in advance.
pub static OVERCOMMIT_MEMORY: Knob = settable(1, 2);
pub static OVERCOMMIT_RATIO: Knob = settable(50, 1000);
pub static OVERCOMMIT_KBYTES: Knob = settable(0, u64::MAX);
pub static MAX_MAP_COUNT: Knob = applied(65_530, i32::MAX as u64, |nr| mm::vm().set_max_map_count(nr));
pub static DROP_CACHES: Knob = settable(0, 4);
pub static SWAPPINESS: Knob = settable(60, 200);
/// The group that may make segments of huge pages without `CAP_IPC_LOCK`. Below 0 it is nobody's.
pub static HUGETLB_SHM_GROUP: Knob = int(0);
pub static MMAP_MIN_ADDR: Knob = settable(65_536, u64::MAX);
pub static PANIC_ON_OOM: Knob = settable(0, 2);
pub static OOM_KILL_ALLOCATING_TASK: Knob = settable(1, 1);
pub static COMPACT_MEMORY: Knob = settable(0, 1);
pub static PID_MAX: Knob = settable(32_768, 4_194_304);
pub static THREADS_MAX: Knob = settable(32_768, u64::MAX);
pub static SHMMAX: Knob = settable(u64::MAX - (1 << 24), u64::MAX);
pub static SHMALL: Knob = settable(u64::MAX - (1 << 24), u64::MAX);
pub static SHMMNI: Knob = settable(4096, 32_768);
/// The number of the next segment of shared memory, or near it: nothing below 0 can be written.
pub static SHM_NEXT_ID: Knob = Knob { most: i32::MAX as u64, ..int(-1) };
pub static RANDOMIZE: Knob = settable(0, 2);
pub static TAINTED: Knob = fixed(0);
pub static FILE_MAX: Knob = settable(1 << 20, u64::MAX);
pub static PIPE_USER_PAGES_SOFT: Knob = settable(16_384, u64::MAX);
