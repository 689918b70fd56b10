//! Calls about who a process is: users, groups, capabilities.

use super::call::Call;
use super::info::process_of;
use crate::linux::errno::{self, Errno};
use crate::linux::process::identity::{Capabilities, Capability, Identity, Ids};
use crate::linux::process::kept::Groups;
use crate::port::mm;
use core::sync::atomic::Ordering;
use zerocopy::IntoBytes;

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
    {
        let mut identity = call.process.identity.lock();
        let before = *identity;
        f(&mut identity)?;
        if identity.acts_otherwise(&before) {
            // As Linux with fs.suid_dumpable of 0: before anybody sees the new identity.
            call.thread.mm().dumpable.store(false, Ordering::Relaxed);
        }
    }
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

pub fn setgroups(call: &mut Call) -> errno::Result {
    let nr = call.int(0);
    if !call.process.identity.lock().has(Capability::SetGid) {
        return Err(Errno::EPERM);
    }
    if nr > Groups::MOST {
        return Err(Errno::EINVAL);
    }
    let groups = Groups::new(nr as usize, |ids| {
        mm::copy_in(call.space(), call.args[1], ids.as_mut_bytes())?;
        if ids.contains(&u32::MAX) { Err(Errno::EINVAL) } else { Ok(()) }
    })?;
    let before = core::mem::replace(&mut call.process.kept.lock().groups, groups);
    drop(before);
    Ok(0)
}

pub fn getgroups(call: &mut Call) -> errno::Result {
    let room = call.int(0) as i32;
    let groups = call.process.kept.lock().groups.clone();
    let ids = groups.ids();
    if room < 0 || room != 0 && (room as usize) < ids.len() {
        return Err(Errno::EINVAL);
    }
    if room != 0 {
        mm::copy_out(call.space(), call.args[1], ids.as_bytes())?;
    }
    Ok(ids.len() as u64)
}

/// How many words of each set a version of capget(2) and capset(2) has; EINVAL, with the
/// newest version, of one that is not known.
fn nr_words(call: &Call, head_at: u64) -> errno::Result<usize> {
    const VERSION_1: u32 = 0x1998_0330;
    const VERSION_2: u32 = 0x2007_1026;
    const VERSION_3: u32 = 0x2008_0522;
    match mm::get::<u32>(call.space(), head_at)? {
        VERSION_1 => Ok(1),
        VERSION_2 | VERSION_3 => Ok(2),
        _ => {
            mm::put(call.space(), head_at, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

pub fn capget(call: &mut Call) -> errno::Result {
    let [head_at, data_at, ..] = call.args;
    let nr_words = match nr_words(call, head_at) {
        // Without room for an answer the question is which version is known.
        Ok(_) | Err(Errno::EINVAL) if data_at == 0 => return Ok(0),
        found => found?,
    };
    let pid = mm::get::<u32>(call.space(), head_at.wrapping_add(4))?;
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let process = if pid == call.thread.tid { call.process.clone() } else { process_of(call, pid)? };
    let Capabilities { effective, permitted, inheritable } = process.identity.lock().capabilities;
    let words = [0, 32].map(|shift| [effective, permitted, inheritable].map(|word| (word >> shift) as u32));
    mm::copy_out(call.space(), data_at, words[..nr_words].as_bytes())?;
    Ok(0)
}

/// A caller changes only its own, and names itself as 0 or by the thread's number.
pub fn capset(call: &mut Call) -> errno::Result {
    let [head_at, data_at, ..] = call.args;
    let nr_words = nr_words(call, head_at)?;
    let pid = mm::get::<u32>(call.space(), head_at.wrapping_add(4))?;
    if pid != 0 && pid != call.thread.tid {
        return Err(Errno::EPERM);
    }
    let mut words = [[0u32; 3]; 2];
    mm::copy_in(call.space(), data_at, words[..nr_words].as_mut_bytes())?;
    let set = |n: usize| u64::from(words[1][n]) << 32 | u64::from(words[0][n]);
    let wanted = Capabilities { effective: set(0), permitted: set(1), inheritable: set(2) };
    change(call, |identity| identity.set_capabilities(wanted))
}
