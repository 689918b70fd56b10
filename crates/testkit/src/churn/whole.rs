//! Steps on whole huge pages, with the locks of all their chunks.

use super::chunk::Chunk;
use super::touch::call;
use super::{Done, HUGE_PAGES, HUGEPAGE, NR_CHUNKS, NR_STRETCHES, Root, Worker, try_lock};
use crate::op::{Call, PAGE};
use softfault::table::format::Format;
use softfault_host::Running;
use std::sync::MutexGuard;

impl<'a, 'vm, F: Format> Worker<'a, 'vm, F> {
    /// All chunks of one stretch, if nobody has one of them.
    fn stretch<'b>(&mut self, root: &'b Root<'vm, F>) -> Option<Vec<MutexGuard<'b, Chunk<'vm, F>>>> {
        let first = (self.random.below(NR_STRETCHES) * NR_CHUNKS) as usize;
        root.chunks[first..first + NR_CHUNKS as usize].iter().map(try_lock).collect()
    }

    /// A whole huge page: made anew, dropped, given all rights.
    pub(super) fn whole(&mut self, root: &'a Root<'vm, F>, running: &Running<'_, F>) -> Done {
        let Some(mut chunks) = self.stretch(root) else { return Ok(()) };
        let at = chunks[0].addr();
        let len = HUGE_PAGES * PAGE;
        match self.random.below(8) {
            0 => call(running, Call::Munmap, &[at, len], 0)?,
            1 => {
                if chunks.iter().all(|chunk| chunk.is_mapped()) {
                    call(running, Call::Mprotect, &[at, len, 3], 0)?;
                    chunks.iter_mut().for_each(|chunk| chunk.set_rights(3));
                    self.try_collapse(running, at);
                }
                return Ok(());
            }
            2 => {
                if chunks.iter().all(|chunk| chunk.is_mapped()) {
                    call(running, Call::Madvise, &[at, len, 4], 0)?;
                    chunks.iter_mut().for_each(|chunk| chunk.forget(self.world));
                }
                return Ok(());
            }
            _ => {
                if self.random.chance(70) {
                    // With its leaf table, so that the first fault may be huge.
                    call(running, Call::Munmap, &[at, len], 0)?;
                }
                call(running, Call::Mmap, &[at, len, 3, 0x32], at)?;
                if self.random.chance(60) {
                    call(running, Call::Madvise, &[at, len, HUGEPAGE], 0)?;
                }
                chunks.iter_mut().for_each(|chunk| chunk.renew(self.world, true));
                // Those that nobody writes stay zero in a huge page that is dirty.
                let most = self.random.pick(&[40, 100]);
                for chunk in &mut chunks {
                    if self.random.chance(most) {
                        chunk.write_some(self.world, running, &mut self.random)?;
                    }
                }
                return Ok(());
            }
        }
        chunks.iter_mut().for_each(|chunk| chunk.renew(self.world, false));
        Ok(())
    }

    /// A huge page, or what has become of it, moves to another stretch.
    pub(super) fn shift(&mut self, root: &'a Root<'vm, F>, running: &Running<'_, F>) -> Done {
        let Some(mut from) = self.stretch(root) else { return Ok(()) };
        let Some(mut to) = self.stretch(root) else { return Ok(()) };
        if !from.iter().all(|chunk| chunk.is_mapped()) {
            return Ok(());
        }
        let (old, new, len) = (from[0].addr(), to[0].addr(), HUGE_PAGES * PAGE);
        call(running, Call::Mremap, &[old, len, len, 3, new], new)?;
        for (from, to) in from.iter_mut().zip(&mut to) {
            from.move_to(to, self.world);
        }
        to.iter_mut().try_for_each(|chunk| chunk.look_at_some(self.world, running, &mut self.random))
    }
}
