//! Nice values and scheduling policies. They are kept and told again, and have no effect: every thread gets the same
//! turns. Policies of real time are refused, as to a caller without CAP_SYS_NICE: they would be a promise.

use super::call::Call;
use super::info::process_of;
use crate::linux::errno::{self, Errno};
use crate::linux::process::identity::{Capability, Identity};
use crate::linux::process::kept::RESET_ON_FORK;
use crate::linux::process::{self, Process, table};
use crate::port::mm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::RLIMIT_NICE;

/// The process, group or user whose nice value is meant.
const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const PRIO_USER: u32 = 2;

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
const MOST_PRIORITY: u32 = 99;

fn members(call: &Call) -> errno::Result<Vec<Arc<Process>>> {
    let (which, who) = (call.int(0), call.int(1));
    let own = |own: u32| if who == 0 { own } else { who };
    let members = match which {
        PRIO_PROCESS => process::find_with_thread(own(call.process.pid)).into_iter().collect(),
        PRIO_PGRP => table::in_group(own(call.process.group())),
        PRIO_USER => {
            let user = own(call.process.identity.lock().users.real);
            process::all().into_iter().filter(|p| p.identity.lock().users.real == user).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if members.is_empty() { Err(Errno::ESRCH) } else { Ok(members) }
}

/// Gives 20 for a nice value of 0: a system call's value is not negative.
pub fn getpriority(call: &mut Call) -> errno::Result {
    let least = members(call)?.iter().map(|p| p.kept.lock().nice).min();
    Ok((20 - least.unwrap_or(0)) as u64)
}

/// Whether `identity` may make the process that nice.
fn can_nice(identity: &Identity, process: &Process, nice: i32) -> bool {
    identity.has(Capability::SysNice) || (20 - nice) as u64 <= process.limits.lock().now(RLIMIT_NICE)
}

/// Sets what may be set; the last refusal is the answer.
pub fn setpriority(call: &mut Call) -> errno::Result {
    let nice = (call.int(2) as i32).clamp(-20, 19);
    let identity = *call.process.identity.lock();
    let mut result = Ok(0);
    for process in members(call)? {
        let is_own = identity.owns(&process.identity.lock());
        if !is_own && !identity.has(Capability::SysNice) {
            result = Err(Errno::EPERM);
        } else if nice < process.kept.lock().nice && !can_nice(&identity, &process, nice) {
            result = Err(Errno::EACCES);
        } else {
            process.kept.lock().nice = nice;
        }
    }
    result
}

/// The process that argument 0 names.
fn process_named(call: &Call) -> errno::Result<Arc<Process>> {
    if (call.int(0) as i32) < 0 { Err(Errno::EINVAL) } else { process_of(call, call.int(0)) }
}

/// Sets the policy, or that of before with another priority.
fn set_policy(call: &Call, policy: Option<u32>, param_at: u64) -> errno::Result {
    if param_at == 0 || (call.int(0) as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = mm::get::<u32>(call.space(), param_at)?;
    let process = process_named(call)?;
    let (before, nice) = {
        let kept = process.kept.lock();
        (kept.policy, kept.nice)
    };
    let wanted = policy.unwrap_or(before);
    let kind = wanted & !RESET_ON_FORK;
    let is_ordinary = [SCHED_OTHER, SCHED_BATCH, SCHED_IDLE].contains(&kind);
    let is_real_time = [SCHED_FIFO, SCHED_RR].contains(&kind);
    let fits = is_ordinary && priority == 0 || is_real_time && (1..=MOST_PRIORITY).contains(&priority);
    if !fits {
        return Err(Errno::EINVAL);
    }
    let identity = *call.process.identity.lock();
    let is_own = identity.owns(&process.identity.lock());
    let wakes = before & !RESET_ON_FORK == SCHED_IDLE && kind != SCHED_IDLE && !can_nice(&identity, &process, nice);
    let clears = before & !wanted & RESET_ON_FORK != 0;
    if is_real_time || (!is_own || wakes || clears) && !identity.has(Capability::SysNice) {
        return Err(Errno::EPERM);
    }
    process.kept.lock().policy = wanted;
    Ok(0)
}

pub fn sched_setscheduler(call: &mut Call) -> errno::Result {
    if (call.int(1) as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    set_policy(call, Some(call.int(1)), call.args[2])
}

pub fn sched_setparam(call: &mut Call) -> errno::Result {
    set_policy(call, None, call.args[1])
}

pub fn sched_getscheduler(call: &mut Call) -> errno::Result {
    let policy = process_named(call)?.kept.lock().policy;
    Ok(policy.into())
}

/// Ordinary policies know one priority.
pub fn sched_getparam(call: &mut Call) -> errno::Result {
    if call.args[1] == 0 {
        return Err(Errno::EINVAL);
    }
    process_named(call)?;
    mm::put(call.space(), call.args[1], &0u32)?;
    Ok(0)
}

/// Keeps the flags that change nothing here: addresses are not random (ADDR_NO_RANDOMIZE), and what the others ask for
/// is of other architectures or in the calls' answers anyway (FDPIC_FUNCPTRS, SHORT_INODE, WHOLE_SECONDS).
pub fn personality(call: &mut Call) -> errno::Result {
    const CHANGES_NOTHING: u32 = 0x4_0000 | 0x8_0000 | 0x100_0000 | 0x200_0000;
    const TELL: u32 = u32::MAX;
    let wanted = call.int(0);
    let mut kept = call.process.kept.lock();
    let before = kept.personality;
    if wanted != TELL {
        if wanted & !CHANGES_NOTHING != 0 {
            return Err(Errno::EINVAL);
        }
        kept.personality = wanted;
    }
    Ok(before.into())
}
