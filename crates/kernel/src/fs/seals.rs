//! Seals of a file: what may never again be done to it, fcntl(2) with F_ADD_SEALS. A
//! file has them beside its content, under the lock of its writers, so that nothing
//! they forbid is under way when they are there.

use super::content::Content;
use crate::errno::{self, Errno};
use crate::mm::Object;
use crate::process;
use alloc::vec::Vec;
use softfault::VmaFlags;

bitflags::bitflags! {
    /// Values as fcntl(2) has them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// No further seals.
        const SEAL = 1;
        /// Not to be made smaller.
        const SHRINK = 2;
        /// Not to be made larger.
        const GROW = 4;
        /// Not to be written.
        const WRITE = 8;
        /// Not to be written but through mappings that are there.
        const FUTURE_WRITE = 16;
        /// Rights to execute stay as they are.
        const EXEC = 32;
    }
}

impl Seals {
    /// Neither write(2) nor a new mapping may change the bytes.
    pub const NO_WRITES: Seals = Seals::WRITE.union(Seals::FUTURE_WRITE);
    /// What a file that could be executed loses with `EXEC`.
    const WITH_EXEC: Seals = Seals::NO_WRITES.union(Seals::SHRINK).union(Seals::GROW);

    /// EPERM where one of `forbidding` is there.
    pub fn check(self, forbidding: Seals) -> errno::Result<()> {
        if self.intersects(forbidding) { Err(Errno::EPERM) } else { Ok(()) }
    }
}

/// F_ADD_SEALS for a file with that mode.
pub fn add(content: &Content, mode: u32, wanted: u32) -> errno::Result<()> {
    let mut wanted = Seals::from_bits(wanted).ok_or(Errno::EINVAL)?;
    let mut writer = content.writer();
    let seals = writer.seals();
    seals.check(Seals::SEAL)?;
    if (wanted - seals).contains(Seals::WRITE) && may_be_stored_to(&*writer.object()?) {
        return Err(Errno::EBUSY);
    }
    if wanted.contains(Seals::EXEC) && mode & 0o111 != 0 {
        wanted |= Seals::WITH_EXEC;
    }
    writer.set_seals(seals | wanted);
    Ok(())
}

/// Whether a mapping that may be writable shows the object. The caller lets nobody map
/// it meanwhile; what fork(2) is just copying is counted by the object and found in no
/// process, and so makes the answer yes.
fn may_be_stored_to(object: &Object) -> bool {
    let mut nr_pages = object.nr_mapped_pages();
    let mut seen = Vec::new();
    let mut nr_read_only = 0;
    for mm in process::all().iter().filter_map(|process| process.mm()) {
        if seen.contains(&mm.space.tag().id) {
            continue;
        }
        seen.push(mm.space.tag().id);
        mm.space.maps(&mut |vma| {
            if vma.object == object.id() && vma.flags.contains(VmaFlags::NEVERWRITE) {
                nr_read_only += vma.range.nr_pages();
            }
        });
    }
    nr_pages = nr_pages.max(object.nr_mapped_pages());
    nr_read_only < nr_pages
}
