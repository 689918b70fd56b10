//! The fault handler: the steps of one fault, in order.
//!
//! ```text
//! section ┬ space    which VMA, which rights          find.rs
//!         ├ table    where the entry is               table/walk.rs
//!         ├ policy   what to do about it (pure)       policy/fault.rs
//!         ├ source   a frame with the right bytes     prealloc.rs, shared.rs, store.rs
//!         ├ table    install, atomically              empty.rs, batch.rs, huge.rs, present.rs
//!         └ account  counters
//! outside   whatever is slow: refill, zero, copy, shoot down, wait
//! ```
//! [`attempt`](AddressSpace::attempt) runs in one section and decides everything from what it sees
//! there. It returns a value for each step that is not allowed inside. The caller takes the step with nothing held,
//! and attempts again from the top. Only frames that the fault owns alone are kept from turn to
//! turn.
//!
//! When frames are refused, the fault holds none. Then `space/reclaim.rs` frees some, if it can,
//! and the next turn begins; a bounded number of times.

mod around;
mod batch;
mod context;
mod copy;
mod copy_huge;
mod empty;
mod find;
mod fresh;
mod huge;
mod outcome;
mod pool;
mod pool_fill;
mod pool_object;
mod prealloc;
mod present;
mod request;
mod shared;
mod store;
mod swapped;

pub use outcome::{FaultDone, FaultError};
pub(crate) use request::{Request, Want};

use crate::account::Event;
use crate::addr::{Access, PAGE_SHIFT, PageRange, Pfn, SwapSlot, Vpn};
use crate::frame::FolioWait;
use crate::machine::Machine;
use crate::mem::SourceFailed;
use crate::notify::notice::Why;
use crate::rmap::MayTake;
use crate::source::file::{Ahead, FileRead};
use crate::source::file_write::StoreToFile;
use crate::source::fill_large::{FillRefusal, LargeFill};
use crate::source::slot::PageFrame;
use crate::source::transit::{NotRead, Transit};
use crate::space::AddressSpace;
use crate::space::reclaim::retries::Retries;
use crate::space::vma::ObjectId;
use crate::table::format::Entry;
use crate::table::walk::Walk;
use context::{Fault, Here};
use copy::Copying;
use copy_huge::{CopyingHuge, Splitting};
use pool_fill::PoolFill;
use prealloc::{Need, Prealloc};

/// How one attempt ended.
pub(crate) enum Turn<'vm, M: Machine> {
    Done(FaultDone),
    Refused(FaultError),
    /// A frame is needed that may not be obtained in a section.
    Need(Need),
    /// An operation owns the entry or the VMA for a moment.
    Wait,
    /// One step was made: a table, or a page of an object, was installed. Start over.
    Again,
    /// A race was lost; preallocated frames are kept.
    Raced,
    /// Subscribers have to be told of these pages before their entry is taken. The frames for them
    /// are preallocated.
    Tell(PageRange),
    /// The fault owns the entry; the copy has to be made outside the section.
    Copy(Copying<'vm, M>),
    /// The same for a huge page.
    CopyHuge(CopyingHuge<'vm, M>),
    /// The memory of this frame failed while the fault copied it; the entry is what it was.
    SourceFailed(Pfn),
    /// The fault owns a huge mapping, which has to be split first.
    Split(Splitting<'vm, M>),
    /// The page was swapped out; a frame for it is preallocated.
    SwapIn(SwapSlot),
    /// A page of an object was swapped out, and this fault reads it.
    ReadShared(Transit<'vm, M>),
    /// A page of an object is missing, and this fault reads it from the file.
    ReadFile(FileRead<'vm, M>),
    /// The page was mapped, and the next window of its stream is to be read.
    MappedAndAhead(Ahead<'vm, M>),
    /// The page of a file is clean: the machine has to be asked before it is stored to.
    AskToStore(StoreToFile<'vm, M>),
    /// It is in transit already.
    Sleep(FolioWait),
    /// The place of a large page in an object is the fault's to fill.
    Fill(LargeFill<'vm, M>),
    /// The fault owns an entry of a private mapping of a pool's pages.
    FillPool(PoolFill<'vm, M>),
    /// The pool has no page for a copy, which the owner of this page needs: others will lose it.
    PoolIsDry(PageFrame),
    /// The page comes from a pool, and its mutex is needed first: of that object and index in huge pages.
    Lock(ObjectId, u64),
}

impl<M: Machine> Turn<'_, M> {
    /// Whether a fault that has a mutex (`base/hugetlb_locks.rs`) keeps it. It does not where it ends, or where it waits for
    /// something other than frames, as the machine's answer: that may take as long as it likes.
    fn keeps_mutex(&self) -> bool {
        matches!(self, Turn::Need(_) | Turn::Again | Turn::Raced | Turn::Fill(_) | Turn::FillPool(_))
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes one access possible, or says why it is not.
    ///
    /// May be called from any CPU, also for a space that the CPU does not run.
    /// Blocks only in [`Machine::relax`], [`Machine::park`] and [`Machine::fill`], with nothing held, and in
    /// [`Machine::swap_in`].
    ///
    /// # Errors
    ///
    /// [`FaultError`]; the address space is as before, but after a copy whose source failed: then the page may be taken out of
    /// use, as by [`poison_frame`](crate::Vm::poison_frame), and a huge page split.
    ///
    /// # Panics
    ///
    /// In [`Machine::notify`], unless the first turn can finish the fault without a frame. The
    /// address space is as before.
    ///
    /// Source: what it does for the program is in mmap(2) and sigaction(2); how
    /// is in `docs/design.md`.
    #[inline]
    pub fn handle_fault(&self, addr: u64, access: Access) -> Result<FaultDone, FaultError> {
        self.vm.call_anywhere();
        self.turn(Request { vpn: Vpn(addr >> PAGE_SHIFT), want: Want::Access(access) })
    }

    /// Like `handle_fault`, for callers in the core: one copy for all of them, so that the port's
    /// handler gets an inlined copy of its own.
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

    /// Takes the slow steps and the turns after them. Out of line, so that they cost no registers in the
    /// first turn, in which most faults end.
    #[inline(never)]
    fn go_on(
        &self,
        request: Request,
        mut prealloc: Prealloc<'vm, M>,
        mut turn: Turn<'vm, M>,
    ) -> Result<FaultDone, FaultError> {
        self.vm.assert_outside();
        let (mut told, mut retries, mut is_major, mut read_mark) = (None, Retries::default(), false, None);
        let (mut mutex, mut may_take) = (None, None);
        loop {
            if mutex.is_some() && !turn.keeps_mutex() {
                prealloc.note_no_mutex();
                mutex = None;
            }
            // Of the slow steps, only a copy comes before the end of a notice: nothing waits
            // between the two.
            if !matches!(turn, Turn::Copy(_) | Turn::CopyHuge(_) | Turn::FillPool(_)) {
                prealloc.set_told(0);
                told = None;
                if !matches!(turn, Turn::Tell(_)) {
                    may_take = None;
                }
            }
            match turn {
                Turn::Done(done) => {
                    drop(prealloc);
                    self.add_rss_frame();
                    self.vm.reclaim_if_low();
                    return Ok(if is_major { self.count_read_shared() } else { done });
                }
                Turn::Refused(FaultError::NotMapped) if self.grow_for(request, &mut prealloc) => {}
                Turn::Refused(FaultError::NoHugePage) if self.makes_room(request, &mut prealloc, &mut retries) => {}
                // Nobody has asked for the page itself.
                Turn::Refused(error) if request.want == Want::Ready => return Err(error),
                Turn::Refused(error) => return Err(self.refuse(error)),
                // When `bring` fails, the preallocation is empty.
                Turn::Need(need) => {
                    let before = self.vm.nr_reclaimed();
                    if let Err(refused) = prealloc.bring(need) {
                        prealloc.note_no_mutex();
                        mutex = None;
                        if !self.vm.reclaim(&mut retries, before, refused) {
                            return Err(self.refuse(FaultError::OutOfFrames));
                        }
                    }
                }
                Turn::Copy(copying) => {
                    let copied = copying.finish(self);
                    turn = copied.map_or_else(|SourceFailed(pfn)| Turn::SourceFailed(pfn), Turn::Done);
                    continue;
                }
                Turn::CopyHuge(copying) => {
                    turn = copying.finish(self).map_or(Turn::Again, Turn::Done);
                    continue;
                }
                Turn::SourceFailed(pfn) => {
                    prealloc.give_back_all();
                    self.vm.count(Event::CopyFailed, 1);
                    (self.vm.reclaim.poison)(self.vm, pfn);
                    return Err(self.refuse(FaultError::Poisoned));
                }
                Turn::FillPool(fill) => {
                    // To zero or copy 1 GiB takes long.
                    prealloc.give_back_all();
                    turn = fill.finish(self, may_take.as_ref());
                    continue;
                }
                Turn::PoolIsDry(page) => {
                    if !self.makes_room(request, &mut prealloc, &mut retries) {
                        may_take = Some(MayTake::from_others(self, page));
                    }
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
                Turn::ReadFile(read) => {
                    prealloc.give_back_all();
                    match read.read_after(&mut read_mark) {
                        Ok(ahead) => self.vm.read_ahead(ahead),
                        Err(NotRead) => return Err(self.refuse(FaultError::NotRead)),
                    }
                    is_major = true;
                }
                Turn::AskToStore(store) => {
                    prealloc.give_back_all();
                    if store.ask().is_err() {
                        return Err(self.refuse(FaultError::NoRoom));
                    }
                }
                Turn::MappedAndAhead(ahead) => {
                    prealloc.give_back_all();
                    self.vm.read_ahead(Some(ahead));
                    turn = Turn::Done(FaultDone::Shared);
                    continue;
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
                        Err(FillRefusal::Pool(refused)) => {
                            turn = Turn::Refused(refused.into());
                            continue;
                        }
                        Err(FillRefusal::OutOfFrames(refused)) => {
                            if !self.vm.reclaim(&mut retries, before, refused) {
                                return Err(self.refuse(FaultError::OutOfFrames));
                            }
                        }
                    }
                }
                Turn::Lock(object, index) => {
                    // No other CPU waits for a CPU that waits here.
                    prealloc.give_back_all();
                    mutex = Some(self.vm.lock_hugetlb(object.0, index));
                    prealloc.note_mutex();
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

    /// Makes room for a surplus page that the pool was refused, once.
    fn makes_room(&self, request: Request, prealloc: &mut Prealloc<'vm, M>, retries: &mut Retries) -> bool {
        prealloc.give_back_all();
        let pool = {
            let section = self.section();
            let found = self.find_vma(section.inside(), section.cpu(), request.vpn);
            // Only a mapping of a pool is refused so, and it has an object.
            found.map(|found| found.object()).filter(|id| *id != ObjectId::NONE).and_then(|id| self.vm.object_pool(id))
        };
        request.want != Want::Ready && self.vm.make_room_once(retries, pool, &self.vm.tunables.compact_fault)
    }

    /// Grows the stack above the page, if there is one, to include it. Waits for the writer lock,
    /// whose holder may be waiting for frames.
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
