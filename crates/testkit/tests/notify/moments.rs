//! T14: the moments at which notices come: before a change, after it, and never after the last subscription.

use super::*;
use common::stops::Stops;

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
            let stops = Mutex::new(Stops::at(w.vm, |_| true));
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
                    let Some((_, notice)) = stops.next_soon() else { continue };
                    seen.lock().unwrap().push((notice, look()));
                    stops.go_on();
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
        let stops = Mutex::new(Stops::at(w.vm, |_| true));
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
                    assert!(matches!(stops.next(), (_, Notice::Start { .. })));
                    stops.go_on();
                    assert!(matches!(stops.next(), (_, Notice::End { .. })));
                    is_over.store(true, SeqCst);
                    let_others_run();
                    let is_early = is_gone.load(SeqCst);
                    stops.go_on();
                    assert!(!is_early, "unsubscribed while the end is being received");
                });
                wait_until(|| is_over.load(SeqCst));
                w.space.unsubscribe(subscription).unwrap();
                is_gone.store(true, SeqCst);
            });
        });
    });
}
