//! Values that a process stores and shows without effect: further groups (setgroups(2)), but for who may make segments of
//! huge pages, a nice value (setpriority(2)), a
//! scheduling policy (sched_setscheduler(2)), a personality (personality(2)), and that no program gives it new
//! capabilities (prctl(2)). As the identity it is the process's, not each thread's.

use crate::linux::errno::{self, Errno};
use crate::port::heap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Heap that a list of groups costs, besides its numbers.
const HEAP_PER_LIST: usize = 128;
/// In a policy: a child begins with an ordinary one (`SCHED_RESET_ON_FORK`).
pub const RESET_ON_FORK: u32 = 1 << 30;

/// Further groups, in order.
#[derive(Clone, Default)]
pub struct Groups(Option<Arc<List>>);

struct List {
    ids: Vec<u32>,
    _charge: heap::Charge,
}

impl Groups {
    /// Most of them.
    pub const MOST: u32 = 65_536;

    /// Of `nr` numbers, which `read` fills in.
    pub fn new(nr: usize, read: impl FnOnce(&mut [u32]) -> errno::Result<()>) -> errno::Result<Groups> {
        if nr == 0 {
            return Ok(Groups::default());
        }
        let _charge = heap::charge(HEAP_PER_LIST + nr * size_of::<u32>())?;
        let mut ids = Vec::new();
        ids.try_reserve_exact(nr).map_err(|_| Errno::ENOMEM)?;
        ids.resize(nr, 0);
        read(&mut ids)?;
        ids.sort_unstable();
        Ok(Groups(Some(Arc::new(List { ids, _charge }))))
    }
    /// Their numbers.
    pub fn ids(&self) -> &[u32] {
        self.0.as_ref().map_or(&[], |list| &list.ids)
    }
}

/// All of it.
#[derive(Clone, Default)]
pub struct Kept {
    /// Further groups.
    pub groups: Groups,
    /// From -20 to 19.
    pub nice: i32,
    /// An ordinary policy, perhaps with `RESET_ON_FORK`.
    pub policy: u32,
    /// Flags of personality(2).
    pub personality: u32,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
}

impl Kept {
    /// As a child begins.
    pub fn for_child(&self) -> Kept {
        let mut child = self.clone();
        if child.policy & RESET_ON_FORK != 0 {
            child.policy &= !RESET_ON_FORK;
            child.nice = child.nice.max(0);
        }
        child
    }
}
