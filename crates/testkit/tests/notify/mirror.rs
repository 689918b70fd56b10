//! T14: a guest accesses memory through a table of its own, which notices keep current.

use super::*;

/// A guest's loads and stores, past the tables of its program.
#[allow(unsafe_code)]
mod device {
    use super::{Hosted, Pfn, Vm};

    pub fn load(vm: &Vm<Hosted>, pfn: Pfn, offset: usize) -> u64 {
        // SAFETY: I24: under the mirror's lock, which a notice takes, too.
        unsafe { vm.machine().device_load(pfn, offset) }
    }
    pub fn store(vm: &Vm<Hosted>, pfn: Pfn, offset: usize, value: u64) {
        // SAFETY: I24: as above, of a page that was looked up for writing.
        unsafe { vm.machine().device_store(pfn, offset, value) }
    }
}

/// A second table: a guest's, or a device's.
#[derive(Default)]
pub(super) struct Mirror {
    pages: Mutex<BTreeMap<Vpn, (Pfn, Rights)>>,
    pub(super) used: Mutex<BTreeSet<Vpn>>,
    nr_dropped: AtomicU64,
}

impl Mirror {
    pub(super) fn of(vm: &Vm<Hosted>) -> Arc<Mirror> {
        let mirror = Arc::new(Mirror::default());
        let to = mirror.clone();
        let obey = move |_, notice: &Notice| match *notice {
            Notice::Start { range, .. } => to.forget(range),
            Notice::End { .. } => false,
            Notice::Young { range, clear } => to.was_used(range, clear),
            // The end, or what is not known here.
            _ => to.forget(PageRange::new(Vpn(0), Vpn(1 << 52))),
        };
        assert!(vm.machine().on_notice(Box::new(obey)).is_ok());
        mirror
    }

    fn forget(&self, range: PageRange) -> bool {
        let mut pages = self.pages.lock().unwrap();
        let before = pages.len();
        pages.retain(|vpn, _| !range.contains(*vpn));
        self.nr_dropped.fetch_add((before - pages.len()) as u64, SeqCst);
        false
    }

    fn was_used(&self, range: PageRange, clear: bool) -> bool {
        let mut used = self.used.lock().unwrap();
        let hits: Vec<Vpn> = used.range(range.start..range.end).copied().collect();
        if clear {
            hits.iter().for_each(|vpn| _ = used.remove(vpn));
        }
        !hits.is_empty()
    }

    /// An access of the guest: through the mirror, filled if need be. `f` runs under
    /// the mirror's lock, which is all that keeps the frame.
    fn access(&self, s: &Space<'_>, by: &Subscription<'_, Hosted>, addr: u64, access: Access, f: &dyn Fn(Pfn)) -> bool {
        let vpn = Vpn::of(addr);
        let allows = |page: &(Pfn, Rights)| page.1.contains(access.needs());
        loop {
            {
                let pages = self.pages.lock().unwrap();
                if let Some(page) = pages.get(&vpn).filter(|page| allows(page)) {
                    f(page.0);
                    return true;
                }
            }
            match by.lookup(s, addr) {
                Ok(found) if found.translation.rights.contains(access.needs()) => {
                    let mut pages = self.pages.lock().unwrap();
                    if by.is_current(s, &found) {
                        pages.insert(vpn, (found.translation.pfn, found.translation.rights));
                    }
                }
                Err(LookupRefused::UnderWay) => std::thread::yield_now(),
                Ok(_) | Err(_) => {
                    if s.handle_fault(addr, access).is_err() {
                        return false;
                    }
                }
            }
        }
    }
}

const PAGES: u64 = 8;

/// The only word but zero that a page of the window ever holds: its own number.
fn mark(page: u64) -> u64 {
    0x5a5a_0000 + page
}

#[test]
fn t14_a_mirror_is_never_stale() {
    in_each_setup(4, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        mirrored(w, BASE);
    });
}

/// The same where pages are huge, split and collapsed.
#[test]
fn t14_a_mirror_of_huge_pages_is_never_stale() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        in_setup(Setup::PLAIN, 4, 48 << 20, |w| {
            enable(w, cow);
            w.map(AT, NR_PAGES, RW);
            mirrored(w, AT);
            assert!(w.vm.event(Event::ThpSplitPmd) > 0);
        });
    }
}

/// The program changes its memory in every way, and frames that it gives up are
/// used by somebody else at once; a guest reads and writes through the mirror.
fn mirrored(w: &World<'_>, base: u64) {
    {
        let mirror = Mirror::of(w.vm);
        let nr_looks = AtomicU64::new(0);
        let guest = |running: &Running<'_>, stop: &AtomicBool| {
            let s = running.space();
            let mut n = 0;
            while !stop.load(SeqCst) {
                // Now and then it begins anew, in the middle of whatever goes on.
                let subscription = s.subscribe();
                for _ in 0..64 {
                    let page = n % PAGES;
                    let access = if n % 3 == 0 { Access::Write } else { Access::Read };
                    let look = |pfn| {
                        let there = device::load(w.vm, pfn, 0);
                        assert!(there == 0 || there == mark(page), "page {page} shows {there:#x} of somebody else");
                        if access == Access::Write {
                            device::store(w.vm, pfn, 16, n);
                        }
                    };
                    if mirror.access(s, &subscription, base + page * PAGE, access, &look) {
                        nr_looks.fetch_add(1, SeqCst);
                    }
                    n += 1;
                }
                mirror.forget(range(base, PAGES));
                s.unsubscribe(subscription).unwrap();
            }
        };
        let program = |running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                let page = n % PAGES;
                let _ = running.write_u64(base + page * PAGE, mark(page));
            }
        };
        // Takes what becomes free, in a space of its own.
        let other = w.vm.new_space().unwrap();
        let thief = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                other.mmap(OTHER, 16 * PAGE, RW, PRIVATE | FIXED).unwrap();
                (0..16).for_each(|i| other.write(OTHER + i * PAGE, &u64::MAX.to_ne_bytes()).unwrap());
                other.munmap(OTHER, 16 * PAGE).unwrap();
            }
        };
        w.race(&[&guest, &program, &thief], |running| {
            for round in 0..42 {
                let n = nr_looks.load(SeqCst);
                wait_until(|| nr_looks.load(SeqCst) > n + 4);
                change(w, running, base, round);
            }
        });
        assert!(mirror.nr_dropped.load(SeqCst) > 10, "the mirror was never filled: the test shows nothing");
        assert!(base == AT || w.vm.event(Event::PgmigrateSuccess) > 0, "no page has moved: the test shows less");
        check(w.vm, &[w.space, &other]);
    }
}

fn change(w: &World<'_>, running: &Running<'_>, base: u64, round: u64) {
    let at = base + (round % 5) * PAGE;
    if base == AT && round.is_multiple_of(3) {
        // Refused while the guest or the program is at work in the wrong moment.
        let _ = w.space.madvise(AT, HUGE, Advice::Collapse);
    }
    match round % 7 {
        0 => w.space.madvise(at, 3 * PAGE, DONTNEED).unwrap(),
        1 => {
            w.space.munmap(at, 2 * PAGE).unwrap();
            w.map(at, 2, RW);
        }
        2 => {
            w.space.mprotect(at, 2 * PAGE, READ).unwrap();
            w.space.mprotect(at, 2 * PAGE, RW).unwrap();
        }
        3 => {
            // A page that moves away shows its old number in the new place, so it is removed.
            w.space.mremap(at, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, OTHER).unwrap();
            w.map(at, 1, RW);
            w.space.munmap(OTHER, PAGE).unwrap();
        }
        4 => (base..base + PAGES * PAGE).step_by(PAGE as usize).for_each(|at| {
            // Refused where the page is part of a huge one, or on its way.
            if let Some(there) = w.space.translate_at_rest(at) {
                let _ = w.vm.migrate_frame(there.pfn);
            }
        }),
        _ => {
            // No write of the guest after the fork shows in the child.
            let child = running.space().fork().unwrap();
            let words = |offset| -> Vec<u64> {
                let read = |page| {
                    let mut bytes = [0; 8];
                    child.read(base + page * PAGE + offset, &mut bytes).unwrap();
                    u64::from_ne_bytes(bytes)
                };
                (0..PAGES).map(read).collect()
            };
            let seen = words(16);
            std::thread::yield_now();
            assert_eq!(words(16), seen, "F5: the guest writes a page of the child");
        }
    }
}
