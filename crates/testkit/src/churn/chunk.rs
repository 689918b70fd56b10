//! Some pages of a space, and their contents, which the holder of the lock knows.

use super::touch::{PLACES, Touch, call, expect, refused, stamp, write};
use super::{CHUNK_PAGES, World, lock};
use crate::op::{Call, PAGE};
use crate::random::Random;
use softfault::table::format::Format;
use softfault::{AddressSpace, Advice, Errno, FaultError, MapFlags, Pin, PinError, PinMut, Prot, Term};
use softfault_host::{Hosted, Running};

const READ: u64 = Prot::READ.to_linux();
const WRITE: u64 = Prot::WRITE.to_linux();
const RW: u64 = READ | WRITE;
const DONTNEED: u64 = Advice::DontNeed.to_linux();
const MAP_FIXED_PRIVATE: u64 = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED).to_linux();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageState {
    pub(super) mapped: bool,
    pub(super) prot: u64,
    /// The stamp, or 0 since it was zeroed.
    pub(super) value: u64,
    /// Its memory has failed, as somebody was told who touched it.
    failed: bool,
}

const UNMAPPED: PageState = PageState { mapped: false, prot: 0, value: 0, failed: false };
const ZEROES: PageState = PageState { mapped: true, prot: RW, value: 0, failed: false };

/// For reading or for writing.
enum AnyPin<'vm, F: Format> {
    Read(Pin<'vm, Hosted<F>>),
    Write(PinMut<'vm, Hosted<F>>),
}

impl<F: Format> AnyPin<'_, F> {
    fn read(&self, place: usize) -> u64 {
        let mut bytes = [0; 8];
        match self {
            AnyPin::Read(pin) => pin.read(place, &mut bytes),
            AnyPin::Write(pin) => pin.read(place, &mut bytes),
        }
        u64::from_ne_bytes(bytes)
    }
}

/// A pin of a page that the chunk still has.
struct Held<'vm, F: Format> {
    page: usize,
    pin: AnyPin<'vm, F>,
}

/// A pin whose page is gone: what is in the frame is the holder's alone.
pub(super) struct Loose<'vm, F: Format> {
    pin: AnyPin<'vm, F>,
    value: u64,
}

pub(super) struct Chunk<'vm, F: Format> {
    tag: u64,
    addr: u64,
    pages: [PageState; CHUNK_PAGES as usize],
    held: Vec<Held<'vm, F>>,
}

impl<F: Format> Loose<'_, F> {
    /// The holder writes once more if it may, and lets go.
    pub(super) fn release(self) -> Result<(), String> {
        let seen = self.pin.read(0);
        if let AnyPin::Write(pin) = &self.pin {
            pin.write(0, &u64::MAX.to_ne_bytes());
            pin.write(0, &[0; 8]);
        }
        if seen == self.value {
            Ok(())
        } else {
            Err(format!("a pin should show {:#x} and shows {seen:#x}", self.value))
        }
    }
}

impl<'vm, F: Format> Chunk<'vm, F> {
    pub(super) fn new(tag: u64, addr: u64) -> Chunk<'vm, F> {
        Chunk { tag, addr, pages: [UNMAPPED; CHUNK_PAGES as usize], held: Vec::new() }
    }

    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.pages.iter().all(|page| page.mapped)
    }

    /// Pages that may be written, with their content.
    pub(super) fn writable(&self) -> Vec<(u64, u64)> {
        let all = self.pages.iter().enumerate();
        all.filter(|(_, page)| page.mapped && page.prot == RW && !page.failed)
            .map(|(i, page)| (self.at(i), page.value))
            .collect()
    }

    pub(super) fn set_rights(&mut self, prot: u64) {
        self.pages.iter_mut().for_each(|page| page.prot = prot);
    }

    fn at(&self, page: usize) -> u64 {
        self.addr + page as u64 * PAGE
    }

    fn range(&self, random: &mut Random) -> (usize, usize) {
        let first = random.below(CHUNK_PAGES) as usize;
        let most = CHUNK_PAGES - first as u64;
        let nr = if random.chance(20) { most } else { 1 + random.below(most.min(8)) };
        (first, first + nr as usize)
    }

    fn len(range: (usize, usize)) -> u64 {
        (range.1 - range.0) as u64 * PAGE
    }

    fn all_mapped(&self, (first, end): (usize, usize)) -> bool {
        self.pages[first..end].iter().all(|page| page.mapped)
    }

    /// Something with some of its pages.
    pub(super) fn step(
        &mut self,
        world: &World<'vm, F>,
        space: &AddressSpace<'vm, Hosted<F>>,
        running: &Running<'_, F>,
        random: &mut Random,
    ) -> Result<(), String> {
        let range = self.range(random);
        let (at, len) = (self.at(range.0), Self::len(range));
        match random.below(20) {
            0 => {
                call(running, Call::Munmap, &[at, len], 0)?;
                self.replace(world, range, UNMAPPED);
            }
            1 | 2 => {
                call(running, Call::Mmap, &[at, len, RW, MAP_FIXED_PRIVATE], at)?;
                self.replace(world, range, ZEROES);
            }
            3 | 4 if self.all_mapped(range) => {
                let prot = random.pick(&[0, READ, READ, RW, RW, RW]);
                call(running, Call::Mprotect, &[at, len, prot], 0)?;
                self.pages[range.0..range.1].iter_mut().for_each(|page| page.prot = prot);
            }
            5 | 6 if self.all_mapped(range) => {
                call(running, Call::Madvise, &[at, len, DONTNEED], 0)?;
                self.drop_content(world, range);
            }
            7 if self.pages[range.0..range.1].iter().all(|page| page.mapped && page.prot == RW) => {
                self.populate(world, running, range)?;
            }
            8 => self.write_forced(world, running, range.0)?,
            9 | 10 => self.pin(world, space, random)?,
            11 => self.release_one(random)?,
            12..16 => self.write_some(world, running, random)?,
            _ => self.look_at_some(world, running, random)?,
        }
        self.look_at_pins()
    }

    /// New pages in the place of these; their pins are loose from now on.
    fn replace(&mut self, world: &World<'vm, F>, range: (usize, usize), with: PageState) {
        self.loosen(world, range);
        self.pages[range.0..range.1].fill(with);
    }

    fn drop_content(&mut self, world: &World<'vm, F>, range: (usize, usize)) {
        self.loosen(world, range);
        self.pages[range.0..range.1].iter_mut().for_each(|page| (page.value, page.failed) = (0, false));
    }

    fn loosen(&mut self, world: &World<'vm, F>, (first, end): (usize, usize)) {
        for held in self.held.extract_if(.., |held| (first..end).contains(&held.page)) {
            let loose = Loose { value: self.pages[held.page].value, pin: held.pin };
            lock(&world.loose).push(loose);
        }
    }

    /// All of it is new, or gone.
    pub(super) fn renew(&mut self, world: &World<'vm, F>, mapped: bool) {
        let with = if mapped { ZEROES } else { UNMAPPED };
        self.replace(world, (0, CHUNK_PAGES as usize), with);
    }

    /// All of it was dropped.
    pub(super) fn forget(&mut self, world: &World<'vm, F>) {
        self.drop_content(world, (0, CHUNK_PAGES as usize));
    }

    /// Its pages, with their pins, are those of another one now.
    pub(super) fn move_to(&mut self, to: &mut Chunk<'vm, F>, world: &World<'vm, F>) {
        to.replace(world, (0, CHUNK_PAGES as usize), UNMAPPED);
        to.pages = core::mem::replace(&mut self.pages, [UNMAPPED; CHUNK_PAGES as usize]);
        to.held = core::mem::take(&mut self.held);
    }

    pub(super) fn write_some(
        &mut self,
        world: &World<'vm, F>,
        running: &Running<'_, F>,
        random: &mut Random,
    ) -> Result<(), String> {
        for _ in 0..1 + random.below(4) {
            let i = random.below(CHUNK_PAGES) as usize;
            let (page, addr) = (self.pages[i], self.at(i));
            let value = stamp(self.tag, 0, i as u64, world.number());
            match (page.mapped, page.prot & WRITE != 0) {
                (true, true) => {
                    let touch = write(running, addr, value)?;
                    self.pages[i].value = value;
                    self.note(world, i, touch)?;
                }
                (true, false) => {
                    refused(running.write_u64(addr, value).map_err(|t| t.cause), FaultError::NoRights, addr)?
                }
                (false, _) => {
                    refused(running.write_u64(addr, value).map_err(|t| t.cause), FaultError::NotMapped, addr)?
                }
            }
        }
        Ok(())
    }

    /// As a debugger does it: rights do not matter.
    fn write_forced(&mut self, world: &World<'vm, F>, running: &Running<'_, F>, i: usize) -> Result<(), String> {
        if !self.pages[i].mapped || self.pages[i].prot == 0 {
            return Ok(());
        }
        let value = stamp(self.tag, 0, i as u64, world.number());
        for place in PLACES {
            match running.space().write_forced(self.at(i) + place, &value.to_ne_bytes()) {
                Ok(()) => {}
                Err(error) if error.fault == FaultError::Poisoned => return self.note(world, i, Touch::Failed),
                Err(error) => return Err(format!("forced write to {:#x}: {error}", self.at(i))),
            }
        }
        self.pages[i].value = value;
        self.note(world, i, Touch::Done)
    }

    /// A page that has failed fails until it is replaced; which one fails first nobody knows.
    fn note(&mut self, world: &World<'vm, F>, i: usize, touch: Touch) -> Result<(), String> {
        match (self.pages[i].failed, touch) {
            (true, Touch::Done) => Err(format!("{:#x} had failed and is back", self.at(i))),
            (false, Touch::Failed) => {
                self.pages[i].failed = true;
                world.found_failed();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refused where memory has failed, and nowhere else.
    fn populate(
        &mut self,
        world: &World<'vm, F>,
        running: &Running<'_, F>,
        range: (usize, usize),
    ) -> Result<(), String> {
        let done = running.space().madvise(self.at(range.0), Self::len(range), Advice::PopulateWrite);
        (range.0..range.1).try_for_each(|i| self.look_at(world, running, i))?;
        let has_failed = self.pages[range.0..range.1].iter().any(|page| page.failed);
        match done.map_err(|error| error.errno()) {
            Ok(()) => Ok(()),
            Err(Errno::EHWPOISON) if has_failed => Ok(()),
            Err(errno) => Err(format!("{:#x} is not populated: {errno}", self.at(range.0))),
        }
    }

    pub(super) fn look_at_some(
        &mut self,
        world: &World<'vm, F>,
        running: &Running<'_, F>,
        random: &mut Random,
    ) -> Result<(), String> {
        (0..4).try_for_each(|_| self.look_at(world, running, random.below(CHUNK_PAGES) as usize))
    }

    pub(super) fn look_at_all(&mut self, world: &World<'vm, F>, running: &Running<'_, F>) -> Result<(), String> {
        (0..CHUNK_PAGES as usize).try_for_each(|i| self.look_at(world, running, i))?;
        self.look_at_pins()
    }

    fn look_at(&mut self, world: &World<'vm, F>, running: &Running<'_, F>, i: usize) -> Result<(), String> {
        let (page, addr) = (self.pages[i], self.at(i));
        match page {
            PageState { mapped: false, .. } => {
                refused(running.read_u64(addr).map_err(|t| t.cause), FaultError::NotMapped, addr)
            }
            PageState { prot: 0, .. } => {
                refused(running.read_u64(addr).map_err(|t| t.cause), FaultError::NoRights, addr)
            }
            PageState { value, .. } => {
                let touch = expect(running, addr, value)?;
                self.note(world, i, touch)
            }
        }
    }

    fn pin(
        &mut self,
        world: &World<'vm, F>,
        space: &AddressSpace<'vm, Hosted<F>>,
        random: &mut Random,
    ) -> Result<(), String> {
        let i = random.below(CHUNK_PAGES) as usize;
        let page = self.pages[i];
        // One pin each: the release of a loose one writes into the frame.
        let is_held = self.held.iter().any(|held| held.page == i);
        if !page.mapped || page.prot == 0 || is_held || self.held.len() >= 6 {
            return Ok(());
        }
        let may_write = page.prot == RW && random.chance(50);
        let (at, term) = (self.at(i), random.pick(&[Term::Short, Term::Long]));
        let pin = match may_write {
            true => space.pin_page_mut(at, term).map(AnyPin::Write),
            false => space.pin_page(at, term).map(AnyPin::Read),
        };
        match pin {
            Ok(pin) => {
                self.held.push(Held { page: i, pin });
                self.note(world, i, Touch::Done)
            }
            Err(PinError::Fault(FaultError::Poisoned)) => self.note(world, i, Touch::Failed),
            Err(error) => Err(format!("pin: {error}")),
        }
    }

    fn release_one(&mut self, random: &mut Random) -> Result<(), String> {
        if !self.held.is_empty() {
            let held = self.held.swap_remove(random.below(self.held.len() as u64) as usize);
            if let AnyPin::Write(pin) = &held.pin {
                let value = stamp(self.tag, 0, held.page as u64, random.number());
                PLACES.iter().for_each(|place| pin.write(*place as usize, &value.to_ne_bytes()));
                self.pages[held.page].value = value;
            }
        }
        Ok(())
    }

    /// A pin shows the page's bytes.
    fn look_at_pins(&self) -> Result<(), String> {
        for held in &self.held {
            for place in PLACES {
                let (seen, value) = (held.pin.read(place as usize), self.pages[held.page].value);
                if seen != value {
                    return Err(format!(
                        "a pin of {:#x} should show {value:#x} and shows {seen:#x}",
                        self.at(held.page)
                    ));
                }
            }
        }
        Ok(())
    }
}
