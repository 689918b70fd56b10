//! Where the kernel meets the subsystem: the one `Vm`, new address spaces with
//! the kernel's half in them, and the way to a program's bytes. The kernel has
//! no other: SMAP is on, and nothing here turns it off (K5).

use crate::port::boot::paging;
use softfault::{
    AccessError, AddressSpace, Errno, FaultError, FrameRange, HoleRefused, HugetlbCounts, HugetlbError, HugetlbSubpool,
    ObjectHole, Order, OutOfFrames, SharedObject, SubpoolLimits, Vm,
};
use spin::Once;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// This machine, as the subsystem knows it: its memory. All else that it has to
/// remember is per CPU or static. machine.rs has its answers.
pub struct Kernel {
    pub(super) frames: &'static [FrameRange],
}

/// A program's address space.
pub type Space = AddressSpace<'static, Kernel>;

/// One past the last address that a program can have: 47 bits less a page.
pub const USER_END: u64 = 0x7fff_ffff_f000;

static VM: Once<Vm<Kernel>> = Once::new();

/// Makes holes that programs ask for.
pub type Punch = fn(ObjectHole<'_>) -> Result<(), HoleRefused>;

static PUNCH: Once<Punch> = Once::new();

/// Says who makes holes in mapped objects; at boot.
pub fn set_punch(punch: Punch) {
    PUNCH.call_once(|| punch);
}

/// Makes a hole.
pub(super) fn punch(hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
    PUNCH.get().ok_or(HoleRefused::Unsupported)?(hole)
}

/// Makes `vm` the subsystem; at boot.
pub(super) fn set(vm: Vm<Kernel>) {
    VM.call_once(|| vm);
}

/// The subsystem.
pub fn vm() -> &'static Vm<Kernel> {
    VM.get().expect("set at boot")
}

/// A new address space, ready to be loaded.
pub fn new_space() -> Result<Space, OutOfFrames> {
    let space = vm().new_space()?;
    prepare_root(&space);
    Ok(space)
}

/// Makes a space that the subsystem has just made ready to be loaded.
pub fn prepare_root(space: &Space) {
    paging::add_kernel_half(root_address(space));
}

/// Physical address of its root table.
pub fn root_address(space: &Space) -> u64 {
    u64::from(space.tag().root.0) << 12
}

/// The error that a program gets for a failed access of the kernel on its behalf.
fn errno_of(error: &AccessError) -> Errno {
    match error.fault {
        FaultError::OutOfFrames => Errno::ENOMEM,
        _ => Errno::EFAULT,
    }
}

/// Finds memory for an access of the kernel to this address, which has failed so many times before, by a program's end if need
/// be. Returns whether to try again: not if the thread itself is to end.
pub type FindMemory = fn(u64, u32) -> bool;

static FIND_MEMORY: Once<FindMemory> = Once::new();

/// Says who finds memory for accesses of the kernel; at boot.
pub fn set_find_memory(find: FindMemory) {
    FIND_MEMORY.call_once(|| find);
}

/// Makes an access on the program's behalf. Where no frame is left, it waits like the program's own access. The caller
/// holds no lock that spins.
fn access<T>(mut attempt: impl FnMut() -> Result<T, AccessError>) -> Result<T, AccessError> {
    let mut nr_tries = 0_u32;
    loop {
        let error = match attempt() {
            Err(error) if error.fault == FaultError::OutOfFrames => error,
            other => return other,
        };
        if !FIND_MEMORY.get().is_some_and(|find| find(error.at, nr_tries)) {
            return Err(error);
        }
        nr_tries = nr_tries.wrapping_add(1);
    }
}

/// Copies `into.len()` bytes from the program.
pub fn copy_in(space: &Space, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    access(|| space.read(addr, into)).map_err(|e| errno_of(&e))
}

/// Copies bytes to the program.
pub fn copy_out(space: &Space, addr: u64, from: &[u8]) -> Result<(), Errno> {
    access(|| space.write(addr, from)).map_err(|e| errno_of(&e))
}

/// Copies bytes to the program, whatever rights it has to that memory.
pub fn copy_out_forced(space: &Space, addr: u64, from: &[u8]) -> Result<(), Errno> {
    access(|| space.write_forced(addr, from)).map_err(|e| errno_of(&e))
}

/// Bytes that were copied: fewer than `len` where the program's memory ends before that. An error if there is none.
fn copied(len: usize, result: Result<(), AccessError>) -> Result<usize, Errno> {
    match result {
        Ok(()) => Ok(len),
        Err(error) if error.copied_bytes > 0 => Ok(error.copied_bytes),
        Err(error) => Err(errno_of(&error)),
    }
}

/// Copies bytes from the program as far as it has them; how many.
pub fn copy_in_some(space: &Space, addr: u64, into: &mut [u8]) -> Result<usize, Errno> {
    copied(into.len(), access(|| space.read(addr, into)))
}

/// Copies bytes to the program as far as it has memory for them; how many.
pub fn copy_out_some(space: &Space, addr: u64, from: &[u8]) -> Result<usize, Errno> {
    copied(from.len(), access(|| space.write(addr, from)))
}

/// Copies bytes from the program as far as it has them, whatever rights it has to that memory; how many.
pub fn copy_in_forced_some(space: &Space, addr: u64, into: &mut [u8]) -> Result<usize, Errno> {
    copied(into.len(), access(|| space.read_forced(addr, into)))
}

/// The same the other way.
pub fn copy_out_forced_some(space: &Space, addr: u64, from: &[u8]) -> Result<usize, Errno> {
    copied(from.len(), access(|| space.write_forced(addr, from)))
}

/// A value of the program's.
pub fn get<T: FromBytes + IntoBytes>(space: &Space, addr: u64) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    copy_in(space, addr, value.as_mut_bytes())?;
    Ok(value)
}

/// Stores a value in the program.
pub fn put<T: IntoBytes + Immutable>(space: &Space, addr: u64, value: &T) -> Result<(), Errno> {
    copy_out(space, addr, value.as_bytes())
}

/// Atomically replaces a word of the program's by `f` of it, unless `f` gives
/// nothing; the word as it was.
pub fn update(space: &Space, addr: u64, mut f: impl FnMut(u32) -> Option<u32>) -> Result<u32, Errno> {
    access(|| space.update_u32(addr, &mut f)).map_err(|e| errno_of(&e))
}

/// Memory that processes can share, and that the kernel reads and writes: the
/// content of a file, a segment of System V.
pub type Object = SharedObject<'static, Kernel>;

/// A new one, all zero.
pub fn new_object(size_bytes: u64) -> Result<Object, Errno> {
    vm().new_shared_object(size_bytes).map_err(|_| Errno::ENOMEM)
}

/// A new one of huge pages of that order, from the pool.
pub fn new_huge_object(size_bytes: u64, order: Order) -> Result<Object, HugetlbError> {
    vm().new_hugetlb_object(size_bytes, order)
}

/// The share of a pool that the files of one file system have.
pub type Subpool = HugetlbSubpool<'static, Kernel>;

/// A new one.
pub fn new_subpool(order: Order, limits: SubpoolLimits) -> Result<Subpool, HugetlbError> {
    vm().new_hugetlb_subpool(order, limits)
}

/// The sizes of huge pages that there are pools of.
pub const HUGE_ORDERS: [Order; 2] = [Order::PMD, Order::PUD];

/// The order of huge pages of so many bytes.
pub fn huge_order_of(bytes: u64) -> Option<Order> {
    HUGE_ORDERS.into_iter().find(|order| order.nr_pages() * 4096 == bytes)
}

/// The counters of a pool, of which there is one for each of [`HUGE_ORDERS`].
pub fn huge_counts(order: Order) -> HugetlbCounts {
    vm().hugetlb_counts(order).expect("there is a pool of that size")
}

static DEFAULT_ORDER: Once<Order> = Once::new();

/// Says which of [`HUGE_ORDERS`] is the default size; at boot.
pub fn set_default_huge_order(order: Order) {
    DEFAULT_ORDER.call_once(|| order);
}

/// The size of huge pages where none is named.
pub fn default_huge_order() -> Order {
    DEFAULT_ORDER.get().copied().unwrap_or(HUGE_ORDERS[0])
}

/// The size of huge pages that the flags of a call ask for: the binary logarithm of the bytes, or 0 for the default.
pub fn huge_order(log: u32) -> Option<Order> {
    match log {
        0 => Some(default_huge_order()),
        _ => HUGE_ORDERS.into_iter().find(|order| u32::from(order.0) + 12 == log),
    }
}

/// Whether every page of the range is mapped.
pub fn is_mapped(space: &Space, start: u64, end: u64) -> bool {
    let mut at = start;
    while at < end {
        match space.vma(at) {
            Some(vma) => at = vma.range.end.addr(),
            None => return false,
        }
    }
    true
}
