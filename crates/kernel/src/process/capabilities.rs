//! Capabilities: capset(2). Only one is ever asked for, `CAP_IPC_LOCK`; the others are kept
//! and given back. Everybody is root: a new program has all of them again.

const NR_CAPABILITIES: u32 = 41;
const CAP_IPC_LOCK: u32 = 14;

/// One bit for each capability.
pub const ALL: u64 = (1 << NR_CAPABILITIES) - 1;

/// The sets of a process.
#[derive(Clone, Copy)]
pub struct Capabilities {
    /// What it may do now.
    pub effective: u64,
    /// What it may make effective.
    pub permitted: u64,
    /// What it may hand on.
    pub inheritable: u64,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities { effective: ALL, permitted: ALL, inheritable: 0 }
    }
}

impl Capabilities {
    /// Whether locked memory has no limit.
    pub fn has_ipc_lock(&self) -> bool {
        self.effective & 1 << CAP_IPC_LOCK != 0
    }
    /// What capset(2) makes of them, unless `new` has more than it may.
    pub fn changed(&self, new: Capabilities) -> Option<Capabilities> {
        let Capabilities { effective, permitted, inheritable } = new;
        let new =
            Capabilities { effective: effective & ALL, permitted: permitted & ALL, inheritable: inheritable & ALL };
        let is_allowed = new.permitted & !self.permitted == 0 && new.effective & !new.permitted == 0;
        is_allowed.then_some(new)
    }
}
