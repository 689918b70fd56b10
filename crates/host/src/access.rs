//! Loads, stores and fetches of programs on a CPU, in an address space.
//!
//! The access to each page is one section of the CPU (E4): mailbox, TLB or walk, data.
//! The `try_` functions are the bare hardware and return a page fault. The others pass
//! the fault to the core and then continue the access, as a kernel would.

use crate::arena::Arena;
use crate::cpu::{BindError, CpuGuard, CpuState, Stay, as_no_cpu};
use crate::hosted::Hosted;
use crate::machine::{leave_root, load_root};
use crate::walk::walk;
use core::fmt;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};
use softfault::addr::{Access, PAGE_SIZE, Pfn, Vpn};
use softfault::machine::{Flush, SpaceTag};
use softfault::table::format::{Format, X86_64};
use softfault::{AddressSpace, FaultError};

/// More faults of one access than any race can cause.
const MANY: u32 = 10_000_000;

/// A page fault: the tables do not allow the access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFault {
    /// The first byte that was not transferred; those below it were.
    pub addr: u64,
    /// The kind of access.
    pub access: Access,
}

/// A page fault that the core refused to resolve. A kernel raises a signal for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Trap {
    /// The first byte that was not transferred; those below it were.
    pub addr: u64,
    /// The kind of access.
    pub access: Access,
    /// The core's reason.
    pub cause: FaultError,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:#x}: {:?}", self.access, self.addr, self.cause)
    }
}

impl core::error::Error for Trap {}

/// One access to bytes of one page, on `cpu`. `data` gets the frame; it runs
/// inside the section.
pub(crate) fn access_page<F: Format, T>(
    machine: &Hosted<F>,
    cpu: &CpuState,
    space: SpaceTag,
    addr: u64,
    access: Access,
    data: impl FnOnce(&Arena, Pfn) -> T,
) -> Result<T, PageFault> {
    let inside = cpu.enter();
    let frame = translate(machine, cpu, space, Vpn::of(addr), access).ok_or(PageFault { addr, access })?;
    let done = data(&machine.arena, frame);
    drop(inside);
    Ok(done)
}

#[inline(always)]
fn translate<F: Format>(
    machine: &Hosted<F>,
    cpu: &CpuState,
    space: SpaceTag,
    page: Vpn,
    access: Access,
) -> Option<Pfn> {
    cpu.own.counters.lookup();
    if let Some(hit) = cpu.tlb.lookup(space.id, page) {
        if !hit.rights.contains(access.needs()) {
            // As on x86: the fault is raised from the stale entry, which goes.
            cpu.tlb.invalidate(space.id, Flush::Pages(hit.pages()));
            return None;
        }
        // The first store through a translation cached clean has to walk, for
        // the dirty bit in the table.
        if access != Access::Write || hit.dirty {
            return Some(hit.frame_of(page));
        }
    }
    miss(machine, cpu, space, page, access)
}

#[inline(never)]
fn miss<F: Format>(machine: &Hosted<F>, cpu: &CpuState, space: SpaceTag, page: Vpn, access: Access) -> Option<Pfn> {
    cpu.own.counters.walk();
    let before = cpu.tlb.invalidations();
    let found = walk(machine, cpu, space, page, access)?;
    if let Some(violations) = &machine.violations {
        violations.check(&machine.cpus, cpu, space.id, &found);
    }
    cpu.tlb.fill(space.id, found, before);
    Some(found.frame_of(page))
}

/// Calls `page(addr, part of the bytes)` for each page of `nr_bytes` at `addr`.
fn each_page<E>(
    addr: u64,
    nr_bytes: usize,
    mut page: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    while done < nr_bytes {
        let at = addr.wrapping_add(done as u64);
        let part = (PAGE_SIZE - at % PAGE_SIZE).min((nr_bytes - done) as u64) as usize;
        page(at, done..done + part)?;
        done += part;
    }
    Ok(())
}

fn offset_of(addr: u64) -> usize {
    (addr % PAGE_SIZE) as usize
}

/// A CPU running in an address space, until this is dropped.
pub struct Running<'a, F: Format = X86_64> {
    cpu: &'a CpuGuard<'a, F>,
    space: &'a AddressSpace<'a, Hosted<F>>,
    tag: SpaceTag,
}

impl<F: Format> CpuGuard<'_, F> {
    /// Runs in `space` until the result is dropped.
    ///
    /// # Errors
    ///
    /// As [`arrive`](Self::arrive).
    ///
    /// # Panics
    ///
    /// As [`arrive`](Self::arrive).
    pub fn enter<'a>(&'a self, space: &'a AddressSpace<'a, Hosted<F>>) -> Result<Running<'a, F>, BindError> {
        self.begin_stay(space, Stay::Running)?;
        Ok(Running { cpu: self, space, tag: space.tag() })
    }

    /// Enters the space, as a load of its root table does: from now on shootdowns reach
    /// this CPU, and its TLB keeps translations of the space until
    /// [`depart`](Self::depart). It may be called several times for one space. Dropping
    /// the space before the last `depart` panics.
    ///
    /// # Errors
    ///
    /// [`BindError::Elsewhere`] if the CPU is in another space: it has one root
    /// table at a time. [`BindError::OtherMachine`].
    ///
    /// # Panics
    ///
    /// While a guard of [`AddressSpace::activate`] lives on this CPU: the guard's end
    /// would hide the CPU from shootdowns. In a callback of the core.
    pub fn arrive(&self, space: &AddressSpace<'_, Hosted<F>>) -> Result<(), BindError> {
        self.begin_stay(space, Stay::Arrived)
    }

    /// Reverts one [`arrive`](Self::arrive) at this space. After the last one, and with no
    /// [`Running`] left, the CPU drops all translations of the space. Does nothing without
    /// an `arrive`.
    pub fn depart(&self, space: &AddressSpace<'_, Hosted<F>>) {
        self.end_stay(space, Stay::Arrived);
    }

    fn begin_stay(&self, space: &AddressSpace<'_, Hosted<F>>, stay: Stay) -> Result<(), BindError> {
        // Ids of spaces mean nothing on another machine.
        if !core::ptr::eq(space.vm().machine(), self.machine) {
            return Err(BindError::OtherMachine);
        }
        let place = &self.state().own.place;
        match place.space() {
            None => load_root(space),
            Some(id) if id == space.tag().id => {}
            Some(_) => return Err(BindError::Elsewhere),
        }
        place.add(space.tag().id, stay);
        Ok(())
    }

    fn end_stay(&self, space: &AddressSpace<'_, Hosted<F>>, stay: Stay) {
        let place = &self.state().own.place;
        if core::ptr::eq(space.vm().machine(), self.machine)
            && place.end(space.tag().id, stay)
            && place.space().is_none()
        {
            leave_root(self.state(), space);
        }
    }
}

impl<F: Format> Drop for Running<'_, F> {
    fn drop(&mut self) {
        self.cpu.end_stay(self.space, Stay::Running);
    }
}

impl<F: Format> Running<'_, F> {
    /// The address space.
    pub fn space(&self) -> &AddressSpace<'_, Hosted<F>> {
        self.space
    }

    fn page<T>(&self, addr: u64, access: Access, data: impl FnOnce(&Arena, Pfn) -> T) -> Result<T, PageFault> {
        access_page(self.cpu.machine, self.cpu.state(), self.tag, addr, access, data)
    }

    /// Repeats `once` until it succeeds or the core refuses its fault.
    ///
    /// # Panics
    ///
    /// If that never happens: the core has a bug.
    fn insist<T>(&self, mut once: impl FnMut() -> Result<T, PageFault>) -> Result<T, Trap> {
        for _ in 0..MANY {
            match once() {
                Ok(done) => return Ok(done),
                Err(PageFault { addr, access }) => {
                    self.space.handle_fault(addr, access).map_err(|cause| Trap { addr, access, cause })?;
                }
            }
        }
        panic!("one access faulted {MANY} times, and each time the core said that it was mended")
    }

    /// Loads bytes; stops at a page fault.
    pub fn try_load(&self, addr: u64, into: &mut [u8]) -> Result<(), PageFault> {
        each_page(addr, into.len(), |at, part| {
            self.page(at, Access::Read, |arena, frame| arena.load(frame, offset_of(at), &mut into[part]))
        })
    }

    /// Stores bytes; stops at a page fault.
    pub fn try_store(&self, addr: u64, from: &[u8]) -> Result<(), PageFault> {
        each_page(addr, from.len(), |at, part| {
            self.page(at, Access::Write, |arena, frame| arena.store(frame, offset_of(at), &from[part]))
        })
    }

    /// Fetches the first byte of an instruction, or returns a page fault.
    pub fn try_fetch(&self, addr: u64) -> Result<u8, PageFault> {
        let mut byte = [0];
        self.page(addr, Access::Exec, |arena, frame| arena.load(frame, offset_of(addr), &mut byte))?;
        Ok(byte[0])
    }

    /// Loads bytes, faulting pages in.
    pub fn load(&self, addr: u64, into: &mut [u8]) -> Result<(), Trap> {
        each_page(addr, into.len(), |at, part| self.insist(|| self.try_load(at, &mut into[part.clone()])))
    }

    /// Stores bytes, faulting pages in.
    pub fn store(&self, addr: u64, from: &[u8]) -> Result<(), Trap> {
        each_page(addr, from.len(), |at, part| self.insist(|| self.try_store(at, &from[part.clone()])))
    }

    /// Fetches an instruction's first byte, faulting its page in.
    pub fn fetch(&self, addr: u64) -> Result<u8, Trap> {
        self.insist(|| self.try_fetch(addr))
    }

    /// Loads a word; atomically if it is aligned.
    #[inline]
    pub fn read_u64(&self, addr: u64) -> Result<u64, Trap> {
        if !addr.is_multiple_of(8) {
            let mut bytes = [0; 8];
            self.load(addr, &mut bytes)?;
            return Ok(u64::from_ne_bytes(bytes));
        }
        self.insist(|| self.page(addr, Access::Read, |arena, frame| arena.word(frame, offset_of(addr)).load(Acquire)))
    }

    /// Gives `data` the words of the page at `addr`, faulting it in: a program that loads many words of one
    /// page, of which hardware translates each without delay. One lookup in the TLB stands for all.
    ///
    /// The access lasts as long as `data` runs, and the thread is no CPU meanwhile: an operation of this CPU would free
    /// the frame without a wait for its own access (E10).
    ///
    /// # Panics
    ///
    /// If `data` calls the core, or accesses memory through the machine: accesses do not nest.
    #[inline]
    pub fn read_page<T>(&self, addr: u64, mut data: impl FnMut(&[AtomicU64; 512]) -> T) -> Result<T, Trap> {
        self.insist(|| self.page(addr, Access::Read, |arena, frame| as_no_cpu(|| data(arena.words(frame)))))
    }

    /// Stores a word; atomically if it is aligned.
    #[inline]
    pub fn write_u64(&self, addr: u64, value: u64) -> Result<(), Trap> {
        if !addr.is_multiple_of(8) {
            return self.store(addr, &value.to_ne_bytes());
        }
        self.insist(|| {
            self.page(addr, Access::Write, |arena, frame| {
                arena.word(frame, offset_of(addr)).store(value, Release);
            })
        })
    }

    /// Atomically adds to an aligned word, as `lock xadd` does, and returns the old value.
    /// `None` if `addr` is no multiple of 8.
    pub fn add_u64(&self, addr: u64, n: u64) -> Option<Result<u64, Trap>> {
        addr.is_multiple_of(8).then(|| {
            self.insist(|| {
                self.page(addr, Access::Write, |arena, frame| arena.word(frame, offset_of(addr)).fetch_add(n, AcqRel))
            })
        })
    }
}
