//! T14, T15: who keeps a table of his own beside a space's is told of every change
//! before and after, and asked when pages age.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{
    Access, Advance, Advice, CpuId, Event, HugeKnobs, LookupRefused, Notice, Order, PageRange, Pfn, Rights,
    Subscription, Term, Vm, Vpn, Why,
};
use softfault_host::{Hosted, Running};
use std::collections::{BTreeMap, BTreeSet};

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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const ARENA: u64 = 16 << 20;
const OTHER: u64 = BASE + (1 << 30);
/// Where a huge page fits.
const AT: u64 = 0x20_0000_0000;
const HUGE: u64 = 2 << 20;
const NR_PAGES: u64 = 512;

fn range(at: u64, nr_pages: u64) -> PageRange {
    PageRange::sized(Vpn::of(at), nr_pages).unwrap()
}

/// Everything that is told, in its order.
#[derive(Default, Clone)]
struct Log(Arc<Mutex<Vec<Notice>>>);

impl Log {
    fn of(vm: &Vm<Hosted>) -> Log {
        let log = Log::default();
        let to = log.clone();
        let push = move |_, notice: &Notice| {
            to.0.lock().unwrap().push(*notice);
            false
        };
        assert!(vm.machine().on_notice(Box::new(push)).is_ok(), "one subscriber a machine");
        log
    }
    fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Start and end of one change.
fn told(at: u64, nr_pages: u64, why: Why) -> [Notice; 2] {
    let range = range(at, nr_pages);
    [Notice::Start { range, why }, Notice::End { range, why }]
}

/// Each operation, and exactly what is told of it.
#[test]
fn t14_what_is_told_of_each_operation() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let s = w.space;
        let expect = |what: &str, notices: &[[Notice; 2]]| assert_eq!(log.take(), notices.concat(), "{what}");
        w.map(BASE, 8, RW);
        s.write(BASE, &[1; 3 * 4096]).unwrap();
        s.munmap(BASE + 7 * PAGE, PAGE).unwrap();
        expect("nobody has subscribed", &[]);
        let subscription = s.subscribe();
        s.write(BASE + 3 * PAGE, b"new").unwrap();
        s.handle_fault(BASE + 4 * PAGE, Access::Read).unwrap();
        expect("an empty entry is filled", &[]);
        s.write(BASE + 4 * PAGE, b"own").unwrap();
        expect("the zero frame gives way", &[told(BASE + 4 * PAGE, 1, Why::Copy)]);
        s.mprotect(BASE, 2 * PAGE, READ).unwrap();
        expect("fewer rights", &[told(BASE, 2, Why::Protect)]);
        s.mprotect(BASE, 2 * PAGE, RW).unwrap();
        s.write(BASE, b"reused").unwrap();
        expect("more rights", &[]);
        s.madvise(BASE, 3 * PAGE, FREE).unwrap();
        expect("free", &[told(BASE, 3, Why::Clean)]);
        s.madvise(BASE + PAGE, PAGE, DONTNEED).unwrap();
        expect("dontneed", &[told(BASE + PAGE, 1, Why::Discard)]);
        w.map(OTHER, 2, RW);
        let child = s.fork().unwrap();
        expect_fork(&log.take(), &[range(BASE, 7), range(OTHER, 2)]);
        s.write(BASE, b"copied").unwrap();
        expect("copy", &[told(BASE, 1, Why::Copy)]);
        child.write(BASE + 2 * PAGE, b"the child's").unwrap();
        child.munmap(BASE, 7 * PAGE).unwrap();
        drop(child);
        expect("another space", &[]);
        s.write(BASE + 2 * PAGE, b"reused").unwrap();
        expect("reuse", &[]);
        s.mremap(BASE, 2 * PAGE, 2 * PAGE, MAYMOVE | MREMAP_FIXED, OTHER + 8 * PAGE).unwrap();
        let moved = told(BASE, 2, Why::Move);
        expect("a move, and what faults may have put there meanwhile", &[moved, moved]);
        s.munmap(BASE + 2 * PAGE, 2 * PAGE).unwrap();
        expect("unmap", &[told(BASE + 2 * PAGE, 2, Why::Unmap)]);
        w.map(OTHER, 1, RW);
        expect("replaced", &[told(OTHER, 1, Why::Unmap)]);
        s.madvise(OTHER, PAGE, GUARD_INSTALL).unwrap();
        expect("a guard in an empty page", &[]);
        s.write(BASE + 4 * PAGE, b"here").unwrap();
        let frame = |addr| s.translate_at_rest(addr).unwrap().pfn;
        let moved = w.vm.migrate_frame(frame(BASE + 4 * PAGE)).unwrap();
        assert_eq!(frame(BASE + 4 * PAGE), moved);
        expect("a move to another frame", &[told(BASE + 4 * PAGE, 1, Why::Migrate)]);
        drop(s.pin_page_mut(BASE + 4 * PAGE, Term::Long).unwrap());
        assert_ne!(frame(BASE + 4 * PAGE), moved);
        expect("set apart by a long-term pin", &[told(BASE + 4 * PAGE, 1, Why::Migrate)]);
        s.unsubscribe(subscription).unwrap();
        s.munmap(BASE, 8 * PAGE).unwrap();
        expect("nobody any more", &[]);
    });
}

fn expect_fork(notices: &[Notice], ranges: &[PageRange]) {
    let start = |&range: &PageRange| Notice::Start { range, why: Why::Fork };
    let end = |&range: &PageRange| Notice::End { range, why: Why::Fork };
    let expected: Vec<Notice> = ranges.iter().map(start).chain(ranges.iter().map(end)).collect();
    assert_eq!(notices, expected);
}

#[test]
fn t14_pages_that_an_object_has_lost() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        let part = softfault::ObjectPart::new(&object).with_offset_bytes(2 * PAGE);
        w.space.mmap_object(BASE, 4 * PAGE, RW, SHARED | FIXED, part).unwrap();
        w.space.write(BASE, &[1; 4 * 4096]).unwrap();
        let _subscription = w.space.subscribe();
        object.discard(3..4);
        assert_eq!(log.take(), told(BASE + PAGE, 1, Why::Discard));
        drop(w.space.fork().unwrap());
        assert_eq!(log.take(), [], "shared memory keeps its rights at a fork");
        w.space.munmap(BASE, 4 * PAGE).unwrap();
    });
}

#[test]
fn t14_release() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        let log = Log::of(w.vm);
        let space = w.vm.new_space().unwrap();
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        let _subscription = space.subscribe();
        drop(space);
        assert_eq!(log.take(), [Notice::Release]);
        drop(w.vm.new_space().unwrap());
        assert_eq!(log.take(), [], "a space without a subscription");
    });
}

#[test]
fn who_is_refused_a_frame_number() {
    in_setup(Setup::PLAIN, 1, ARENA, |w| {
        w.map(BASE, 2, RW);
        let other = w.vm.new_space().unwrap();
        let subscription = w.space.subscribe();
        let second = other.subscribe();
        let lookup = |addr| subscription.lookup(w.space, addr).map(|found| found.translation.rights);
        assert_eq!(lookup(BASE), Err(LookupRefused::Absent));
        w.space.write(BASE, b"there").unwrap();
        assert_eq!(lookup(BASE + 17), Ok(Rights::READ | Rights::WRITE));
        for addr in [1 << 47, 1 << 63, u64::MAX] {
            assert_eq!(lookup(addr), Err(LookupRefused::Absent), "{addr:#x}");
        }
        assert_eq!(second.lookup(w.space, BASE).unwrap_err(), LookupRefused::OtherSpace);
        assert_eq!(subscription.lookup(&other, BASE).unwrap_err(), LookupRefused::OtherSpace);
        let before = subscription.lookup(w.space, BASE).unwrap();
        assert!(subscription.is_current(w.space, &before) && !second.is_current(w.space, &before));
        w.space.write(BASE + PAGE, b"elsewhere").unwrap();
        assert!(subscription.is_current(w.space, &before), "nothing has changed");
        w.space.madvise(BASE, PAGE, DONTNEED).unwrap();
        assert!(!subscription.is_current(w.space, &before));
        let events = [Event::LookupAbsent, Event::LookupOtherSpace, Event::LookupUnderWay];
        assert_eq!(events.map(|event| w.vm.event(event)), [4, 2, 0]);
        let second = w.space.unsubscribe(second).unwrap_err();
        other.unsubscribe(second).unwrap();
        w.space.unsubscribe(subscription).unwrap();
        let state = w.space.page_state(BASE + PAGE).unwrap();
        assert_eq!((state.rights, state.order.nr_pages()), (Rights::READ | Rights::WRITE, 1));
    });
}

/// Stops an operation at each notice, so that another CPU can look.
struct Stops {
    notices: Receiver<Notice>,
    go_on: Sender<()>,
}

impl Stops {
    fn of(vm: &Vm<Hosted>) -> Stops {
        let (notice_to, notices) = channel();
        let (go_on, gone_on) = channel();
        let ends = Mutex::new((notice_to, gone_on));
        let stop = move |_, notice: &Notice| {
            let ends = ends.lock().unwrap();
            ends.0.send(*notice).unwrap();
            ends.1.recv().unwrap();
            false
        };
        assert!(vm.machine().on_notice(Box::new(stop)).is_ok());
        Stops { notices, go_on }
    }
}

/// While the start is told the page is what it was, and lookups are refused; when
/// the end is, it is what it will be.
#[test]
fn t14_told_before_and_after() {
    type Operation = fn(&Space<'_>);
    let operations: [(&str, Operation); 7] = [
        ("munmap", |s| s.munmap(BASE, PAGE).unwrap()),
        ("mprotect", |s| s.mprotect(BASE, PAGE, READ).unwrap()),
        ("dontneed", |s| s.madvise(BASE, PAGE, DONTNEED).unwrap()),
        ("mremap", |s| _ = s.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, OTHER).unwrap()),
        ("fork", |s| drop(s.fork().unwrap())),
        ("copy", |s| _ = s.handle_fault(BASE + PAGE, Access::Write).unwrap()),
        ("migrate", |s| _ = s.vm().migrate_frame(s.translate_at_rest(BASE).unwrap().pfn).unwrap()),
    ];
    for (name, operation) in operations {
        eprintln!("{name}");
        in_setup(Setup::PLAIN, 2, ARENA, |w| {
            w.map(BASE, 2, RW);
            w.space.write(BASE, b"there").unwrap();
            w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
            let addr = if name == "copy" { BASE + PAGE } else { BASE };
            let stops = Mutex::new(Stops::of(w.vm));
            let subscription = w.space.subscribe();
            let seen = Mutex::new(Vec::new());
            let look = || {
                let refused = subscription.lookup(w.space, addr).err() == Some(LookupRefused::UnderWay);
                (w.space.translate_at_rest(addr), refused)
            };
            let before = look().0;
            let observer = |_: &Running<'_>, stop: &AtomicBool| {
                let stops = stops.lock().unwrap();
                while !stop.load(SeqCst) {
                    let Ok(notice) = stops.notices.recv_timeout(std::time::Duration::from_millis(1)) else { continue };
                    seen.lock().unwrap().push((notice, look()));
                    stops.go_on.send(()).unwrap();
                }
            };
            w.race(&[&observer], |_| operation(w.space));
            let seen = seen.into_inner().unwrap();
            let after = look().0;
            assert_ne!(before, after, "{name} changes nothing");
            assert!(matches!(seen[0], (Notice::Start { .. }, look) if look == (before, true)), "{name}: {seen:?}");
            assert!(matches!(seen[1], (Notice::End { .. }, look) if look == (after, false)), "{name}: {seen:?}");
            w.space.unsubscribe(subscription).unwrap();
        });
    }
}

/// A fault that told of its copy, finds another page there and has to get another
/// frame for it: the end of the first notice comes before that, and the copy that is
/// made at last is told of anew.
#[test]
fn t14_a_copy_that_is_not_made_is_told_twice() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, b"shared").unwrap();
        let child = w.space.fork().unwrap();
        let log = Log::default();
        let (is_told, may_go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (to, tell, wait) = (log.clone(), is_told.clone(), may_go_on.clone());
        let stop_once = move |_, notice: &Notice| {
            to.0.lock().unwrap().push(*notice);
            if matches!(notice, Notice::Start { why: Why::Copy, .. }) && !tell.swap(true, SeqCst) {
                wait_until(|| wait.load(SeqCst));
            }
            false
        };
        assert!(w.vm.machine().on_notice(Box::new(stop_once)).is_ok());
        let subscription = w.space.subscribe();
        let writer = |_: &Running<'_>, _: &AtomicBool| {
            w.space.handle_fault(BASE, Access::Write).unwrap();
        };
        w.race(&[&writer], |_| {
            wait_until(|| is_told.load(SeqCst));
            w.space.madvise(BASE, PAGE, DONTNEED).unwrap();
            w.space.handle_fault(BASE, Access::Read).unwrap();
            may_go_on.store(true, SeqCst);
        });
        let [start, end] = told(BASE, 1, Why::Copy);
        let notices = log.take();
        let copies: Vec<_> = notices.iter().filter(|n| **n == start || **n == end).copied().collect();
        assert_eq!(copies, [start, end, start, end], "{notices:?}");
        w.space.unsubscribe(subscription).unwrap();
        drop(child);
    });
}

/// After the last subscription no notice is being received, also not of the end of a
/// change that is over already.
#[test]
fn t14_unsubscribing_waits_for_the_end() {
    in_setup(Setup::PLAIN, 2, ARENA, |w| {
        w.map(BASE, 1, RW);
        w.space.handle_fault(BASE, Access::Read).unwrap();
        let stops = Mutex::new(Stops::of(w.vm));
        let subscription = w.space.subscribe();
        let writer = |running: &Running<'_>, _: &AtomicBool| {
            running.space().handle_fault(BASE, Access::Write).unwrap();
        };
        let is_over = AtomicBool::new(false);
        let is_gone = AtomicBool::new(false);
        w.race(&[&writer], |_| {
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let stops = stops.lock().unwrap();
                    assert!(matches!(stops.notices.recv().unwrap(), Notice::Start { .. }));
                    stops.go_on.send(()).unwrap();
                    assert!(matches!(stops.notices.recv().unwrap(), Notice::End { .. }));
                    is_over.store(true, SeqCst);
                    // As long as a subscriber may take.
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    let is_early = is_gone.load(SeqCst);
                    stops.go_on.send(()).unwrap();
                    assert!(!is_early, "unsubscribed while the end is being received");
                });
                wait_until(|| is_over.load(SeqCst));
                w.space.unsubscribe(subscription).unwrap();
                is_gone.store(true, SeqCst);
            });
        });
    });
}

/// A second table: a guest's, or a device's.
#[derive(Default)]
struct Mirror {
    pages: Mutex<BTreeMap<Vpn, (Pfn, Rights)>>,
    used: Mutex<BTreeSet<Vpn>>,
    nr_dropped: AtomicU64,
}

impl Mirror {
    fn of(vm: &Vm<Hosted>) -> Arc<Mirror> {
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

/// What a page of the window holds, ever: its own number, or zero.
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

fn enable(w: &World<'_>, cow: CowHuge) {
    w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow)).unwrap();
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
            // What moves away shows its old page's number in the new place; so it goes.
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

/// T15. What is used once is counted once, through whichever table.
#[test]
fn t15_ageing() {
    in_each_setup(2, ARENA, |w| {
        let mirror = Mirror::of(w.vm);
        w.map(BASE, 8, RW);
        let s = w.space;
        (0..4).for_each(|i| s.write(BASE + i * PAGE, b"used").unwrap());
        let all = 8 * PAGE;
        assert_eq!((s.test_young(BASE, all), s.test_young(BASE + PAGE, 2 * PAGE)), (4, 2));
        // Two bytes, on either side of an edge; to the end of everything; nothing.
        let young = [(BASE + PAGE - 1, 2), (BASE, u64::MAX), (BASE, 0), (BASE + PAGE - 1, 1)];
        assert_eq!(young.map(|(addr, len)| s.test_young(addr, len)), [2, 4, 0, 1]);
        assert_eq!((s.test_and_clear_young(BASE, all), s.test_young(BASE, all)), (4, 0));
        let mut nr_dirty = 0;
        s.smaps(&mut |entry| nr_dirty += entry.dirty_pages);
        assert_eq!(nr_dirty, 4, "dirty bits stay");
        // Used by the guest only; by both; asked of a part.
        let subscription = s.subscribe();
        let touch = |page| _ = mirror.used.lock().unwrap().insert(Vpn(Vpn::of(BASE).0 + page));
        touch(1);
        touch(7);
        assert_eq!((s.test_young(BASE, all), s.test_young(BASE + 2 * PAGE, 2 * PAGE)), (1, 0), "7 is not mapped");
        s.write(BASE + PAGE, b"used").unwrap();
        assert_eq!(s.test_and_clear_young(BASE, all), 1);
        assert_eq!(s.test_and_clear_young(BASE, all), 0, "the guest has forgotten, too");
        // A walk asks the guest, too, and the age says it.
        s.age_pages(0, 1 << 20);
        while w.vm.advance_generation(2) != Advance::Done {}
        touch(2);
        assert_eq!((s.age_pages(0, 1 << 20).nr_young, w.vm.idle_pages(1)), (1, 3));
        assert_eq!(s.age_pages(0, 1 << 20).nr_young, 0, "the guest has forgotten, too");
        while w.vm.advance_generation(2) != Advance::Done {}
        touch(3);
        assert_eq!((s.test_and_clear_young(BASE, all), w.vm.idle_pages(1)), (1, 3));
        s.unsubscribe(subscription).unwrap();
        for (addr, len) in
            [(BASE + (1 << 40), PAGE), (BASE, 0), (u64::MAX - 5, 100), (1 << 63, u64::MAX), (5, u64::MAX)]
        {
            assert_eq!(s.test_and_clear_young(addr, len), 0, "{addr:#x}, {len:#x}");
        }
    });
}

/// Another CPU keeps its translations; each of its uses is counted all the same,
/// by one call or the next.
#[test]
fn t15_test_and_clear_loses_none() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, 4, RW);
        (0..4).for_each(|i| w.space.write(BASE + i * PAGE, b"there").unwrap());
        let (asked, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let user = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let n = asked.load(SeqCst);
                if n > done.load(SeqCst) {
                    running.read_u64(BASE + (n % 4) * PAGE).unwrap();
                    done.store(n, SeqCst);
                }
            }
        };
        w.race(&[&user], |_| {
            w.space.test_and_clear_young(BASE, 4 * PAGE);
            for n in 1..400 {
                asked.store(n, SeqCst);
                let mut counted = 0;
                // Calls race with the use, until it is known to be over.
                while done.load(SeqCst) < n {
                    counted += w.space.test_and_clear_young(BASE, 4 * PAGE);
                }
                counted += w.space.test_and_clear_young(BASE, 4 * PAGE);
                assert_eq!(counted, 1, "use {n}");
            }
        });
    });
}

/// T14 for huge pages: what changes is told whole; what is split is not told.
#[test]
fn t14_what_is_told_of_huge_pages() {
    // The huge zero page stays, so frames are not counted at the end.
    let vm = Setup::PLAIN.vm(1, 48 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    {
        let w = &World { vm: &vm, cpu: &cpu, space: &space };
        let log = Log::of(w.vm);
        let s = w.space;
        let expect = |what: &str, notices: &[[Notice; 2]]| assert_eq!(log.take(), notices.concat(), "{what}");
        enable(w, CowHuge::Copy);
        w.map(AT, 3 * NR_PAGES, RW);
        let subscription = s.subscribe();
        s.handle_fault(AT + 5 * PAGE, Access::Write).unwrap();
        s.handle_fault(AT + HUGE, Access::Read).unwrap();
        expect("huge pages in empty entries", &[]);
        let found = subscription.lookup(s, AT + 7 * PAGE).unwrap();
        let first = subscription.lookup(s, AT).unwrap();
        assert_eq!((found.translation.order, found.translation.pfn.0), (Order::PMD, first.translation.pfn.0 + 7));
        s.handle_fault(AT + HUGE + 9 * PAGE, Access::Write).unwrap();
        expect("the huge zero page gives way", &[told(AT + HUGE, NR_PAGES, Why::Copy)]);
        let child = s.fork().unwrap();
        log.take();
        s.write(AT + 3 * PAGE, b"copied").unwrap();
        expect("all of it is copied", &[told(AT, NR_PAGES, Why::Copy)]);
        enable(w, CowHuge::Split);
        s.write(AT + HUGE + 3 * PAGE, b"copied").unwrap();
        expect("one page is copied", &[told(AT + HUGE + 3 * PAGE, 1, Why::Copy)]);
        drop(child);
        s.mprotect(AT + 2 * PAGE, 3 * PAGE, READ).unwrap();
        assert_eq!(s.page_state(AT).unwrap().order, Order::BASE, "it is split");
        expect("a part loses a right", &[told(AT + 2 * PAGE, 3, Why::Protect)]);
        s.mprotect(AT, HUGE, RW).unwrap();
        s.madvise(AT, HUGE, Advice::Collapse).unwrap();
        expect("collapse", &[told(AT, NR_PAGES, Why::Collapse)]);
        s.madvise(AT + PAGE, PAGE, DONTNEED).unwrap();
        expect("a part goes", &[told(AT + PAGE, 1, Why::Discard)]);
        s.munmap(AT + HUGE, HUGE).unwrap();
        expect("all of it goes", &[told(AT + HUGE, NR_PAGES, Why::Unmap)]);
        s.unsubscribe(subscription).unwrap();
    }
    check(&vm, &[&space]);
}

/// T15: of a huge mapping the subscriber is asked for all 2 MiB, whatever part is
/// aged, so that it finds its own entries, of any size, at any offset.
#[test]
fn t15_ageing_of_a_huge_mapping() {
    in_setup(Setup::PLAIN, 1, 48 << 20, |w| {
        let mirror = Mirror::of(w.vm);
        let s = w.space;
        enable(w, CowHuge::Split);
        w.map(AT, 2 * NR_PAGES, RW);
        s.write(AT + 5 * PAGE, b"used").unwrap();
        assert_eq!(s.test_and_clear_young(AT + 100 * PAGE, PAGE), NR_PAGES, "one accessed bit for all");
        assert_eq!(s.test_young(AT, 2 * HUGE), 0);
        let subscription = s.subscribe();
        for page in [0, 17, 511] {
            mirror.used.lock().unwrap().insert(Vpn(Vpn::of(AT).0 + page));
            assert_eq!(s.test_young(AT + 200 * PAGE, PAGE), NR_PAGES, "used at page {page}");
            assert_eq!(s.test_and_clear_young(AT + 200 * PAGE, PAGE), NR_PAGES);
            assert_eq!(s.test_and_clear_young(AT, HUGE), 0);
        }
        assert_eq!(s.page_state(AT).unwrap().order, Order::PMD, "ageing splits nothing");
        s.unsubscribe(subscription).unwrap();
    });
}
