//! Numbers under `/proc/sys` and `/sys/kernel/mm`: those that programs ask for.
//! Setting one is remembered; the few that do something have a function for it.

use crate::linux::errno::{self, Errno};
use crate::port::mm;
use core::sync::atomic::{AtomicU64, Ordering};

/// A number with its bounds.
pub struct Knob {
    value: AtomicU64,
    most: u64,
    /// Can be set.
    pub is_writable: bool,
    /// Further effects of setting it.
    apply: fn(u64),
}

/// One that cannot be set.
pub const fn fixed(value: u64) -> Knob {
    Knob { value: AtomicU64::new(value), most: value, is_writable: false, apply: |_| () }
}

const fn settable(value: u64, most: u64) -> Knob {
    Knob { value: AtomicU64::new(value), most, is_writable: true, apply: |_| () }
}

const fn applied(value: u64, most: u64, apply: fn(u64)) -> Knob {
    Knob { apply, ..settable(value, most) }
}

impl Knob {
    /// Its value.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Sets a knob to the number that `text` is.
pub fn set(knob: &Knob, text: &[u8]) -> errno::Result<()> {
    if !knob.is_writable {
        return Err(Errno::EACCES);
    }
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let value: u64 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
    if value > knob.most {
        return Err(Errno::EINVAL);
    }
    knob.value.store(value, Ordering::Relaxed);
    (knob.apply)(value);
    Ok(())
}

/// Memory is given when it is touched: there is no accounting in advance.
pub static OVERCOMMIT_MEMORY: Knob = settable(1, 2);
pub static OVERCOMMIT_RATIO: Knob = settable(50, 1000);
pub static OVERCOMMIT_KBYTES: Knob = settable(0, u64::MAX);
pub static MAX_MAP_COUNT: Knob = applied(65_530, i32::MAX as u64, |nr| mm::vm().set_max_map_count(nr));
pub static DROP_CACHES: Knob = settable(0, 4);
pub static SWAPPINESS: Knob = settable(60, 200);
pub static MMAP_MIN_ADDR: Knob = settable(65_536, u64::MAX);
pub static PANIC_ON_OOM: Knob = settable(0, 2);
pub static OOM_KILL_ALLOCATING_TASK: Knob = settable(1, 1);
pub static COMPACT_MEMORY: Knob = settable(0, 1);
pub static PID_MAX: Knob = settable(32_768, 4_194_304);
pub static THREADS_MAX: Knob = settable(32_768, u64::MAX);
pub static SHMMAX: Knob = settable(u64::MAX - (1 << 24), u64::MAX);
pub static SHMALL: Knob = settable(u64::MAX - (1 << 24), u64::MAX);
pub static SHMMNI: Knob = settable(4096, 32_768);
pub static RANDOMIZE: Knob = settable(0, 2);
pub static TAINTED: Knob = fixed(0);
pub static FILE_MAX: Knob = settable(1 << 20, u64::MAX);
pub static PIPE_USER_PAGES_SOFT: Knob = settable(16_384, u64::MAX);
