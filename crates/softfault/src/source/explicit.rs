//! Explicit objects: the embedder installs the pages.
//!
//! ```text
//! fault      the page is missing: refused as `Missing`, with nothing held
//! install    section: frames of zeroes ─▶ words: in transit ─▶ the embedder has the fill, and writes its frames
//! filled     as for a file: the pages are there, or missing; sleepers are woken
//! evict      `compact/evict.rs`: entries are removed ─▶ words: in transit ─▶ the embedder has the fill, and reads its frames
//! ```
//! So a folio is missing, there, or in the hands of the embedder. A CPU that wants it then sleeps. All else is as for
//! files (`file.rs`): a remover takes out folios in transit, and does not wait for the embedder.
//!
//! Linux has this as userfaultfd(2), whose UFFDIO_COPY refuses a page that is there (EEXIST); so does this. Zircon's
//! `zx_pager_supply_pages` takes pages of another object; here the frames of a fill are the new pages, so that a device can
//! read into them.
//!
//! Locks on entry: none, no section.

use super::file::Answer;
use super::handle::SharedObject;
use super::prealloc::{ObjectPrealloc, Put};
use super::slot::ObjectPage;
use super::write_error::{InstallError, StoppedAt};
use crate::addr::{ObjectPages, PAGE_SIZE, Pfn};
use crate::machine::{FileFill, Machine};
use crate::pace::Pace;
use crate::program;

impl<'vm, M: Machine> SharedObject<'vm, M> {
    /// Begins to install the largest folio of these pages that begins with the first one and for which there are frames. Accesses to it
    /// wait until the embedder, who writes the frames, gives the fill to [`Vm::filled`](crate::Vm::filled). The frames are zero. A folio of the
    /// object's least size may reach beyond the range.
    ///
    /// # Errors
    ///
    /// [`InstallError`]; nothing has changed.
    pub fn begin_install(&self, pages: impl Into<ObjectPages>) -> Result<FileFill, InstallError> {
        self.vm.call();
        self.fill_to_install(pages.into())
    }

    /// Installs pages from `first_page` on: copies of these bytes, and zeroes up to the end of the last page, or folio of the
    /// object's least size. Bytes beyond the object's size are not used.
    ///
    /// # Errors
    ///
    /// [`InstallError`] and the page; pages before it were installed.
    pub fn install(&self, first_page: u64, bytes: &[u8]) -> Result<(), StoppedAt<InstallError>> {
        self.vm.call();
        let mut page = first_page;
        let nr_pages = (bytes.len() as u64).div_ceil(PAGE_SIZE);
        let mut rest = bytes;
        while !rest.is_empty() {
            let fill = self
                .fill_to_install(ObjectPages::from(page..first_page.saturating_add(nr_pages)))
                .map_err(|error| StoppedAt { page, error })?;
            let len = rest.len().min(fill.len_bytes() as usize);
            self.copy_into(&fill, &rest[..len]);
            page += fill.nr_frames();
            let nr_bytes = usize::try_from(fill.nr_frames() * PAGE_SIZE).unwrap_or(usize::MAX);
            rest = &rest[rest.len().min(nr_bytes)..];
            let ended = self.vm.end_fill(fill, Ok(()), Answer::AtOnce);
            debug_assert!(ended.is_ok(), "it is of this Vm");
        }
        self.vm.reclaim_if_low();
        Ok(())
    }

    fn copy_into(&self, fill: &FileFill, bytes: &[u8]) {
        let mut pace = Pace::new(&self.vm.machine);
        for (i, page) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
            pace.page();
            program::write(&self.vm.machine, Pfn(fill.first_frame().0 + i as u32), 0, page);
        }
    }

    fn fill_to_install(&self, pages: ObjectPages) -> Result<FileFill, InstallError> {
        let (vm, index) = (self.vm, pages.start);
        if !vm.is_explicit(self.id) {
            return Err(InstallError::NotExplicit);
        }
        if pages.start == pages.end || !index.is_multiple_of(vm.object_orders(self.id).least().nr_pages()) {
            return Err(InstallError::Unaligned);
        }
        let mut prealloc = ObjectPrealloc::to_install(vm, index..pages.end);
        loop {
            let put = {
                let section = vm.section();
                if index >= vm.object_nr_pages(self.id) {
                    return Err(InstallError::BeyondObject);
                }
                let slot = vm.object_slot(section.inside(), self.id, index);
                match slot.page() {
                    ObjectPage::Absent => prealloc.put_into(section.inside(), self.id, index, &slot),
                    ObjectPage::Poisoned => return Err(InstallError::Poisoned),
                    ObjectPage::Frame(_) | ObjectPage::Swapped(_) | ObjectPage::InTransit(_) => {
                        return Err(InstallError::AlreadyThere);
                    }
                    ObjectPage::Filling | ObjectPage::Leaving(_) => Put::Wait,
                }
            };
            match put {
                Put::NeedsFrames => prealloc.bring(self.id, index)?,
                Put::Read(read) => {
                    prealloc.give_back();
                    return read.into_fill().ok_or(InstallError::BeyondObject);
                }
                Put::Wait => {
                    // The CPU that takes the page out may wait for frames of others.
                    prealloc.give_back();
                    vm.machine.relax();
                }
                // A node was put in, or the place was lost.
                _ => {}
            }
        }
    }
}
