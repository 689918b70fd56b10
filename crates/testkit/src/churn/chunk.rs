//! Some pages of a space, and what is in them: known to whoever holds the lock.

use super::{CHUNK_PAGES, World, lock, text_of};
use crate::op::{Call, Op, PAGE};
use crate::random::Random;
use softfault::table::format::Format;
use softfault::{AddressSpace, Advice, FaultError, MapFlags, MremapFlags, Pin, PinMut, Prot, Term};
use softfault_host::{Hosted, Running};

const READ: u64 = Prot::READ.to_linux();
const WRITE: u64 = Prot::WRITE.to_linux();
const RW: u64 = READ | WRITE;
const DONTNEED: u64 = Advice::DontNeed.to_linux();
const POPULATE_WRITE: u64 = Advice::PopulateWrite.to_linux();
const MAP_FIXED_PRIVATE: u64 = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED).to_linux();
/// Where the stamp stands in its page: what is copied in part shows.
const PLACES: [u64; 2] = [0, 4088];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageState {
    pub(super) mapped: bool,
    pub(super) prot: u64,
    /// The stamp, or 0 since it was zeroed.
    pub(super) value: u64,
}

const UNMAPPED: PageState = PageState { mapped: false, prot: 0, value: 0 };

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

/// `space` 63:56 | program 55:44 | place in the chunk 43:36 | number 35:0
fn stamp(tag: u64, child: u64, place: u64, number: u64) -> u64 {
    tag << 56 | (child & 0xfff) << 44 | place << 36 | number & 0xf_ffff_ffff
}

/// Whether a root space may see it there.
pub(super) fn is_stamp(seen: u64, tag: u64, place: u64) -> bool {
    seen >> 36 == tag << 20 | place
}

pub(super) fn stamp_of_child(tag: u64, child: u64, addr: u64, number: u64) -> u64 {
    stamp(tag, child, addr / PAGE % CHUNK_PAGES, number)
}

/// A call that has to succeed with `value`.
pub(super) fn call<F: Format>(running: &Running<'_, F>, call: Call, args: &[u64], value: u64) -> Result<(), String> {
    let space = running.space();
    let [a, b, c, d, e, ..] = Op::new(0, call, args).args;
    let done = match call {
        Call::Mmap => space.mmap(a, b, Prot::from_linux(c), MapFlags::from_linux(d)).map_err(|e| e.to_string()),
        Call::Mremap => space.mremap(a, b, c, MremapFlags::from_linux(d), e).map_err(|e| e.to_string()),
        Call::Munmap => space.munmap(a, b).map(|()| 0).map_err(|e| e.to_string()),
        Call::Mprotect => space.mprotect(a, b, Prot::from_linux(c)).map(|()| 0).map_err(|e| e.to_string()),
        _ => match Advice::from_linux(c) {
            Ok(advice) => space.madvise(a, b, advice).map(|()| 0).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        },
    };
    match done {
        Ok(seen) if seen == value => Ok(()),
        other => Err(format!("{} gave {other:x?}", text_of(call, args))),
    }
}

pub(super) fn expect<F: Format>(running: &Running<'_, F>, addr: u64, value: u64) -> Result<(), String> {
    for place in PLACES {
        match running.read_u64(addr + place) {
            Ok(seen) if seen == value => {}
            Ok(seen) => return Err(format!("{:#x} should show {value:#x} and shows {seen:#x}", addr + place)),
            Err(trap) => return Err(format!("a page with {value:#x}: {trap}")),
        }
    }
    Ok(())
}

pub(super) fn write<F: Format>(running: &Running<'_, F>, addr: u64, value: u64) -> Result<(), String> {
    PLACES.iter().try_for_each(|place| running.write_u64(addr + place, value).map_err(|trap| trap.to_string()))
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
        all.filter(|(_, page)| page.mapped && page.prot == RW).map(|(i, page)| (self.at(i), page.value)).collect()
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
                self.replace(world, range, PageState { mapped: true, prot: RW, value: 0 });
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
                call(running, Call::Madvise, &[at, len, POPULATE_WRITE], 0)?;
            }
            8 => self.write_forced(world, running, range.0)?,
            9 | 10 => self.pin(space, random)?,
            11 => self.release_one(random)?,
            12..16 => self.write_some(world, running, random)?,
            _ => self.look_at_some(running, random)?,
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
        self.pages[range.0..range.1].iter_mut().for_each(|page| page.value = 0);
    }

    fn loosen(&mut self, world: &World<'vm, F>, (first, end): (usize, usize)) {
        for held in self.held.extract_if(.., |held| (first..end).contains(&held.page)) {
            let loose = Loose { value: self.pages[held.page].value, pin: held.pin };
            lock(&world.loose).push(loose);
        }
    }

    /// All of it is new, or gone.
    pub(super) fn renew(&mut self, world: &World<'vm, F>, mapped: bool) {
        let with = if mapped { PageState { mapped, prot: RW, value: 0 } } else { UNMAPPED };
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
                    write(running, addr, value)?;
                    self.pages[i].value = value;
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
            let done = running.space().write_forced(self.at(i) + place, &value.to_ne_bytes());
            done.map_err(|e| format!("forced write to {:#x}: {e}", self.at(i)))?;
        }
        self.pages[i].value = value;
        Ok(())
    }

    pub(super) fn look_at_some(&self, running: &Running<'_, F>, random: &mut Random) -> Result<(), String> {
        (0..4).try_for_each(|_| self.look_at(running, random.below(CHUNK_PAGES) as usize))
    }

    pub(super) fn look_at_all(&self, running: &Running<'_, F>) -> Result<(), String> {
        (0..CHUNK_PAGES as usize).try_for_each(|i| self.look_at(running, i))?;
        self.look_at_pins()
    }

    fn look_at(&self, running: &Running<'_, F>, i: usize) -> Result<(), String> {
        let (page, addr) = (self.pages[i], self.at(i));
        match page {
            PageState { mapped: false, .. } => {
                refused(running.read_u64(addr).map_err(|t| t.cause), FaultError::NotMapped, addr)
            }
            PageState { prot: 0, .. } => {
                refused(running.read_u64(addr).map_err(|t| t.cause), FaultError::NoRights, addr)
            }
            PageState { value, .. } => expect(running, addr, value),
        }
    }

    fn pin(&mut self, space: &AddressSpace<'vm, Hosted<F>>, random: &mut Random) -> Result<(), String> {
        let i = random.below(CHUNK_PAGES) as usize;
        let page = self.pages[i];
        // One pin each: who releases a loose one writes into the frame.
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
        self.held.push(Held { page: i, pin: pin.map_err(|e| format!("pin: {e}"))? });
        Ok(())
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

    /// What a pin shows is what the page has.
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

fn refused<T>(seen: Result<T, FaultError>, as_this: FaultError, addr: u64) -> Result<(), String> {
    match seen {
        Err(cause) if cause == as_this => Ok(()),
        Err(cause) => Err(format!("{addr:#x} should be refused as {as_this:?} and is as {cause:?}")),
        Ok(_) => Err(format!("{addr:#x} should be refused as {as_this:?} and is not")),
    }
}
