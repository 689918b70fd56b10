//! Memory policy on a machine with one node: arguments are checked as Linux
//! checks them, and whatever is asked for, it is node 0.

use super::call::Call;
use super::memory::whole_pages;
use crate::linux::errno::{self, Errno};
use crate::port::mm;

const MPOL_DEFAULT: u32 = 0;
const MPOL_PREFERRED: u32 = 1;
const MPOL_BIND: u32 = 2;
const MPOL_LOCAL: u32 = 4;
const MPOL_PREFERRED_MANY: u32 = 5;
const MPOL_MAX: u32 = 7;
const MPOL_F_STATIC_NODES: u32 = 1 << 15;
const MPOL_F_RELATIVE_NODES: u32 = 1 << 14;
const MPOL_F_NUMA_BALANCING: u32 = 1 << 13;
/// MPOL_MF_STRICT, _MOVE, _MOVE_ALL.
const MPOL_MF_VALID: u32 = 7;
const MPOL_F_NODE: u32 = 1;
const MPOL_F_ADDR: u32 = 2;
const MPOL_F_MEMS_ALLOWED: u32 = 4;
/// Nodes that a Linux can have.
const MAX_NODES: u64 = 1024;
/// Bits that Linux looks at: a page's worth.
const MAX_NODE_BITS: u64 = 8 * 4096;

/// Which nodes are in a set: the one that there is, and others.
#[derive(Clone, Copy, Default)]
struct Nodes {
    has_first: bool,
    has_others: bool,
}

/// The set of nodes at `addr`. EINVAL for one that there cannot be.
fn nodes(call: &Call, addr: u64, max_node: u64) -> errno::Result<Nodes> {
    // The count is one more than the bits that are there.
    let nr_bits = max_node.saturating_sub(1);
    if nr_bits == 0 || addr == 0 {
        return Ok(Nodes::default());
    }
    if nr_bits > MAX_NODE_BITS {
        return Err(Errno::EINVAL);
    }
    let mut found = Nodes::default();
    for i in 0..nr_bits.div_ceil(64) {
        let mut word: u64 = mm::get(call.space(), addr.wrapping_add(8 * i))?;
        if nr_bits - 64 * i < 64 {
            word &= (1 << (nr_bits - 64 * i)) - 1;
        }
        if word != 0 && i >= MAX_NODES / 64 {
            return Err(Errno::EINVAL);
        }
        found.has_first |= i == 0 && word & 1 != 0;
        found.has_others |= word & !u64::from(i == 0) != 0;
    }
    Ok(found)
}

/// Whether mode and nodes go together.
fn check_policy(call: &Call, mode: u32, addr: u64, max_node: u64) -> errno::Result<()> {
    let flags = mode & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING);
    let mode = mode & !flags;
    if mode >= MPOL_MAX
        || flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES) == MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES
    {
        return Err(Errno::EINVAL);
    }
    if flags & MPOL_F_NUMA_BALANCING != 0 && mode != MPOL_BIND && mode != MPOL_PREFERRED_MANY {
        return Err(Errno::EINVAL);
    }
    let found = nodes(call, addr, max_node)?;
    let is_relative = flags & MPOL_F_RELATIVE_NODES != 0;
    let is_plain = flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES) == 0;
    let is_empty = !found.has_first && !found.has_others;
    // Numbers that are relative go round the nodes that there are.
    let some = found.has_first || is_relative && found.has_others;
    let fits = match mode {
        MPOL_DEFAULT => is_empty,
        MPOL_LOCAL => is_empty && is_plain,
        MPOL_PREFERRED => some || is_empty && is_plain,
        _ => some,
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

pub fn set_mempolicy(call: &mut Call) -> errno::Result {
    check_policy(call, call.int(0), call.args[1], call.args[2]).map(|()| 0)
}

pub fn mbind(call: &mut Call) -> errno::Result {
    let [addr, len, mode, mask, max_node, flags] = call.args;
    if flags & !u64::from(MPOL_MF_VALID) != 0 || !addr.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let (start, end) = whole_pages(addr, len)?;
    check_policy(call, mode as u32, mask, max_node)?;
    // To forget a policy asks for less than to have one.
    let is_there = match mode as u32 {
        MPOL_DEFAULT => start == end || call.space().next_vma(start).is_some_and(|vma| vma.range.start.addr() < end),
        _ => mm::is_mapped(call.space(), start, end),
    };
    if is_there { Ok(0) } else { Err(Errno::EFAULT) }
}

pub fn get_mempolicy(call: &mut Call) -> errno::Result {
    let [policy, mask, max_node, addr, flags] = [0, 1, 2, 3, 4].map(|n| call.args[n]);
    let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
    let is_allowed_query = flags & MPOL_F_MEMS_ALLOWED != 0;
    let bad = flags & !(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED) != 0
        || is_allowed_query && flags != MPOL_F_MEMS_ALLOWED
        || mask != 0 && max_node == 0
        || flags & MPOL_F_ADDR == 0 && (addr != 0 && !is_allowed_query || flags & MPOL_F_NODE != 0);
    if bad {
        return Err(Errno::EINVAL);
    }
    if flags & MPOL_F_ADDR != 0 && call.space().vma(addr).is_none() {
        return Err(Errno::EFAULT);
    }
    if policy != 0 {
        // MPOL_DEFAULT, or node 0.
        mm::put(call.space(), policy, &0u32)?;
    }
    if mask != 0 {
        for i in 0..max_node.min(MAX_NODE_BITS).div_ceil(64) {
            mm::put(call.space(), mask.wrapping_add(8 * i), &u64::from(i == 0 && is_allowed_query))?;
        }
    }
    Ok(0)
}

pub fn set_mempolicy_home_node(call: &mut Call) -> errno::Result {
    let [addr, len, node, flags, ..] = call.args;
    if !addr.is_multiple_of(4096) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL);
    }
    whole_pages(addr, len).map(|_| 0)
}
