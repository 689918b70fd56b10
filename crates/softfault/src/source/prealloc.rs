//! Preallocated zeroed frames of a write to an object through its handle.
//!
//! If a page of the object, or a node on the way to it, is missing, the writer leaves the section,
//! obtains the frames, and starts over. Others may have filled the page meanwhile, or changed the
//! size that is needed.
//!
//! Locks on entry: none; `put_into` in the section of the lookup, `bring` outside sections.

use super::file::{FileRead, MOST_FILE_ORDER};
use super::fill_large::{FillRefusal, LargeFill, is_large};
use super::object_slot::ObjectSlot;
use super::slot::{LostFill, PageFrame, PageSlot};
use super::write_error::ObjectWriteError;
use crate::addr::Order;
use crate::frame::{Content, Fill, FolioWait, Held, OutOfFrames, PoolRefusal};
use crate::machine::{FileId, Machine};
use crate::policy::folio::{FolioOrders, around};
use crate::policy::readahead::Pattern;
use crate::section::InSection;
use crate::space::Vm;
use crate::space::reclaim::retries::Retries;
use crate::space::vma::ObjectId;
use core::ops::Range;

/// The result for a page that was missing.
pub(super) enum Put<'vm, M: Machine> {
    /// Frames were filled in, by the caller or by another CPU that was first. Start over.
    Done,
    /// The page is the embedder's to install.
    Missing,
    /// Another operation owns words of the folio: free the frames, wait, and start over.
    Wait,
    /// No such frames are preallocated.
    NeedsFrames,
    /// The page was swapped out: free the frames, swap it in, and start over.
    Bring,
    /// It is in transit: free the frames, wait, and start over.
    Sleep(FolioWait),
    /// The place of a large page is the caller's to [fill](ObjectPrealloc::fill).
    Fill(LargeFill<'vm, M>),
    /// The preallocated frames are in transit from the file: free the others, read, and start over.
    Read(FileRead<'vm, M>),
}

/// Preallocated frames of a write. Unused ones are freed.
pub(super) struct ObjectPrealloc<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    /// The first of 2^order frames.
    frames: Option<PageFrame>,
    wanted: Order,
    /// The purpose for which a single frame was obtained or is wanted.
    fill: Fill,
    wanted_fill: Fill,
    /// The largest size that was not refused.
    most_there: Order,
    /// The embedder installs pages, up to this one.
    install_end: Option<u64>,
    /// How often memory may still be reclaimed for a large page.
    retries: Retries,
    /// The hold, from before the frames were claimed.
    held: Option<Held<'vm>>,
}

impl<'vm, M: Machine> ObjectPrealloc<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>) -> Self {
        ObjectPrealloc {
            vm,
            frames: None,
            wanted: Order::BASE,
            fill: Fill::Shared,
            wanted_fill: Fill::Shared,
            most_there: Order::PUD,
            install_end: None,
            retries: Retries::default(),
            held: None,
        }
    }

    /// For the embedder, who installs pages of an explicit object: folios that begin with the first one.
    pub(super) fn to_install(vm: &'vm Vm<M>, pages: Range<u64>) -> Self {
        let most_there = Order(pages.start.trailing_zeros().min(MOST_FILE_ORDER.0.into()) as u8);
        let mut prealloc = ObjectPrealloc::new(vm);
        (prealloc.most_there, prealloc.install_end) = (most_there, Some(pages.end));
        prealloc
    }

    /// Gives the frames back, before the caller waits for another CPU.
    pub(super) fn give_back(&mut self) {
        match self.frames.take() {
            Some(PageFrame { pfn, order: Order::BASE }) => self.vm.give_back(pfn, self.fill),
            Some(PageFrame { pfn, order }) => self.vm.release_run(pfn, order.nr_pages(), Content::Zero),
            None => {}
        }
        self.held = None;
    }

    /// Fills in the preallocated frames, if these are what is missing.
    pub(super) fn put_into(
        &mut self,
        inside: InSection<'_>,
        id: ObjectId,
        index: u64,
        slot: &ObjectSlot<'_>,
    ) -> Put<'vm, M> {
        let has_sizes = self.vm.object_orders(id) != FolioOrders::BASE;
        let file = match self.install_end {
            None if self.vm.is_explicit(id) => return Put::Missing,
            None => self.vm.object_file(id),
            Some(_) => Some(FileId(id.0)),
        };
        let end = match file {
            Some(_) if self.install_end.is_some() => self.install_end.unwrap_or(0),
            Some(_) => self.vm.readahead_window(inside, id, index, Pattern::Normal).end,
            None => u64::MAX,
        };
        let order =
            if has_sizes { self.vm.folio_order(id, index, slot, self.most_there, end) } else { Some(Order::BASE) };
        let Some(order) = order else { return Put::Wait };
        let done = match slot.place_of(order) {
            // A CPU that loses the place looks again.
            Some(at) if is_large(order) => {
                return self.vm.begin_to_fill(inside, (id, index), at, order).map_or(Put::Done, Put::Fill);
            }
            Some(at) if has_sizes || file.is_some() => {
                (self.wanted, self.wanted_fill) = (order, Fill::Shared);
                let Some(head) = self.take_wanted() else { return Put::NeedsFrames };
                if let Some(file) = file {
                    return self.put_to_read(inside, (id, index, file), at, head, end);
                }
                self.vm.object_fill_folio(id, index, at, head).map_err(|lost| (lost, head))
            }
            place => {
                // One for a node, after which a page was missing, is not right, nor the other way round.
                self.wanted_fill = if place.is_some() { Fill::Shared } else { Fill::Fixed };
                self.wanted = Order::BASE;
                let Some(frame) = self.take_wanted() else { return Put::NeedsFrames };
                let filled = match place {
                    Some(_) => self.vm.object_fill(id, index, slot, frame.pfn),
                    None => self.vm.object_fill_node(id, index, slot, order, frame.pfn),
                };
                filled.map_err(|lost| {
                    self.vm.frames.desc(frame.pfn).clear();
                    (lost, frame)
                })
            }
        };
        match done {
            // In use.
            Ok(()) => self.held = None,
            Err((LostFill, frame)) => self.frames = Some(frame),
        }
        Put::Done
    }

    fn put_to_read(
        &mut self,
        inside: InSection<'_>,
        of: (ObjectId, u64, FileId),
        at: PageSlot<'_>,
        head: PageFrame,
        ahead_end: u64,
    ) -> Put<'vm, M> {
        match self.vm.begin_to_read_file(inside, of, at, head) {
            // In use.
            Ok(read) => {
                self.held = None;
                Put::Read(read.and_ahead(ahead_end))
            }
            Err(LostFill) => {
                self.frames = Some(head);
                Put::Done
            }
        }
    }

    fn take_wanted(&mut self) -> Option<PageFrame> {
        let is_right = self.wanted != Order::BASE || self.fill == self.wanted_fill;
        self.frames.take_if(|frames| frames.order == self.wanted && is_right)
    }

    /// Fills the place of a large page, or finds that it has to be smaller.
    pub(super) fn fill(&mut self, fill: LargeFill<'vm, M>) -> Result<(), ObjectWriteError> {
        self.give_back();
        let (before, pool) = (self.vm.nr_reclaimed(), fill.pool());
        match fill.finish() {
            Err(FillRefusal::Smaller(order)) => self.most_there = Order(order.0 - 1),
            Err(FillRefusal::OutOfFrames(refused)) if !self.vm.reclaim(&mut self.retries, before, refused) => {
                return Err(refused.into());
            }
            Err(FillRefusal::Pool(PoolRefusal::NoHugePages)) => {
                let budget = &self.vm.tunables.compact_background;
                if !self.vm.make_room_once(&mut self.retries, pool, budget) {
                    return Err(ObjectWriteError::NoHugePages);
                }
            }
            Err(FillRefusal::Pool(PoolRefusal::SubpoolFull)) => return Err(ObjectWriteError::SubpoolFull),
            Err(FillRefusal::OutOfFrames(_)) | Ok(()) => {}
        }
        Ok(())
    }

    /// Obtains the frames that are needed, or records that the order has to be smaller.
    pub(super) fn bring(&mut self, id: ObjectId, index: u64) -> Result<(), OutOfFrames> {
        self.give_back();
        self.fill = self.wanted_fill;
        let (vm, order, fill) = (self.vm, self.wanted, self.fill);
        let sub_page = (index - around(index, order).start) as u32;
        let found = if order > vm.object_orders(id).least() {
            vm.obtain_folio_if_found(order, sub_page).ok()
        } else {
            Some(vm.until_reclaimed(&mut || match order {
                Order::BASE => vm.obtain_held(fill),
                order => vm.obtain_folio(order, sub_page),
            })?)
        };
        match found {
            Some((pfn, held)) => (self.frames, self.held) = (Some(PageFrame { pfn, order }), Some(held)),
            None => self.most_there = Order(order.0 - 1),
        }
        Ok(())
    }
}

impl<M: Machine> Drop for ObjectPrealloc<'_, M> {
    fn drop(&mut self) {
        self.give_back();
    }
}
