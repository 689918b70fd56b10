//! Makes objects, and ends fills of their pages.
//!
//! Locks on entry: none, no section.

use super::file::{Answer, MOST_FILE_ORDER};
use super::handle::SharedObject;
use super::object::{MAX_OBJECT_BYTES, NewObject, PagesFrom};
use super::write_error::{NewFileError, NewForeignError};
use crate::addr::PAGE_SIZE;
use crate::frame::OutOfFrames;
use crate::machine::{FileFill, FileId, FillError, ForeignFill, FrameRange, Machine};
use crate::policy::folio::FolioOrders;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Makes an empty object, all zero. Sizes above [`SharedObject::MAX_BYTES`] count as that.
    ///
    /// # Errors
    ///
    /// [`OutOfFrames`]; nothing is kept then.
    pub fn new_shared_object(&self, size_bytes: u64) -> Result<SharedObject<'_, M>, OutOfFrames> {
        self.new_shared_object_of(size_bytes, FolioOrders::BASE)
    }

    /// Makes an empty object with pages of some sizes. A page is as large as `orders`, the object's
    /// size and free frames permit. If there are no frames for the least size, accesses are refused
    /// with [`OutOfFrames`](crate::FaultError::OutOfFrames). Discarding part of a page frees frames
    /// in pieces of the least size, unless the page is pinned: then the part is zeroed.
    ///
    /// # Errors
    ///
    /// [`OutOfFrames`]; nothing is kept then.
    pub fn new_shared_object_of(
        &self,
        size_bytes: u64,
        orders: FolioOrders,
    ) -> Result<SharedObject<'_, M>, OutOfFrames> {
        self.new_handle(NewObject { size_bytes, orders, from: PagesFrom::Zero })
    }

    /// Makes an object whose pages come from a file: what is missing is read by [`Machine::fill`], also for
    /// [`read`](SharedObject::read) and [`write`](SharedObject::write). Folios are smaller than 2 MiB.
    ///
    /// The size is the embedder's to keep right. When the file gets shorter, the object's size changes before the
    /// storage; a hole is made in the storage before it is [discarded](SharedObject::discard).
    ///
    /// # Errors
    ///
    /// [`NewFileError`]; nothing is kept then.
    #[cfg(feature = "files")]
    pub fn new_file_object(
        &self,
        size_bytes: u64,
        orders: FolioOrders,
        file: FileId,
    ) -> Result<SharedObject<'_, M>, NewFileError> {
        if orders.most() > MOST_FILE_ORDER {
            return Err(NewFileError::FolioTooLarge);
        }
        Ok(self.new_handle(NewObject { size_bytes, orders, from: PagesFrom::File(file) })?)
    }

    /// Makes an explicit object: nobody reads a missing page. A fault on one is refused with
    /// [`FaultError::Missing`](crate::FaultError::Missing), and the embedder
    /// [installs](SharedObject::install) it. [`evict`](SharedObject::evict) takes pages out again. Folios are smaller than 2 MiB.
    /// Memory pressure takes no page out; the swap area may.
    ///
    /// # Errors
    ///
    /// [`NewFileError`]; nothing is kept then.
    #[cfg(feature = "files")]
    pub fn new_explicit_object(
        &self,
        size_bytes: u64,
        orders: FolioOrders,
    ) -> Result<SharedObject<'_, M>, NewFileError> {
        if orders.most() > MOST_FILE_ORDER {
            return Err(NewFileError::FolioTooLarge);
        }
        Ok(self.new_handle(NewObject { size_bytes, orders, from: PagesFrom::Embedder })?)
    }

    /// Makes an object whose pages are foreign frames, from the first on: a base image that programs read. No frame
    /// is written, freed, moved or swapped out, and no page costs memory here. Private mappings copy what they
    /// store to; shared ones cannot be written. A smaller size takes pages out of all mappings; no size is larger than the frames.
    /// Several objects may name one frame.
    ///
    /// The owner may change the bytes, as those of a file, while programs read them.
    ///
    /// # Errors
    ///
    /// [`NewForeignError`]; nothing is kept then.
    #[cfg(feature = "files")]
    pub fn new_foreign_object(&self, range: FrameRange) -> Result<SharedObject<'_, M>, NewForeignError> {
        self.assert_outside();
        self.call();
        if !self.name_foreign(&range) {
            return Err(NewForeignError::NotForeign);
        }
        let from = PagesFrom::Foreign(range);
        let new = NewObject { size_bytes: range.nr_frames * PAGE_SIZE, orders: FolioOrders::BASE, from };
        Ok(self.new_handle(new).inspect_err(|_| self.forget_foreign(&range))?)
    }

    /// Ends a fill that was [under way](crate::Filling::UnderWay), or that the embedder began to
    /// [install](SharedObject::begin_install) or to [take out](SharedObject::begin_evict): with `Ok` the pages are there,
    /// unless one of the folio was removed meanwhile; else they are missing. From any CPU, but not in a callback of the machine.
    ///
    /// # Errors
    ///
    /// [`ForeignFill`], with the fill; nothing has changed.
    #[cfg(feature = "files")]
    pub fn filled(&self, fill: FileFill, result: Result<(), FillError>) -> Result<(), ForeignFill> {
        if fill.vm != self.number {
            return Err(ForeignFill(fill));
        }
        self.call();
        self.end_fill(fill, result, Answer::Later)
    }

    pub(crate) fn new_handle(&self, new: NewObject) -> Result<SharedObject<'_, M>, OutOfFrames> {
        self.call();
        let new = NewObject { size_bytes: new.size_bytes.min(MAX_OBJECT_BYTES), ..new };
        let id = self.with_reclaim(&mut || {
            // In use: nothing is held any more when memory is reclaimed.
            self.obtain_all(&mut |source| self.new_object(new, 1, source)).map(|(id, _held)| id)
        })?;
        self.object(id).handles.set(1);
        Ok(SharedObject { vm: self, id })
    }
}
