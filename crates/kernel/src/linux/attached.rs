//! The number of attachments of a segment (`nattch`). Takes the writer lock of each space in turn.

use crate::linux::process::{self, Mm};
use crate::linux::shm::Segment;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The number of its mappings in all processes. As on Linux a hole makes two of one. Reads all mappings there are.
pub fn nr_attached(segment: &Segment) -> u64 {
    let mut seen: Vec<Arc<Mm>> = Vec::new();
    let mut nr = 0;
    for mm in process::all().iter().filter_map(|process| process.mm()) {
        // vfork(2) and CLONE_VM have several processes in one.
        if seen.iter().any(|other| Arc::ptr_eq(other, &mm)) {
            continue;
        }
        mm.space.maps(&mut |vma| nr += u64::from(vma.object == segment.object.id()));
        seen.push(mm);
    }
    nr
}
