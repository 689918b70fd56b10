//! Deeds that look at bytes or store them, each told to the history.

use super::Actor;
use crate::baton::{NR_KNOWN, file_pages, private_pages};
use crate::op::PAGE;
use softfault::{Access, FaultError, PinError, Term};
use softfault_host::{PageFault, Running};

impl Actor<'_, '_> {
    fn store(&mut self, page: usize, running: &Running<'_>) {
        let value = self.value();
        let begin = self.world.history().tick();
        let copy = self.world.history().begin_copy(page);
        let id = self.world.history().begin(page, value);
        let addr = self.world.addr_of(page, self.base());
        let stored = self.access(addr, Access::Write, || running.try_store(addr, &value.to_ne_bytes()));
        let mut history = self.world.history();
        match stored {
            Ok(()) => history.end(id, true),
            Err(cause) => {
                history.cancel(id);
                history.refused(page, begin, cause, "a store");
            }
        }
        history.end_copy(copy, stored.is_ok());
    }

    /// The second time by the translation of the first, if it still holds.
    pub(super) fn store_twice(&mut self, page: usize, running: &Running<'_>) {
        self.store(page, running);
        self.world.turns.pass();
        self.store(page, running);
    }

    /// As a system call or a debugger stores.
    pub(super) fn store_by_call(&mut self, page: usize) {
        let value = self.value();
        let begin = self.world.history().tick();
        let copy = self.world.history().begin_copy(page);
        let id = self.world.history().begin(page, value);
        let (space, addr) = (&self.world.space, self.world.addr_of(page, self.base()));
        let bytes = value.to_ne_bytes();
        let stored = if self.random.chance(50) { space.write(addr, &bytes) } else { space.write_forced(addr, &bytes) };
        let mut history = self.world.history();
        match &stored {
            Ok(()) => history.end(id, true),
            Err(e) => {
                history.cancel(id);
                history.refused(page, begin, e.fault, "a store by a call");
            }
        }
        history.end_copy(copy, stored.is_ok());
    }

    pub(super) fn look(&mut self, page: usize, running: &Running<'_>) {
        let begin = self.world.history().tick();
        let (addr, mut bytes) = (self.world.addr_of(page, self.base()), [0; 8]);
        let seen = self.access(addr, Access::Read, || running.try_load(addr, &mut bytes));
        let mut history = self.world.history();
        match seen {
            Ok(()) => {
                let end = history.tick();
                history.saw(page, u64::from_ne_bytes(bytes), begin, end, "a look");
            }
            Err(cause) => history.refused(page, begin, cause, "a look"),
        }
    }

    /// The second time by the translation of the first, too.
    pub(super) fn look_twice(&mut self, page: usize, running: &Running<'_>) {
        self.look(page, running);
        self.world.turns.pass();
        self.look(page, running);
    }

    /// Repeats an access until no fault comes of it. A fault ends outside the core,
    /// where anybody may run: what the core calls spurious may be so only when
    /// another CPU has gone on.
    fn access(
        &self,
        addr: u64,
        access: Access,
        mut once: impl FnMut() -> Result<(), PageFault>,
    ) -> Result<(), FaultError> {
        while once().is_err() {
            self.world.space.handle_fault(addr, access)?;
            self.world.turns.pass();
        }
        Ok(())
    }

    /// Writes through a pin that it has held for a while.
    pub(super) fn pin(&mut self, page: usize, running: &Running<'_>) {
        let begin = self.world.history().tick();
        let addr = self.world.addr_of(page, self.base());
        let copy = self.world.history().begin_copy(page);
        let pinned = self.world.space.pin_page_mut(addr, Term::Short);
        self.world.history().end_copy(copy, false);
        let pin = match pinned {
            Ok(pin) => pin,
            Err(PinError::Fault(cause)) => return self.world.history().refused(page, begin, cause, "a pin"),
            Err(_) => return self.world.history().refused(page, begin, FaultError::NotMapped, "a pin"),
        };
        let other = self.random.below(NR_KNOWN as u64) as usize;
        self.look(other, running);
        self.world.turns.pass();
        if self.random.chance(50) {
            // Nothing may leave the pin behind with another frame.
            self.store(page, running);
        }
        let value = self.value();
        let id = self.world.history().begin_through_pin(page, value, begin);
        pin.write((addr % PAGE) as usize, &value.to_ne_bytes());
        self.world.history().end(id, true);
        self.look(page, running);
        drop(pin);
    }

    /// The child shows what was there during the fork; what it writes stays its own.
    pub(super) fn fork(&mut self) {
        let begin = self.world.history().tick();
        let (base, changing) = self.place_now();
        let Ok(child) = self.world.space.fork() else {
            let mut history = self.world.history();
            if !history.is_starved {
                history.problems.push("fork was refused".into());
            }
            return;
        };
        let end = self.world.history().tick();
        if changing || self.place_now() != (base, false) {
            return;
        }
        // A store from now on is not in the child.
        self.world.turns.pass();
        for page in (0..NR_KNOWN).chain(file_pages()).chain(private_pages()) {
            let (addr, mut bytes) = (self.world.addr_of(page, base), [0; 8]);
            let read = child.read(addr, &mut bytes);
            let mut history = self.world.history();
            match read {
                Ok(()) => {
                    let end = if file_pages().contains(&page) { history.tick() } else { end };
                    history.saw(page, u64::from_ne_bytes(bytes), begin, end, "a child");
                }
                Err(e) => history.refused(page, begin, e.fault, "a child"),
            }
            drop(history);
            // The parent goes on while the child lives.
            self.world.turns.pass();
            if file_pages().contains(&page) {
                continue; // The parent would see it.
            }
            let _ = child.write(addr, &(u64::MAX - page as u64).to_ne_bytes());
        }
    }

    /// Checks the promise to a device with tables of its own: while a lookup is current, the
    /// page is in that frame.
    pub(super) fn lookup(&mut self, page: usize) {
        let space = &self.world.space;
        let subscription = space.subscribe();
        let addr = self.world.addr_of(page, self.base());
        let _ = space.handle_fault(addr, Access::Read);
        if let Ok(found) = subscription.lookup(space, addr) {
            self.world.turns.pass();
            let now = space.translate_at_rest(addr).map(|there| there.pfn);
            // None while a huge mapping is split, of which nobody is told.
            let moved = now.is_some_and(|pfn| pfn != found.translation.pfn);
            if subscription.is_current(space, &found) && moved {
                let problem = format!("page {page} was looked up in {:?}, is in {now:?}", found.translation.pfn);
                self.world.history().problems.push(problem);
            }
        }
        let _ = space.unsubscribe(subscription);
    }
}
