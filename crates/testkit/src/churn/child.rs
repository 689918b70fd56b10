//! Programs that were forked while others were at work. The test knows what some of their
//! pages must show.

use super::touch::{self, Touch};
use super::{BASE, Chunk, Done, HUGE_PAGES, MAX_CHILDREN, NR_STRETCHES, Root, Worker, lock, try_lock};
use crate::op::{Call, PAGE};
use softfault::AddressSpace;
use softfault::table::format::Format;
use softfault_host::{CpuGuard, Hosted, Running};
use std::sync::MutexGuard;

pub(super) struct Child<'vm, F: Format> {
    pub(super) space: AddressSpace<'vm, Hosted<F>>,
    tag: u64,
    number: u64,
    /// Pages that may be written, and what is in them.
    known: Vec<(u64, u64)>,
}

impl<'a, 'vm, F: Format> Worker<'a, 'vm, F> {
    /// A child of the space that the CPU is in. The chunks that nobody has just now
    /// are known in it, some of them.
    pub(super) fn fork(&mut self, root: &'a Root<'vm, F>, running: &Running<'_, F>) -> Done {
        if lock(&self.world.children).len() >= MAX_CHILDREN {
            return Ok(());
        }
        let mut mine: Vec<MutexGuard<'_, Chunk<'vm, F>>> = Vec::new();
        for _ in 0..4 {
            let i = self.random.below(root.chunks.len() as u64) as usize;
            mine.extend(try_lock(&root.chunks[i]));
        }
        let space = root.space.fork().map_err(|e| format!("fork: {e}"))?;
        let known = mine.iter().flat_map(|chunk| chunk.writable()).collect();
        let number = self.world.number();
        let child = Child { space, tag: self.space_tag(root), number, known };
        // The child must not see what the parent writes now.
        for chunk in &mut mine {
            chunk.write_some(self.world, running, &mut self.random)?;
        }
        drop(mine);
        lock(&self.world.children).push(child);
        Ok(())
    }

    /// Goes on with a child, no matter which CPU had it before, or ends it.
    pub(super) fn with_child(&mut self, cpu: &CpuGuard<'_, F>) -> Done {
        let Some(mut child) = lock(&self.world.children).pop() else { return Ok(()) };
        {
            let running = cpu.enter(&child.space).map_err(|e| e.to_string())?;
            let mut known = core::mem::take(&mut child.known);
            for _ in 0..1 + self.random.below(8) {
                self.step_of_child(&running, &mut known, child.tag, child.number)?;
            }
            child.known = known;
        }
        if self.random.chance(70) {
            lock(&self.world.children).insert(0, child);
        }
        Ok(())
    }

    fn step_of_child(&mut self, running: &Running<'_, F>, known: &mut Vec<(u64, u64)>, tag: u64, number: u64) -> Done {
        let what = |text: String| format!("child {number}: {text}");
        if known.is_empty() || self.random.chance(10) {
            let at = BASE + self.random.below(NR_STRETCHES) * HUGE_PAGES * PAGE;
            self.try_collapse(running, at);
            return Ok(());
        }
        let i = self.random.below(known.len() as u64) as usize;
        let (addr, value) = known[i];
        match self.random.below(10) {
            0 => {
                touch::call(running, Call::Madvise, &[addr, PAGE, 4], 0).map_err(what)?;
                known[i].1 = 0;
            }
            1 => {
                touch::call(running, Call::Mmap, &[addr, PAGE, 3, 0x32], addr).map_err(what)?;
                known[i].1 = 0;
            }
            2..5 => {
                let value = touch::stamp_of_child(tag, number % 0xffe + 1, addr, self.world.number());
                known[i].1 = value;
                if touch::write(running, addr, value).map_err(what)? == Touch::Failed {
                    self.forget(known, i);
                }
            }
            _ if touch::expect(running, addr, value).map_err(what)? == Touch::Failed => self.forget(known, i),
            _ => {}
        }
        for i in (0..known.len()).step_by(7).rev() {
            let (addr, value) = known[i];
            if touch::expect(running, addr, value).map_err(what)? == Touch::Failed {
                self.forget(known, i);
            }
        }
        Ok(())
    }

    /// The memory of the page has failed.
    fn forget(&self, known: &mut Vec<(u64, u64)>, i: usize) {
        known.swap_remove(i);
        self.world.found_failed();
    }
}
