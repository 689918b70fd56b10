//! Calls that tell about the system and its limits.

use super::Call;
use crate::arch::time::now_ns;
use crate::boot::info;
use crate::errno::{self, Errno};
use crate::mm;
use crate::process::stack::STACK_BYTES;
use crate::random;
use linux_raw_sys::general::{RLIMIT_NOFILE, RLIMIT_STACK};
use linux_raw_sys::prctl::{PR_GET_NAME, PR_SET_NAME, PR_SET_VMA};

const RLIM_INFINITY: u64 = u64::MAX;
const NR_LIMITS: u32 = 16;

pub fn getrandom(call: &mut Call) -> errno::Result {
    let [out, len, flags, ..] = call.args;
    // GRND_NONBLOCK, GRND_RANDOM, GRND_INSECURE.
    if flags as u32 & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let len = len.min(1 << 20);
    let mut done = 0;
    while done < len {
        let part = (len - done).min(8);
        let bytes = random::next().to_le_bytes();
        mm::copy_out(call.space(), out.wrapping_add(done), &bytes[..part as usize])?;
        done += part;
    }
    Ok(done)
}

/// Six fields of 65 bytes. The release is that of the Linux whose behaviour is
/// the model: C libraries refuse to run on old ones.
pub fn uname(call: &mut Call) -> errno::Result {
    let fields = ["Linux", "softfault", "6.18.0-softfault", "#1 SMP", "x86_64", "(none)"];
    let mut bytes = [0u8; 6 * 65];
    for (slot, text) in bytes.chunks_exact_mut(65).zip(fields) {
        slot[..text.len()].copy_from_slice(text.as_bytes());
    }
    mm::copy_out(call.space(), call.args[0], &bytes)?;
    Ok(0)
}

fn free_bytes() -> u64 {
    mm::vm().vmstat().nr_free_pages * 4096
}

pub fn sysinfo(call: &mut Call) -> errno::Result {
    // uptime, loads[3], total, free, shared, buffers, swap, free swap, processes,
    // total high, free high, unit; 112 bytes.
    let mut words = [0u64; 14];
    words[0] = now_ns() / 1_000_000_000;
    words[4] = info::get().memory_bytes();
    words[5] = free_bytes();
    words[10] = 1;
    words[13] = 1;
    mm::put(call.space(), call.args[0], &words)?;
    Ok(0)
}

fn limit(which: u32) -> errno::Result<[u64; 2]> {
    match which {
        RLIMIT_STACK => Ok([STACK_BYTES, RLIM_INFINITY]),
        RLIMIT_NOFILE => Ok([1024, 4096]),
        _ if which < NR_LIMITS => Ok([RLIM_INFINITY; 2]),
        _ => Err(Errno::EINVAL),
    }
}

/// Limits can be read; setting one is refused.
pub fn prlimit64(call: &mut Call) -> errno::Result {
    let [_, _, new_at, old_at, ..] = call.args;
    let limit = limit(call.int(1))?;
    if call.int(0) != 0 && call.int(0) != call.process.pid {
        return Err(Errno::ESRCH);
    }
    if new_at != 0 {
        mm::get::<[u64; 2]>(call.space(), new_at)?;
        return Err(Errno::EPERM);
    }
    if old_at != 0 {
        mm::put(call.space(), old_at, &limit)?;
    }
    Ok(0)
}

pub fn getrlimit(call: &mut Call) -> errno::Result {
    mm::put(call.space(), call.args[1], &limit(call.int(0))?)?;
    Ok(0)
}

pub fn getcwd(call: &mut Call) -> errno::Result {
    if call.args[1] < 2 {
        return Err(Errno::ERANGE);
    }
    mm::copy_out(call.space(), call.args[0], b"/\0")?;
    Ok(2)
}

pub fn prctl(call: &mut Call) -> errno::Result {
    match call.int(0) {
        PR_SET_NAME => {
            mm::get::<u8>(call.space(), call.args[1])?;
            Ok(0)
        }
        PR_GET_NAME => {
            let mut name = [0u8; 16];
            let path = call.process.path.rsplit('/').next().unwrap_or("").as_bytes();
            let len = path.len().min(15);
            name[..len].copy_from_slice(&path[..len]);
            mm::copy_out(call.space(), call.args[1], &name)?;
            Ok(0)
        }
        // Names of mappings are for reports only.
        PR_SET_VMA => Err(Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}
