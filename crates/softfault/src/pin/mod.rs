//! Module `pin`: keeps frames in place while a device, or another program, accesses them.
//!
//! ```text
//! quick   in a section: entry read, pin raised, entry read again       raise.rs
//! slow    a fault makes the page present, writable, or the space's alone
//!         (`Want::Unshare`); then the quick way again
//! held    a value, for reading or for writing (held.rs); nothing else of the page's is kept: it may be unmapped,
//!         protected, forked, its space may end
//! release one read-modify-write, from any CPU; the last holder frees the frame
//! ```
//! A private page is unshared before it is pinned, also for reading, and fork copies a pinned page
//! instead of sharing it. So a pinned private frame has at most one mapping, a write fault can
//! always reuse it, and the holder and the program see each other's writes (I23).
//!
//! Pages of shared objects are pinned as they are.
//!
//! A page that is pinned for long first moves to a block of such pages (`long.rs`).
//!
//! It uses `fault` for the slow path and `frame` for the counts. Locks on entry: none, no section.

mod held;
mod long;
mod raise;

pub use held::{Pin, PinMut};

use crate::account::Event;
use crate::addr::{Access, PAGE_SHIFT, PAGE_SIZE, Vpn};
use crate::fault::{FaultError, Request, Want};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::AddressSpace;
use raise::Tried;

/// How long a pin is meant to last. Every pinned frame is unmovable. So a page that is pinned for
/// long moves first, to a block that is not wanted for huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Term {
    /// For one transfer.
    Short,
    /// Until somebody says so: registered buffers, a guest's memory.
    Long,
}

/// Why a page could not be pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PinError {
    /// The page cannot be touched in this way. Counted as the fault is.
    Fault(FaultError),
    /// The frame has as many pins as can be counted.
    PinsFull,
}

impl PinError {
    /// EFAULT, or ENOMEM for want of a frame or of room in its count.
    pub fn errno(&self) -> crate::errno::Errno {
        match self {
            PinError::PinsFull | PinError::Fault(FaultError::OutOfFrames) => crate::errno::Errno::ENOMEM,
            PinError::Fault(_) => crate::errno::Errno::EFAULT,
        }
    }
}

impl core::fmt::Display for PinError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PinError::Fault(fault) => write!(f, "{fault}"),
            PinError::PinsFull => f.write_str("addr: the page has as many pins as can be counted"),
        }
    }
}
impl core::error::Error for PinError {}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Pins the frame of the page at `addr` for reading, after making the access
    /// possible as the program's own would. May be called from any CPU.
    ///
    /// # Errors
    ///
    /// [`PinError`]; nothing is pinned then.
    ///
    /// Source: what `O_DIRECT` of open(2) and io_uring_register(2) need.
    pub fn pin_page(&self, addr: u64, term: Term) -> Result<Pin<'vm, M>, PinError> {
        self.pin(addr, Access::Read, term)
    }

    /// The same for reading and writing: the mapping has to allow a write.
    ///
    /// # Errors
    ///
    /// [`PinError`]; nothing is pinned then.
    pub fn pin_page_mut(&self, addr: u64, term: Term) -> Result<PinMut<'vm, M>, PinError> {
        self.pin(addr, Access::Write, term).map(PinMut)
    }

    /// `access` is a read or a write.
    fn pin(&self, addr: u64, access: Access, term: Term) -> Result<Pin<'vm, M>, PinError> {
        self.vm.assert_outside();
        let vpn = Vpn(addr >> PAGE_SHIFT);
        if vpn >= Self::user_range().end {
            return Err(PinError::Fault(FaultError::NotMapped));
        }
        let mut quick = true;
        let mut may_move = term == Term::Long;
        loop {
            match self.try_pin(vpn, access) {
                // The page is present, and unshared if it is private. Now it may move.
                Tried::Pinned(pfn, order) if may_move && self.vm.is_among_others(pfn, order) => {
                    may_move = false;
                    self.vm.unpin_to_move(pfn);
                }
                Tried::Pinned(pfn, order) => {
                    self.vm.count(Event::PinAcquired, 1);
                    self.vm.count(if quick { Event::PinQuick } else { Event::PinSlow }, 1);
                    if term == Term::Long {
                        self.vm.count(Event::PinLongterm, 1);
                        self.vm.mark_pinned(pfn, order);
                    }
                    return Ok(Pin { vm: self.vm, pfn, order, term, is_mut: access == Access::Write });
                }
                Tried::Full => {
                    self.vm.count(Event::PinRefusedFull, 1);
                    return Err(PinError::PinsFull);
                }
                Tried::Changed => self.vm.count(Event::PinRaced, 1),
                Tried::NotYet => {}
            }
            quick = false;
            // Unsharing asks for no right but to read.
            let want = if access == Access::Write { Want::Access(access) } else { Want::Unshare };
            self.fault(Request { vpn, want }).map_err(PinError::Fault)?;
        }
    }

    /// Pins one page after the other, as many as there are places in `into`, all
    /// or none. Pins that were there are released first.
    ///
    /// # Errors
    ///
    /// [`PinError`] of the first page that refused; `into` is empty then.
    pub fn pin_range(&self, addr: u64, term: Term, into: &mut [Option<Pin<'vm, M>>]) -> Result<(), PinError> {
        self.vm.call();
        let mut pace = Pace::new(&self.vm.machine);
        pin_each(addr, into, &mut |at| {
            pace.page();
            self.pin_page(at, term)
        })
    }

    /// The same for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`pin_range`](Self::pin_range).
    pub fn pin_range_mut(&self, addr: u64, term: Term, into: &mut [Option<PinMut<'vm, M>>]) -> Result<(), PinError> {
        self.vm.call();
        let mut pace = Pace::new(&self.vm.machine);
        pin_each(addr, into, &mut |at| {
            pace.page();
            self.pin_page_mut(at, term)
        })
    }
}

fn pin_each<P>(
    addr: u64,
    into: &mut [Option<P>],
    pin: &mut dyn FnMut(u64) -> Result<P, PinError>,
) -> Result<(), PinError> {
    into.iter_mut().for_each(|place| *place = None);
    for i in 0..into.len() {
        let pinned = match addr.checked_add(i as u64 * PAGE_SIZE) {
            Some(at) => pin(at),
            None => Err(PinError::Fault(FaultError::NotMapped)),
        };
        match pinned {
            Ok(pin) => into[i] = Some(pin),
            Err(error) => {
                into[..i].iter_mut().for_each(|place| *place = None);
                return Err(error);
            }
        }
    }
    Ok(())
}
