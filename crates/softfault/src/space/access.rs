//! Access to a program's memory for others: system calls, debuggers, emulated devices.
//!
//! Rights are checked and faults handled as for the program's own accesses. Each page is copied in
//! one section: at most 4 KiB, about 100 ns.

use super::AddressSpace;
use crate::addr::{Access, PAGE_SIZE, Rights, Vpn};
use crate::fault::{FaultDone, FaultError, Request, Want};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::program;
use crate::table::format::Leaf;
use crate::table::walk::Mapped;

/// An access that could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AccessError {
    /// Address of the first byte that was not accessed. All bytes before it were.
    pub at: u64,
    /// The number of bytes before it that were copied: those up to the page that could not be accessed.
    pub copied_bytes: usize,
    /// The fault that the program's own access would have got.
    pub fault: FaultError,
}

impl AccessError {
    /// The first byte, at this address, could not be accessed.
    fn at_once(at: u64, fault: FaultError) -> AccessError {
        AccessError { at, copied_bytes: 0, fault }
    }
    /// So many bytes were copied before.
    fn after(self, copied_bytes: usize) -> AccessError {
        AccessError { copied_bytes, ..self }
    }
    /// EFAULT, or ENOMEM if frames were refused.
    pub fn errno(&self) -> crate::errno::Errno {
        match self.fault {
            FaultError::OutOfFrames => crate::errno::Errno::ENOMEM,
            _ => crate::errno::Errno::EFAULT,
        }
    }
}

impl core::fmt::Display for AccessError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}: {}", self.at, self.fault)
    }
}
impl core::error::Error for AccessError {}

/// A page's worth of an access: (address, offset in page, bytes done before).
fn chunks(addr: u64, len: usize) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = addr.wrapping_add(done as u64);
        let offset = (at % PAGE_SIZE) as usize;
        let n = (PAGE_SIZE as usize - offset).min(len - done);
        let range = done..done + n;
        done += n;
        Some((at, offset, range))
    })
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Reads as a program's loads would.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; bytes before `at` have been read.
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.load_as(Want::Access(Access::Read), addr, into)
    }

    /// Reads without regard to the mapping's rights: for debuggers. A page that nobody has touched is mapped as by a read, without
    /// rights if the mapping has none.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; bytes before `at` have been read.
    pub fn read_forced(&self, addr: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.load_as(Want::ForcedRead, addr, into)
    }

    /// Reads as a program's instruction fetches would: the mapping has to allow
    /// execution.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; bytes before `at` have been read.
    pub fn fetch(&self, addr: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.load_as(Want::Access(Access::Exec), addr, into)
    }

    /// Writes as a program's stores would.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; bytes before `at` have been written.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), AccessError> {
        self.vm.call();
        let mut pace = Pace::new(&self.vm.machine);
        for (at, offset, part) in chunks(addr, from.len()) {
            pace.page();
            let bytes = &from[part.clone()];
            self.with_page(at, Access::Write, &mut |leaf| program::write(&self.vm.machine, leaf.pfn, offset, bytes))
                .map_err(|error| error.after(part.start))?;
        }
        Ok(())
    }

    /// Changes an aligned 32-bit word atomically, as a futex does, and returns the old value.
    /// `None` from `f` leaves the word. `f` runs again if the word was changed meanwhile. Nothing
    /// is held while it runs: it may call the core, and the exchange looks the page up again.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; an unaligned address counts as not mapped.
    pub fn update_u32(&self, addr: u64, f: &mut dyn FnMut(u32) -> Option<u32>) -> Result<u32, AccessError> {
        self.vm.call();
        if !addr.is_multiple_of(4) {
            return Err(AccessError::at_once(addr, FaultError::NotMapped));
        }
        let offset = (addr % PAGE_SIZE) as usize;
        let machine = &self.vm.machine;
        let mut old = 0;
        self.with_page(addr, Access::Write, &mut |leaf| old = program::load_u32(machine, leaf.pfn, offset))?;
        while let Some(new) = f(old) {
            let mut found = old;
            let exchange = &mut |leaf: Leaf| found = program::exchange_u32(machine, leaf.pfn, offset, old, new);
            self.with_page(addr, Access::Write, exchange)?;
            if found == old {
                break;
            }
            old = found;
        }
        Ok(old)
    }

    /// Writes without regard to the mapping's rights, into private copies: for
    /// program loaders and debuggers. Shared mappings keep their rights.
    ///
    /// # Errors
    ///
    /// [`AccessError`]; bytes before `at` have been written.
    pub fn write_forced(&self, addr: u64, from: &[u8]) -> Result<(), AccessError> {
        self.vm.call();
        let mut pace = Pace::new(&self.vm.machine);
        for (at, offset, part) in chunks(addr, from.len()) {
            pace.page();
            let bytes = &from[part.clone()];
            while !self.try_forced(at, offset, bytes) {
                let request = Request { vpn: Vpn::of(at), want: Want::ForcedWrite };
                self.fault(request).map_err(|fault| AccessError::at_once(at, fault).after(part.start))?;
            }
        }
        Ok(())
    }

    /// Copies out of pages that allow what is wanted.
    fn load_as(&self, want: Want, addr: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.vm.call();
        let mut pace = Pace::new(&self.vm.machine);
        for (at, offset, part) in chunks(addr, into.len()) {
            pace.page();
            let bytes = &mut into[part.clone()];
            self.with_page_for(at, want, &mut |leaf| program::read(&self.vm.machine, leaf.pfn, offset, bytes))
                .map_err(|error| error.after(part.start))?;
        }
        Ok(())
    }

    /// Calls `f` in a section with a mapping that allows the access.
    fn with_page(&self, at: u64, access: Access, f: &mut dyn FnMut(Leaf)) -> Result<(), AccessError> {
        self.with_page_for(at, Want::Access(access), f)
    }

    /// Calls `f` in a section with a mapping that allows what is wanted.
    fn with_page_for(&self, at: u64, want: Want, f: &mut dyn FnMut(Leaf)) -> Result<(), AccessError> {
        let vpn = Vpn::of(at);
        let request = Request { vpn, want };
        let access = request.access();
        let needed = if want == Want::ForcedRead { Rights::empty() } else { access.needs() };
        if vpn >= Self::user_range().end {
            return Err(AccessError::at_once(at, FaultError::NotMapped));
        }
        loop {
            {
                let section = self.section();
                if let Some(mapped) = self.mapped(section.inside(), vpn)
                    && !mapped.is_locked
                    && mapped.leaf.rights.contains(needed)
                    && mapped.slot.mark(mapped.seen, access).is_ok()
                {
                    f(mapped.leaf);
                    return Ok(());
                }
            }
            let done = self.fault(request).map_err(|fault| AccessError::at_once(at, fault))?;
            if done == FaultDone::Spurious {
                // The fault saw a good entry already, but this CPU's reads lag behind.
                self.vm.machine.relax();
            }
        }
    }

    /// Writes under the entry's lock bit if the page is private and exclusive, so that a fork
    /// cannot share it in the middle of a write.
    fn try_forced(&self, at: u64, offset: usize, part: &[u8]) -> bool {
        let vpn = Vpn::of(at);
        if vpn >= Self::user_range().end {
            return false;
        }
        let section = self.section();
        let inside = section.inside();
        let Some(Mapped { slot, seen, leaf: page, .. }) = self.mapped(inside, vpn) else {
            return false;
        };
        // Of a page of a pool the head alone says whose it is.
        let head = self.vm.frames.head_of_named(page.pfn);
        let kind = self.vm.frames.desc(head).state().kind();
        let shared_write = kind == FrameKind::Shared && page.rights.contains(Rights::WRITE);
        if !shared_write && !self.is_sole_mapping(inside, slot, head) {
            return false;
        }
        let Ok(leaf) = slot.lock(seen) else { return false };
        let still = shared_write || self.is_sole_mapping(inside, slot, head);
        if still {
            program::write(&self.vm.machine, page.pfn, offset, part);
        }
        slot.unlock(Leaf { accessed: true, dirty: leaf.dirty | still, ..leaf });
        still
    }
}
