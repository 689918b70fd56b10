//! Resource limits: getrlimit(2).

use crate::linux::file::MAX_OPEN;
use crate::port::mm::Space;
use linux_raw_sys::general::{
    RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NOFILE, RLIMIT_NPROC,
    RLIMIT_RTPRIO, RLIMIT_SIGPENDING, RLIMIT_STACK,
};

/// No limit.
pub const INFINITY: u64 = u64::MAX;
const NR_LIMITS: usize = 16;

/// The present and the largest allowed value of each.
#[derive(Clone)]
pub struct Limits([[u64; 2]; NR_LIMITS]);

impl Default for Limits {
    /// As Linux starts programs, with what this kernel can hold.
    fn default() -> Limits {
        let mut all = [[INFINITY; 2]; NR_LIMITS];
        all[RLIMIT_STACK as usize] = [8 << 20, INFINITY];
        all[RLIMIT_CORE as usize] = [0, INFINITY];
        all[RLIMIT_NPROC as usize] = [4096, 4096];
        all[RLIMIT_NOFILE as usize] = [1024, 4096];
        all[RLIMIT_MEMLOCK as usize] = [8 << 20, 8 << 20];
        all[RLIMIT_SIGPENDING as usize] = [4096, 4096];
        all[RLIMIT_MSGQUEUE as usize] = [819_200, 819_200];
        all[RLIMIT_NICE as usize] = [0, 0];
        all[RLIMIT_RTPRIO as usize] = [0, 0];
        Limits(all)
    }
}

/// Why a limit was not set.
pub enum LimitError {
    /// There is no such limit.
    Unknown,
    /// The present value would be above the largest.
    Inverted,
    /// The hard limit would be raised, or that of open files above what a table holds (nr_open).
    Raised,
}

impl Limits {
    /// Both values of a limit, if there is such a one.
    pub fn get(&self, which: u32) -> Option<[u64; 2]> {
        self.0.get(which as usize).copied()
    }
    /// Returns the soft limit.
    pub fn now(&self, which: u32) -> u64 {
        self.get(which).map_or(INFINITY, |pair| pair[0])
    }
    /// Sets both values. Only root raises the largest.
    pub fn set(&mut self, which: u32, pair: [u64; 2], may_raise: bool) -> Result<(), LimitError> {
        let slot = self.0.get_mut(which as usize).ok_or(LimitError::Unknown)?;
        if pair[0] > pair[1] {
            return Err(LimitError::Inverted);
        }
        let is_too_large = which == RLIMIT_NOFILE && pair[1] > MAX_OPEN.into();
        if is_too_large || pair[1] > slot[1] && !may_raise {
            return Err(LimitError::Raised);
        }
        *slot = pair;
        Ok(())
    }
    /// Gives an address space its limits. A process with `CAP_IPC_LOCK` locks as much as there
    /// is.
    pub fn apply(&self, space: &Space, has_ipc_lock: bool) {
        let bytes = |which| Some(self.now(which)).filter(|bytes| *bytes != INFINITY);
        space.set_limit_as(bytes(RLIMIT_AS));
        space.set_limit_stack(bytes(RLIMIT_STACK));
        // As Linux: 0 is what old programs set, and stands for the largest value.
        let most_data = self.get(RLIMIT_DATA).map(|pair| pair[1]).filter(|bytes| *bytes != INFINITY);
        space.set_limit_data(if bytes(RLIMIT_DATA) == Some(0) { most_data } else { bytes(RLIMIT_DATA) });
        space.set_limit_memlock(if has_ipc_lock { None } else { bytes(RLIMIT_MEMLOCK) });
    }
}
