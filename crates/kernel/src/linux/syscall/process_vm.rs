//! Bytes between the caller's memory and that of another process: process_vm_readv(2), process_vm_writev(2).

use super::buffer::{Memory, PAGE_BYTES, settle};
use super::call::Call;
use super::pidfd::memory_of;
use super::rw::{cut, read_list, read_parts};
use crate::linux::errno::{self, Errno};
use crate::linux::process::identity::Credentials;
use crate::linux::process::{self, Mm};
use alloc::sync::Arc;
use softfault::Rights;

/// Where the bytes go, as the caller sees it.
#[derive(Clone, Copy)]
pub enum Way {
    FromOther,
    ToOther,
}

/// The memory of the process that argument 0 names by any of its threads. ESRCH once that thread has ended.
fn other_memory(call: &Call) -> errno::Result<Arc<Mm>> {
    let tid = call.int(0);
    let process = process::find_with_thread(tid).ok_or(Errno::ESRCH)?;
    if !process.threads.lock().contains_key(&tid) {
        return Err(Errno::ESRCH);
    }
    match memory_of(call, &process, Credentials::Real) {
        Err(Errno::EACCES) => Err(Errno::EPERM),
        other => other,
    }
}

/// How many bytes of the parts lie in mappings with that right, up to the first that does not. A page that may be written or
/// executed lets the CPU read it, too, but as on Linux another process needs the right. And a stack does not grow for it.
fn reachable_bytes(mm: &Mm, parts: &[[u64; 2]], needed: Rights) -> u64 {
    let mut nr = 0;
    for &[addr, len] in parts {
        let end = addr.saturating_add(len);
        let mut at = addr;
        while at < end {
            match mm.space.vma(at) {
                Some(vma) if vma.flags.rights().contains(needed) => at = vma.range.end.addr().min(end),
                _ => return nr + (at - addr),
            }
        }
        nr += len;
    }
    nr
}

/// Copies in the order of both lists, with the rights of each mapping, up to the first byte that cannot be copied. Returns the
/// bytes before it. The other memory stays as it is until the call ends, also if its process executes another program or ends.
pub fn transfer(call: &mut Call, way: Way) -> errno::Result {
    if call.args[5] != 0 {
        return Err(Errno::EINVAL);
    }
    let own = read_parts(call)?;
    let nr_bytes = own.iter().map(|[_, len]| len).sum();
    if nr_bytes == 0 {
        return Ok(0);
    }
    let mut other = read_list(call, call.args[3], call.args[4])?;
    cut(&mut other, nr_bytes);
    if other.iter().all(|[_, len]| *len == 0) {
        return Ok(0);
    }
    let mm = other_memory(call)?;
    if !mm.try_enter() {
        return Err(Errno::ESRCH);
    }
    let needed = match way {
        Way::FromOther => Rights::READ,
        Way::ToOther => Rights::WRITE,
    };
    let reachable = reachable_bytes(&mm, &other, needed);
    cut(&mut other, reachable);
    let result = copy(call, way, &own, &mm, &other);
    mm.leave();
    if result == Ok(0) { Err(Errno::EFAULT) } else { result }
}

fn copy(call: &Call, way: Way, own: &[[u64; 2]], mm: &Mm, other: &[[u64; 2]]) -> errno::Result {
    let own = Memory::of_program(call.space(), own);
    let other = Memory::of_program(&mm.space, other);
    let (mut from, mut to) = match way {
        Way::FromOther => (other, own),
        Way::ToOther => (own, other),
    };
    let mut page = [0; PAGE_BYTES as usize];
    let mut done = 0;
    loop {
        let nr = from.left().min(to.left()).min(PAGE_BYTES) as usize;
        if nr == 0 || call.thread.is_to_end() {
            return Ok(done);
        }
        match from.take(&mut page[..nr]).and_then(|taken| to.put(&page[..taken])) {
            Ok(moved) => {
                done += moved as u64;
                if moved < nr {
                    return Ok(done);
                }
            }
            Err(errno) => return settle(done, Err(errno)),
        }
    }
}
