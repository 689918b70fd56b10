//! The conductor: one fault, one way through the house.
//!
//! ```text
//! section ┬ space    which VMA, which rights          find.rs
//!         ├ table    where the entry is               table/walk.rs
//!         ├ policy   what to do about it (pure)       policy/fault.rs
//!         ├ source   a frame with the right bytes     prealloc.rs, shared.rs
//!         ├ table    install, atomically              empty.rs, batch.rs, huge.rs, present.rs
//!         └ account  counters
//! outside   whatever is slow: refill, zero, copy, shoot down, wait
//! ```
//! [`attempt`](AddressSpace::attempt) runs in one section and decides
//! everything from what it sees there. What it cannot do inside comes back as a
//! value; the conductor does it with nothing held and attempts again from the
//! top. Only frames that are the fault's alone are carried from turn to turn.
//!
//! A refusal of frames leaves the fault's hands empty. Then `space/reclaim.rs` frees
//! some, if it can, and the next turn begins; three times at most.

mod batch;
mod context;
mod copy;
mod copy_huge;
mod empty;
mod find;
mod huge;
mod outcome;
mod prealloc;
mod present;
mod request;
mod shared;
mod swapped;

pub use outcome::{FaultDone, FaultError};
pub(crate) use request::{Request, Want};

use crate::account::Event;
use crate::addr::{Access, PAGE_SHIFT, PageRange, SwapSlot, Vpn};
use crate::frame::FolioWait;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::source::fill_large::{FillRefusal, LargeFill};
use crate::source::transit::Transit;
use crate::space::AddressSpace;
use crate::space::reclaim::Retries;
use crate::table::format::Entry;
use crate::table::walk::Walk;
use context::{Fault, Here};
use copy::Copying;
use copy_huge::{CopyingHuge, Splitting};
use prealloc::{Need, Prealloc};

/// How one attempt ended.
pub(crate) enum Turn<'vm, M: Machine> {
    Done(FaultDone),
    Refused(FaultError),
    /// Something is wanted that may not be made in a section.
    Need(Need),
    /// An entry, or the VMA, belongs to an operation for a moment.
    Wait,
    /// A step was taken, a table or a page of an object put in: from the top.
    Again,
    /// A race was lost; what was in hand stays in hand.
    Raced,
    /// Subscribers have to be told of these pages before their entry is taken; what
    /// they will get is in hand.
    Tell(PageRange),
    /// The entry is ours; the copy has to be made outside.
    Copy(Copying<'vm, M>),
    /// The same for a huge page.
    CopyHuge(CopyingHuge<'vm, M>),
    /// A huge mapping is ours, to be split before the page is looked at.
    Split(Splitting<'vm, M>),
    /// The page was swapped out; a frame for it is in hand.
    SwapIn(SwapSlot),
    /// A page of an object was swapped out, and is the fault's to read.
    ReadShared(Transit<'vm, M>),
    /// It is on its way to the swap area or back.
    Sleep(FolioWait),
    /// The place of a large page in an object is the fault's to fill.
    Fill(LargeFill<'vm, M>),
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes one access possible, or says why it is not.
    ///
    /// May be called from any CPU, also for a space that the CPU does not run.
    /// Blocks only in [`Machine::relax`] and [`Machine::park`], with nothing held, and in
    /// [`Machine::swap_in`].
    ///
    /// # Errors
    ///
    /// [`FaultError`]; the address space is as before.
    ///
    /// # Panics
    ///
    /// In [`Machine::notify`], unless one look at the page settles the fault without
    /// a frame. The address space is as before.
    ///
    /// Source: what it does for the program is in mmap(2) and sigaction(2); how
    /// is in `docs/design.md`.
    #[inline]
    pub fn handle_fault(&self, addr: u64, access: Access) -> Result<FaultDone, FaultError> {
        self.vm.call_anywhere();
        self.turn(Request { vpn: Vpn(addr >> PAGE_SHIFT), want: Want::Access(access) })
    }

    /// The same for the core's own callers: one copy for all of them, so that the
    /// port's handler has one to itself, with no call on the way.
    #[inline(never)]
    pub(crate) fn fault(&self, request: Request) -> Result<FaultDone, FaultError> {
        self.turn(request)
    }

    #[inline(always)]
    fn turn(&self, request: Request) -> Result<FaultDone, FaultError> {
        let mut prealloc = Prealloc::new(self.vm);
        match self.attempt(request, &mut prealloc) {
            Turn::Done(done) => {
                prealloc.forget_empty();
                Ok(done)
            }
            turn => self.go_on(request, prealloc, turn),
        }
    }

    /// All that is slow, and the turns after it. Apart from the first turn, which
    /// most faults end in, so that this costs them no registers.
    #[inline(never)]
    fn go_on(
        &self,
        request: Request,
        mut prealloc: Prealloc<'vm, M>,
        mut turn: Turn<'vm, M>,
    ) -> Result<FaultDone, FaultError> {
        self.vm.assert_outside();
        let (mut told, mut retries, mut is_major) = (None, Retries::default(), false);
        loop {
            // Of all that is slow, only a copy comes before the end of a notice: nothing
            // is waited for between the two.
            if !matches!(turn, Turn::Copy(_) | Turn::CopyHuge(_)) {
                prealloc.set_told(0);
                told = None;
            }
            match turn {
                Turn::Done(done) => {
                    drop(prealloc);
                    self.add_rss_frame();
                    self.vm.reclaim_if_low();
                    return Ok(if is_major { self.count_read_shared() } else { done });
                }
                Turn::Refused(FaultError::NotMapped) if self.grow_for(request, &mut prealloc) => {}
                Turn::Refused(error) => return Err(self.refuse(error)),
                // A preallocation that is refused is empty.
                Turn::Need(need) => {
                    let before = self.vm.nr_reclaimed();
                    if let Err(refused) = prealloc.bring(need)
                        && !self.vm.reclaim(&mut retries, before, refused)
                    {
                        return Err(self.refuse(FaultError::OutOfFrames));
                    }
                }
                Turn::Copy(copying) => {
                    turn = Turn::Done(copying.finish(self));
                    continue;
                }
                Turn::CopyHuge(copying) => {
                    turn = Turn::Done(copying.finish(self));
                    continue;
                }
                Turn::Split(splitting) => splitting.finish(self),
                Turn::SwapIn(slot) => {
                    turn = self.swap_back(request, slot, &mut prealloc);
                    continue;
                }
                Turn::Tell(pages) => {
                    let start = told.insert(self.invalidate(pages, Why::Copy));
                    prealloc.set_told(if start.was_told() { pages.nr_pages() } else { 0 });
                }
                Turn::ReadShared(transit) => {
                    prealloc.give_back_all();
                    if transit.read_in().is_err() {
                        return Err(self.refuse(FaultError::NotRead));
                    }
                    is_major = true;
                }
                Turn::Sleep(wait) => {
                    prealloc.give_back_all();
                    self.vm.wait_for_folio(wait);
                }
                Turn::Fill(fill) => {
                    prealloc.give_back_all();
                    let before = self.vm.nr_reclaimed();
                    match fill.finish() {
                        Ok(()) => {}
                        Err(FillRefusal::Smaller(order)) => prealloc.give_up(order),
                        Err(FillRefusal::OutOfFrames(refused)) => {
                            if !self.vm.reclaim(&mut retries, before, refused) {
                                return Err(self.refuse(FaultError::OutOfFrames));
                            }
                        }
                    }
                }
                Turn::Again => {}
                Turn::Raced => self.vm.count(Event::Raced, 1),
                Turn::Wait => {
                    prealloc.give_back_all();
                    self.vm.count(Event::Waited, 1);
                    self.vm.machine.relax();
                }
            }
            turn = self.attempt(request, &mut prealloc);
        }
    }

    /// Grows a stack to reach the page, if there is one below which it lies. Waits
    /// for the writer lock, whose holder may be waiting for frames.
    fn grow_for(&self, request: Request, prealloc: &mut Prealloc<'vm, M>) -> bool {
        prealloc.give_back_all();
        self.grow_stack(request.vpn)
    }

    /// One turn, in one section.
    #[inline(always)]
    fn attempt(&self, request: Request, prealloc: &mut Prealloc<'vm, M>) -> Turn<'vm, M> {
        let section = self.section();
        let (inside, cpu) = (section.inside(), section.cpu());
        let here = Here { cpu, rss: self.rss_line(section.id()) };
        let Some(found) = self.find_vma(inside, cpu, request.vpn) else { return Turn::Refused(FaultError::NotMapped) };
        if !found.allows(request) {
            return found.refusal();
        }
        let fault = Fault { here, request, found, inside };
        let slot = match self.leaf_by_hint(inside, cpu, request.vpn) {
            Some(slot) => slot,
            None => match self.walk_from_root(inside, cpu, request.vpn) {
                Walk::Leaf(slot) => slot.of_leaf_table(),
                Walk::Hole(hole) => return self.fix_hole(&{ fault }, hole, prealloc),
                Walk::Huge(pmd) => return self.fix_huge(&{ fault }, pmd, prealloc),
                Walk::Owned => return Turn::Wait,
            },
        };
        let seen = slot.observe();
        match seen.entry {
            Entry::None => self.fill_empty(fault, slot, prealloc),
            Entry::Leaf(leaf) => self.fix_present(&{ fault }, slot, seen, leaf, prealloc),
            Entry::Guard => Turn::Refused(FaultError::Guard),
            Entry::Poison => Turn::Refused(FaultError::Poisoned),
            Entry::Swap(of) => prealloc.for_swapped(of),
            Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) | Entry::Table(_) => Turn::Wait,
        }
    }

    #[cold]
    fn refuse(&self, error: FaultError) -> FaultError {
        self.vm.count(Event::Fault, 1);
        self.vm.count(error.event(), 1);
        error
    }
}

#[cfg(test)]
mod tests;
