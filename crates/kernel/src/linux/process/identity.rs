//! The identity of a process: user and group numbers, setuid(2) and its kin, and capabilities,
//! capset(2). Files are open to everybody; what is asked for is who may lock memory without
//! limit, raise limits and become somebody else.

use crate::linux::errno::{self, Errno};

const NR_CAPABILITIES: u32 = 41;
/// One bit for each capability.
const ALL: u64 = (1 << NR_CAPABILITIES) - 1;
/// In calls: this number stays as it is.
const SAME: u32 = u32::MAX;

/// A capability that is asked for, as capabilities(7) numbers it.
#[derive(Clone, Copy)]
pub enum Capability {
    /// Become any group.
    SetGid = 6,
    /// Become any user.
    SetUid = 7,
    /// Hand on capabilities that it has not.
    SetPcap = 8,
    /// Lock memory without limit.
    IpcLock = 14,
    /// Use segments of System V as if it had all rights to them.
    IpcOwner = 15,
    /// Look into any process.
    SysPtrace = 19,
    /// Mount file systems.
    SysAdmin = 21,
    /// Give a process more turns, and others' processes another number of them.
    SysNice = 23,
    /// Raise the largest value of a limit.
    SysResource = 24,
}

/// The numbers of users, or of groups.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Ids {
    /// The real number: of whoever started it.
    pub real: u32,
    /// The effective number.
    pub effective: u32,
    /// The saved number, which may become effective again.
    pub saved: u32,
    /// The number for the file system.
    pub fs: u32,
}

impl Ids {
    fn has(&self, id: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&id)
    }
    fn is_any_root(&self) -> bool {
        self.has(0)
    }
    /// setuid(2), setgid(2).
    pub fn set(self, id: u32, is_free: bool) -> errno::Result<Ids> {
        match id {
            SAME => Err(Errno::EINVAL),
            _ if is_free => Ok(Ids { real: id, effective: id, saved: id, fs: id }),
            _ if id == self.real || id == self.saved => Ok(Ids { effective: id, fs: id, ..self }),
            _ => Err(Errno::EPERM),
        }
    }
    /// setreuid(2), setregid(2).
    pub fn set_two(self, real: u32, effective: u32, is_free: bool) -> errno::Result<Ids> {
        let may =
            [real == SAME || real == self.real || real == self.effective, effective == SAME || self.has(effective)];
        if !is_free && may != [true; 2] {
            return Err(Errno::EPERM);
        }
        let mut new = self.with(real, effective, SAME);
        if real != SAME || effective != SAME && effective != self.real {
            new.saved = new.effective;
        }
        Ok(new)
    }
    /// setresuid(2), setresgid(2). A call that changes nothing leaves the file system's number.
    pub fn set_three(self, [real, effective, saved]: [u32; 3], is_free: bool) -> errno::Result<Ids> {
        let is = |id: u32, now: u32| id == SAME || id == now;
        if is(real, self.real)
            && is(effective, self.effective)
            && (effective == SAME || effective == self.fs)
            && is(saved, self.saved)
        {
            return Ok(self);
        }
        let may = [real, effective, saved].iter().all(|id| *id == SAME || self.has(*id));
        if is_free || may { Ok(self.with(real, effective, saved)) } else { Err(Errno::EPERM) }
    }
    /// setfsuid(2), setfsgid(2), which say nothing of a refusal.
    pub fn set_fs(self, id: u32, is_free: bool) -> Ids {
        let may = id != SAME && (is_free || self.has(id) || id == self.fs);
        if may { Ids { fs: id, ..self } } else { self }
    }
    fn with(self, real: u32, effective: u32, saved: u32) -> Ids {
        let or = |id: u32, old: u32| if id == SAME { old } else { id };
        let effective = or(effective, self.effective);
        Ids { real: or(real, self.real), effective, saved: or(saved, self.saved), fs: effective }
    }
}

/// Sets of capabilities.
#[derive(Clone, Copy)]
pub struct Capabilities {
    /// The effective set.
    pub effective: u64,
    /// The permitted set.
    pub permitted: u64,
    /// The inheritable set.
    pub inheritable: u64,
}

/// Which of its numbers and capabilities count for a process that looks into another.
#[derive(Clone, Copy)]
pub enum Credentials {
    /// Those for files, and the effective set (PTRACE_MODE_FSCREDS).
    FileSystem,
    /// The real ones, and the permitted set (PTRACE_MODE_REALCREDS).
    Real,
}

/// All of it. The first process is root.
#[derive(Clone, Copy)]
pub struct Identity {
    /// Of users.
    pub users: Ids,
    /// Of groups.
    pub groups: Ids,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl Default for Identity {
    fn default() -> Identity {
        let capabilities = Capabilities { effective: ALL, permitted: ALL, inheritable: 0 };
        Identity { users: Ids::default(), groups: Ids::default(), capabilities }
    }
}

impl Identity {
    /// Whether it may do that now.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities.effective & 1 << capability as u32 != 0
    }
    /// Becomes other users. A process that gives root up loses root's capabilities.
    pub fn set_users(&mut self, users: Ids) {
        let before = core::mem::replace(&mut self.users, users);
        let sets = &mut self.capabilities;
        if before.is_any_root() && !users.is_any_root() {
            (sets.permitted, sets.effective) = (0, 0);
        }
        match (before.effective, users.effective) {
            (0, 1..) => sets.effective = 0,
            (1.., 0) => sets.effective = sets.permitted,
            _ => {}
        }
    }
    /// capset(2).
    pub fn set_capabilities(&mut self, new: Capabilities) -> errno::Result<()> {
        let Capabilities { effective, permitted, inheritable } = new;
        let new =
            Capabilities { effective: effective & ALL, permitted: permitted & ALL, inheritable: inheritable & ALL };
        let old = self.capabilities;
        let may_inherit = if self.has(Capability::SetPcap) { ALL } else { old.inheritable | old.permitted };
        let is_more = new.inheritable & !may_inherit | new.permitted & !old.permitted | new.effective & !new.permitted;
        if is_more != 0 {
            return Err(Errno::EPERM);
        }
        self.capabilities = new;
        Ok(())
    }
    /// It runs another program: root has all capabilities again, unless no program may give it any.
    pub fn exec(&mut self, no_new_privs: bool) {
        for ids in [&mut self.users, &mut self.groups] {
            (ids.saved, ids.fs) = (ids.effective, ids.effective);
        }
        let users = &self.users;
        let mut permitted = if users.real == 0 || users.effective == 0 { ALL } else { 0 };
        if no_new_privs {
            permitted &= self.capabilities.permitted;
        }
        self.capabilities.permitted = permitted;
        self.capabilities.effective = if users.effective == 0 { permitted } else { 0 };
    }
    /// Whether the other's process is this user's, to be scheduled.
    pub fn owns(&self, other: &Identity) -> bool {
        [other.users.real, other.users.effective].contains(&self.users.effective)
    }
    /// Whether it acts as who started it.
    pub fn is_itself(&self) -> bool {
        [self.users, self.groups].iter().all(|ids| ids.real == ids.effective)
    }
    /// Whether it may look into the memory of another process, by the rules of ptrace(2): as the same user and group with
    /// no capability less, if that process may be dumped.
    pub fn may_look_into(&self, other: &Identity, is_dumpable: bool, by: Credentials) -> bool {
        let (id, own): (fn(&Ids) -> u32, u64) = match by {
            Credentials::FileSystem => (|ids| ids.fs, self.capabilities.effective),
            Credentials::Real => (|ids| ids.real, self.capabilities.permitted),
        };
        let is = |own: &Ids, of: &Ids| [of.real, of.effective, of.saved].iter().all(|other| *other == id(own));
        let is_same = is(&self.users, &other.users) && is(&self.groups, &other.groups);
        let has_all = other.capabilities.permitted & !own == 0;
        is_same && has_all && is_dumpable || self.has(Capability::SysPtrace)
    }
    /// Whether others see it act as somebody else, compared with `before`.
    pub fn acts_otherwise(&self, before: &Identity) -> bool {
        let seen = |identity: &Identity| [identity.users, identity.groups].map(|ids| [ids.effective, ids.fs]);
        seen(self) != seen(before)
    }
}
