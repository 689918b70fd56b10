//! The pool of a sequence, of pages of 2 MiB, and its file.

use super::{errno, settle};
use crate::model::PoolCounts;
use crate::op::{Call, HUGE};
use crate::op::{FILE_END, Op, Outcome, PAGE};
use softfault::table::format::Format;
use softfault::{AddressSpace, HugetlbError, MapFlags, ObjectPart, Order, Prot, SharedObject, Vm};
use softfault_host::Hosted;

/// A step about the pool or its file.
pub(super) fn step<'vm, F: Format>(
    vm: &Vm<Hosted<F>>,
    space: &AddressSpace<'vm, Hosted<F>>,
    file: Option<&SharedObject<'vm, Hosted<F>>>,
    op: &Op,
) -> Outcome {
    let [a, b, c, d, e, f] = op.args;
    match op.call {
        Call::PoolSize => set(vm, a, b).map_or_else(refused, Outcome::Value),
        _ => match (op.call, file) {
            (Call::PoolMap, Some(file)) => {
                let part = ObjectPart::new(file).with_offset_bytes(f * PAGE);
                let at = space.mmap_object(a, b, Prot::from_linux(c), MapFlags::from_linux(d), part);
                settle(space, at.map_err(|e| e.errno()), b, e)
            }
            (_, Some(file)) => of_file(file, op),
            (_, None) => Outcome::Broken(33),
        },
    }
}

fn refused(error: HugetlbError) -> Outcome {
    errno(error.errno())
}

pub(super) fn new_file<F: Format>(vm: &Vm<Hosted<F>>, nr_pages: u64) -> Result<SharedObject<'_, Hosted<F>>, Outcome> {
    vm.new_hugetlb_object(nr_pages * HUGE, Order::PMD).map_err(refused)
}

fn of_file<F: Format>(file: &SharedObject<'_, Hosted<F>>, op: &Op) -> Outcome {
    let [a, b, ..] = op.args;
    match op.call {
        Call::PoolFileSize => file.set_size_bytes(a),
        Call::PoolFilePunch => file.discard(a..a + b),
        Call::PoolFileRead => {
            let mut byte = [0];
            let is_there = file.read(a, &mut byte) == 1;
            return Outcome::Value(if is_there { u64::from(byte[0]) } else { FILE_END });
        }
        Call::PoolFileWrite => {
            return file.write(a, &[b as u8]).map_or_else(|error| errno(error.errno()), |()| Outcome::Value(0));
        }
        _ => return Outcome::Broken(34),
    }
    Outcome::Value(0)
}

fn set<F: Format>(vm: &Vm<Hosted<F>>, nr: u64, overcommit: u64) -> Result<u64, HugetlbError> {
    vm.set_nr_overcommit_hugepages(Order::PMD, overcommit)?;
    vm.set_nr_hugepages(Order::PMD, nr)
}

fn counts<F: Format>(vm: &Vm<Hosted<F>>) -> Option<PoolCounts> {
    let counts = vm.hugetlb_counts(Order::PMD).ok()?;
    Some(PoolCounts { nr: counts.nr, free: counts.free, reserved: counts.reserved, surplus: counts.surplus })
}

/// How the pool's counts are others than expected. At rest.
pub(crate) fn differs<F: Format>(vm: &Vm<Hosted<F>>, expected: Option<PoolCounts>) -> Option<String> {
    let seen = expected.and_then(|_| counts(vm));
    (seen != expected).then(|| format!("the pool: {seen:?}, should be {expected:?}"))
}

/// After the last exit: nothing of the pool is used or promised (H9), and its memory is free again.
pub(crate) fn end_pool<'a, F: Format>(vm: &Vm<Hosted<F>>, mut ops: impl Iterator<Item = &'a Op>) -> Option<String> {
    if !ops.any(|op| op.call.is_of_pool()) {
        return None;
    }
    let whole = |counts: PoolCounts| counts.free == counts.nr && counts.reserved == 0 && counts.surplus == 0;
    let (at_rest, emptied) = (counts(vm), set(vm, 0, 0));
    let is_whole = at_rest.is_some_and(whole) && emptied == Ok(0);
    (!is_whole).then(|| format!("the pool after the last exit: {at_rest:?}, then set to none: {emptied:?}"))
}
