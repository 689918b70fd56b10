//! Calls about who a process is: users, groups, capabilities.

use super::Call;
use super::info::process_of;
use crate::errno::{self, Errno};
use crate::mm;
use crate::process::Process;
use crate::process::identity::{Capabilities, Capability, Identity, Ids};
use alloc::sync::Arc;

/// Of whom the numbers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Users,
    Groups,
}

fn ids(call: &Call, of: Of) -> Ids {
    let identity = *call.process.identity.lock();
    if of == Of::Users { identity.users } else { identity.groups }
}

/// Changes the identity, and what depends on it.
fn change(call: &Call, f: impl FnOnce(&mut Identity) -> errno::Result<()>) -> errno::Result {
    f(&mut call.process.identity.lock())?;
    call.process.apply_limits();
    Ok(0)
}

/// Changes the numbers to what `f` makes of them, given whether any are allowed.
fn change_ids(call: &Call, of: Of, f: impl FnOnce(Ids, bool) -> errno::Result<Ids>) -> errno::Result {
    change(call, |identity| {
        match of {
            Of::Users => {
                let new = f(identity.users, identity.has(Capability::SetUid))?;
                identity.set_users(new);
            }
            Of::Groups => identity.groups = f(identity.groups, identity.has(Capability::SetGid))?,
        }
        Ok(())
    })
}

pub fn get_real(call: &mut Call, of: Of) -> errno::Result {
    Ok(ids(call, of).real.into())
}

pub fn get_effective(call: &mut Call, of: Of) -> errno::Result {
    Ok(ids(call, of).effective.into())
}

/// getresuid(2), getresgid(2).
pub fn get_three(call: &mut Call, of: Of) -> errno::Result {
    let ids = ids(call, of);
    for (at, id) in call.args.iter().zip([ids.real, ids.effective, ids.saved]) {
        mm::put(call.space(), *at, &id)?;
    }
    Ok(0)
}

pub fn set(call: &mut Call, of: Of) -> errno::Result {
    let id = call.int(0);
    change_ids(call, of, |ids, is_free| ids.set(id, is_free))
}

pub fn set_two(call: &mut Call, of: Of) -> errno::Result {
    let (real, effective) = (call.int(0), call.int(1));
    change_ids(call, of, |ids, is_free| ids.set_two(real, effective, is_free))
}

pub fn set_three(call: &mut Call, of: Of) -> errno::Result {
    let wanted = [0, 1, 2].map(|n| call.int(n));
    change_ids(call, of, |ids, is_free| ids.set_three(wanted, is_free))
}

/// Gives the number that it was.
pub fn set_fs(call: &mut Call, of: Of) -> errno::Result {
    let (before, wanted) = (ids(call, of).fs, call.int(0));
    change_ids(call, of, |ids, is_free| Ok(ids.set_fs(wanted, is_free)))?;
    Ok(before.into())
}

/// There are no further groups; whoever may set them may set none.
pub fn setgroups(call: &mut Call) -> errno::Result {
    const MOST: u64 = 65_536;
    if !call.process.identity.lock().has(Capability::SetGid) {
        return Err(Errno::EPERM);
    }
    if call.args[0] > MOST { Err(Errno::EINVAL) } else { Ok(0) }
}

/// The process that the head of a call about capabilities names. Only version 3 is known.
fn capabilities_of(call: &Call, head_at: u64) -> errno::Result<Arc<Process>> {
    const VERSION_3: u32 = 0x2008_0522;
    let [version, pid] = mm::get::<[u32; 2]>(call.space(), head_at)?;
    if version != VERSION_3 {
        mm::put(call.space(), head_at, &VERSION_3)?;
        return Err(Errno::EINVAL);
    }
    if (pid as i32) < 0 { Err(Errno::EINVAL) } else { process_of(call, pid) }
}

pub fn capget(call: &mut Call) -> errno::Result {
    let [head_at, data_at, ..] = call.args;
    let process = match capabilities_of(call, head_at) {
        // Without room for an answer the question is which version is known.
        Err(Errno::EINVAL) if data_at == 0 => return Ok(0),
        found => found?,
    };
    if data_at != 0 {
        let Capabilities { effective, permitted, inheritable } = process.identity.lock().capabilities;
        let words = [effective, permitted, inheritable];
        let [low, high] = [0, 32].map(|shift| words.map(|word| (word >> shift) as u32));
        mm::put(call.space(), data_at, &[low, high])?;
    }
    Ok(0)
}

/// A process changes its own alone.
pub fn capset(call: &mut Call) -> errno::Result {
    let [head_at, data_at, ..] = call.args;
    let process = capabilities_of(call, head_at)?;
    if process.pid != call.process.pid {
        return Err(Errno::EPERM);
    }
    let [low, high] = mm::get::<[[u32; 3]; 2]>(call.space(), data_at)?;
    let word = |n: usize| u64::from(high[n]) << 32 | u64::from(low[n]);
    let wanted = Capabilities { effective: word(0), permitted: word(1), inheritable: word(2) };
    change(call, |identity| identity.set_capabilities(wanted))
}
