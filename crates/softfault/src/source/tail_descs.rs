//! The object's side of folios whose tails have no descriptors: see `frame/tail_descs.rs`.
//!
//! Locks on entry: the object's `resize`, no section.

use super::slot::{ObjectPage, PageFrame};
use crate::addr::{ObjectPages, Order};
use crate::links::Links;
use crate::machine::Machine;
use crate::space::vma::ObjectId;
use core::ops::ControlFlow;

impl<M: Machine> Links<M> {
    /// Unmarks pages that were marked as leaving and are not moving. If they are one folio of whole blocks,
    /// calls `f` with its head first: no entry maps the folio, and no other CPU changes it.
    pub(crate) fn object_unbar<T>(&self, id: ObjectId, pages: ObjectPages, f: &dyn Fn(PageFrame) -> T) -> Option<T> {
        let mut result = None;
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            match slot.page() {
                ObjectPage::Leaving(frame) if slot.is_leaving() && frame.head() == frame.pfn => {
                    if index == pages.start && frame.order >= Order::PMD {
                        result = Some(f(frame));
                    }
                    slot.put(frame.pfn, frame.order);
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        result
    }
}
