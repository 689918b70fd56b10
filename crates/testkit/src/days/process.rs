//! One process: private pages, some of them stamped, an area that it shares with its children,
//! a library, sometimes a heap of huge pages.

use super::library::word_of;
use super::{Done, Space};
use crate::op::PAGE;
use crate::random::Random;
use softfault::{
    Access, Advice, Event, FaultError, MapFlags, ObjectPart, Pfn, Pin, PinError, Prot, SharedObject, Term,
};
use softfault_host::Hosted;

const SMALL: u64 = 0x20_0000_0000;
const SHARED: u64 = 0x28_0000_0000;
const LIBRARY: u64 = 0x30_0000_0000;
const HEAP: u64 = 0x10_0000_0000;
const HUGE: u64 = 2 << 20;
const RW: Prot = Prot::READ.union(Prot::WRITE);
const FIXED: MapFlags = MapFlags::FIXED.union(MapFlags::ANONYMOUS);
/// One page in so many has a stamp.
const STAMP_EVERY: u64 = 16;
/// Pages of its library that a process touches.
const LIBRARY_TOUCHES: u64 = 8;

pub(super) struct Process<'vm> {
    pub(super) space: Space<'vm>,
    /// Private pages that are mapped, and those of them that were touched.
    nr_pages: u64,
    nr_touched: u64,
    /// Pages of the shared area, and those of them that were touched.
    nr_shared: u64,
    pub(super) nr_shared_touched: u64,
    /// Pages of its library.
    nr_library: u64,
    /// The turn in which it ends.
    pub(super) ends_at: u64,
    /// Where the stamps are and what they say.
    stamps: Vec<(u64, u64)>,
}

/// The pages of a new process.
pub(super) struct Birth {
    pub(super) nr_pages: u64,
    pub(super) nr_shared: u64,
    pub(super) nr_huge: u64,
}

fn said(what: &'static str) -> impl Fn(&dyn core::fmt::Display) -> String {
    move |error| format!("{what}: {error}")
}

impl<'vm> Process<'vm> {
    pub(super) fn new(
        space: Space<'vm>,
        birth: &Birth,
        library: Option<&SharedObject<'vm, Hosted>>,
        random: &mut Random,
    ) -> Done<Process<'vm>> {
        let map = |at: u64, len: u64, flags: MapFlags| -> Done {
            if len == 0 {
                return Ok(());
            }
            space.mmap(at, len, RW, flags | FIXED).map(|_| ()).map_err(|e| said("mmap")(&e))
        };
        map(SMALL, birth.nr_pages * PAGE, MapFlags::PRIVATE)?;
        map(SHARED, birth.nr_shared * PAGE, MapFlags::SHARED)?;
        map(HEAP, birth.nr_huge * HUGE, MapFlags::PRIVATE)?;
        let process = Process {
            space,
            nr_pages: birth.nr_pages,
            nr_touched: 0,
            nr_shared: birth.nr_shared,
            nr_shared_touched: 0,
            nr_library: library.map_or(0, |library| library.size_bytes() / PAGE),
            ends_at: 0,
            stamps: vec![],
        };
        process.touch_heap(birth.nr_huge)?;
        if let Some(library) = library {
            process.touch_library(library, random)?;
        }
        Ok(process)
    }

    fn touch_heap(&self, nr_huge: u64) -> Done {
        if nr_huge == 0 {
            return Ok(());
        }
        let len = nr_huge * HUGE;
        self.space.madvise(HEAP, len, Advice::HugePage).map_err(|e| said("madvise")(&e))?;
        (0..nr_huge).try_for_each(|i| self.fault(HEAP + i * HUGE, Access::Write))?;
        // A part is given back, so that some huge pages are split.
        self.space.madvise(HEAP, len / 2 + PAGE, Advice::DontNeed).map_err(|e| said("madvise")(&e))
    }

    fn touch_library(&self, library: &SharedObject<'vm, Hosted>, random: &mut Random) -> Done {
        let len = library.size_bytes();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let mapped = self.space.mmap_object(LIBRARY, len, Prot::READ, flags, ObjectPart::new(library));
        mapped.map_err(|e| said("mmap of a library")(&e))?;
        (0..LIBRARY_TOUCHES).try_for_each(|_| {
            let page = random.below(len / PAGE);
            self.fault(LIBRARY + page * PAGE, Access::Read)?;
            let mut word = [0; 8];
            let says = self.space.read(LIBRARY + page * PAGE, &mut word).map(|()| u64::from_le_bytes(word));
            match says {
                // One of memory has nothing.
                Ok(word) if word == 0 || word == word_of(page) => Ok(()),
                Ok(word) => Err(format!("page {page} of a library says {word:#x}")),
                Err(error) if self.has_failed(&error.fault) => Ok(()),
                Err(error) => Err(said("read of a library")(&error)),
            }
        })
    }

    fn fault(&self, at: u64, access: Access) -> Done {
        match self.space.handle_fault(at, access) {
            Ok(_) => Ok(()),
            Err(error) if self.has_failed(&error) => Ok(()),
            Err(error) => Err(format!("a fault at {at:#x}: {error}")),
        }
    }

    /// Whether it says that memory or a read has failed, and some has. The program does without the page.
    fn has_failed(&self, error: &FaultError) -> bool {
        let vm = self.space.vm();
        match error {
            FaultError::Poisoned => vm.event(Event::FramesPoisoned) > 0,
            FaultError::NotRead => vm.event(Event::FileReadFailed) > 0,
            _ => false,
        }
    }

    /// The frame of one of its pages, and whether that is a page of an object.
    pub(super) fn any_frame(&self, random: &mut Random) -> Option<(Pfn, bool)> {
        let (base, nr) = match random.below(3) {
            0 => (SMALL, self.nr_touched),
            1 => (SHARED, self.nr_shared_touched),
            _ => (LIBRARY, self.nr_library),
        };
        let at = base + random.below(nr.max(1)) * PAGE;
        Some((self.space.translate_at_rest(at)?.pfn, base != SMALL))
    }

    /// A child, which has all pages in common with it.
    pub(super) fn fork(&self) -> Done<Process<'vm>> {
        let space = self.space.fork().map_err(|e| said("fork")(&e))?;
        let stamps = self.stamps.clone();
        // Pages that it shares count as its parent's.
        let nr_touched = self.nr_touched - self.nr_touched / 4;
        Ok(Process { space, stamps, nr_touched, nr_shared: 0, nr_shared_touched: 0, ends_at: 0, ..*self })
    }

    /// Whether it has touched what it wanted to.
    pub(super) fn is_grown(&self) -> bool {
        self.nr_touched == self.nr_pages
    }

    /// Touches some pages; `used` learns of some of them.
    pub(super) fn grow(&mut self, nr: u64, number: u64, used: &mut dyn FnMut(u64, u64)) -> Done {
        for _ in 0..nr.min(self.nr_pages - self.nr_touched) {
            let at = SMALL + self.nr_touched * PAGE;
            self.fault(at, Access::Write)?;
            if self.nr_touched.is_multiple_of(STAMP_EVERY) {
                self.stamp(at, number)?;
                self.frame(at)?.iter().for_each(|frame| used(*frame, STAMP_EVERY));
            }
            self.nr_touched += 1;
            // Between the others, so that they lie among them.
            if self.nr_shared_touched * self.nr_pages < self.nr_touched * self.nr_shared {
                let at = SHARED + self.nr_shared_touched * PAGE;
                self.fault(at, Access::Write)?;
                self.frame(at)?.iter().for_each(|frame| used(*frame, 1));
                self.nr_shared_touched += 1;
            }
        }
        Ok(())
    }

    /// The frame of a page that was touched. `None` if its memory has failed.
    fn frame(&self, at: u64) -> Done<Option<u64>> {
        match self.space.translate_at_rest(at) {
            Some(found) => Ok(Some(found.pfn.0.into())),
            None if self.space.handle_fault(at, Access::Read).is_err_and(|error| self.has_failed(&error)) => Ok(None),
            None => Err("a page that was touched is not there".into()),
        }
    }

    fn stamp(&mut self, at: u64, number: u64) -> Done {
        let stamp = number << 32 | ((at / PAGE) & 0xffff_ffff);
        self.stamps.retain(|(other, _)| *other != at);
        match self.space.write(at, &stamp.to_le_bytes()) {
            Ok(()) => self.stamps.push((at, stamp)),
            Err(error) if self.has_failed(&error.fault) => {}
            Err(error) => return Err(said("write")(&error)),
        }
        Ok(())
    }

    /// Gives a quarter of its pages back and touches some of them again.
    pub(super) fn breathe(&mut self, random: &mut Random, number: u64) -> Done {
        let nr = self.nr_touched / 4;
        if nr == 0 {
            return Ok(());
        }
        let first = random.below(self.nr_touched - nr);
        let (start, end) = (SMALL + first * PAGE, SMALL + (first + nr) * PAGE);
        self.space.madvise(start, end - start, Advice::DontNeed).map_err(|e| said("madvise")(&e))?;
        self.stamps.retain(|(at, _)| !(start..end).contains(at));
        (first..first + nr).step_by(3).try_for_each(|page| self.fault(SMALL + page * PAGE, Access::Write))?;
        self.stamp(start, number)
    }

    /// Pins one of its pages for long.
    pub(super) fn pin(&self, random: &mut Random) -> Done<Option<Pin<'vm, Hosted>>> {
        if self.nr_touched == 0 {
            return Ok(None);
        }
        let at = SMALL + random.below(self.nr_touched) * PAGE;
        match self.space.pin_page(at, Term::Long) {
            Ok(pin) => Ok(Some(pin)),
            Err(PinError::Fault(error)) if self.has_failed(&error) => Ok(None),
            Err(error) => Err(said("pin")(&error)),
        }
    }

    /// Looks at what it has written.
    pub(super) fn look(&self) -> Done {
        for (at, stamp) in &self.stamps {
            let mut bytes = [0; 8];
            match self.space.read(*at, &mut bytes) {
                Ok(()) => {}
                Err(error) if self.has_failed(&error.fault) => continue,
                Err(error) => return Err(said("read")(&error)),
            }
            if u64::from_le_bytes(bytes) != *stamp {
                return Err(format!("{at:#x} should say {stamp:#x}, says {:#x}", u64::from_le_bytes(bytes)));
            }
        }
        Ok(())
    }
}
