//! Subscribers while pages are swapped out: what they are told, and what they may do meanwhile.

use super::*;

/// Start and end come, with the entry there at the start and no entry at the end, of private pages and
/// of objects': nobody owns one meanwhile.
#[test]
fn subscribers_are_told() {
    with_pages(|w, object| {
        let other = w.vm.new_space().unwrap();
        map(&other, AWAY, NR_PAGES, &object, 0);
        other.handle_fault(AWAY + PAGE, Access::Read).unwrap();
        w.map(2 * AWAY, 1, RW);
        w.space.write(2 * AWAY, &[5]).unwrap();
        let _subscriptions = [w.space.subscribe(), other.subscribe()];
        let log: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let to = log.clone();
        assert!(
            w.vm.machine()
                .on_notice(Box::new(move |_, notice| {
                    to.lock().unwrap().push(*notice);
                    false
                }))
                .is_ok()
        );
        let told = |pfn, places: &[u64]| {
            assert!(w.vm.swap_out_frame(pfn).is_ok());
            let told = std::mem::take(&mut *log.lock().unwrap());
            assert_eq!(told.len(), 2 * places.len());
            for (notices, at) in told.chunks(2).zip(places) {
                let [Notice::Start { range, why }, Notice::End { range: end, why: why_end }] = *notices else {
                    panic!("{notices:?}")
                };
                assert_eq!((range, why, range.start.addr()), (end, why_end, range.start.addr()));
                assert_eq!((why, range.nr_pages()), (Why::SwapOut, 1));
                assert!(places.contains(&range.start.addr()), "{at:x}");
            }
        };
        let pfn = faulted_frame(w.space, MIDDLE);
        log.lock().unwrap().clear();
        told(pfn, &[MIDDLE, AWAY + PAGE]);
        told(w.space.translate_at_rest(2 * AWAY).unwrap().pfn, &[2 * AWAY]);
        check(w.vm, &[w.space, &other]);
    });
}

/// While a subscriber is told of a private page, or of an object's, others may use its neighbours, and
/// take the writer lock.
#[test]
fn nothing_is_owned_while_subscribers_are_told() {
    for is_private in [false, true] {
        with_pages(|w, object| {
            let at = if is_private { 2 * AWAY } else { MIDDLE };
            w.map(2 * AWAY, 2, RW);
            w.space.write(2 * AWAY, &[5]).unwrap();
            let pfn = faulted_frame(w.space, at);
            let _subscription = w.space.subscribe();
            let (ask, asked) = std::sync::mpsc::channel::<()>();
            let (answer, answered) = std::sync::mpsc::channel::<bool>();
            let (asked, answered) = (Mutex::new(asked), Mutex::new(answered));
            assert!(
                w.vm.machine()
                    .on_notice(Box::new(move |_, notice| {
                        if matches!(
                            notice,
                            Notice::Start { why: Why::SwapOut, .. } | Notice::End { why: Why::SwapOut, .. }
                        ) {
                            ask.send(()).unwrap();
                            let is_right = answered.lock().unwrap().recv_timeout(PATIENCE);
                            assert_eq!(is_right, Ok(true), "an entry or a lock is held");
                        }
                        false
                    }))
                    .is_ok()
            );
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                    for is_there in [true, false] {
                        asked.lock().unwrap().recv().unwrap();
                        let is_seen = w.space.translate_at_rest(at).is_some();
                        w.space.write(at + PAGE, &[9]).unwrap();
                        object.write(2 * PAGE, &[9]).unwrap();
                        w.space.mprotect(AWAY, PAGE, RW).unwrap_err();
                        answer.send(is_seen == is_there).unwrap();
                    }
                });
                assert!(w.vm.swap_out_frame(pfn).is_ok());
            });
        });
    }
}

/// A subscriber may not fault for what takes more than a look: the page is not in transit afterwards.
#[test]
fn a_fault_in_a_notice_begins_nothing() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(vm_with_slots(1, 4)));
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    let object = vm.new_shared_object(BYTES).unwrap();
    map(space, BASE, NR_PAGES, &object, 0);
    World { vm, cpu: &cpu, space }.map(AWAY, 1, RW);
    [BASE, AWAY].iter().for_each(|at| space.write(*at, &[7; PAGE as usize]).unwrap());
    assert_eq!(vm.swap_out_frame(faulted_frame(space, BASE)), Ok(0));
    // The CPU has frames in its cache for pages of objects.
    space.handle_fault(MIDDLE, Access::Write).unwrap();
    let _subscription = space.subscribe();
    let tries = Arc::new(Mutex::new(0));
    let nr_tries = tries.clone();
    let fault = move |_, _: &Notice| {
        panics(|| _ = space.handle_fault(BASE, Access::Read));
        *nr_tries.lock().unwrap() += 1;
        false
    };
    assert!(vm.machine().on_notice(Box::new(fault)).is_ok());
    space.madvise(AWAY, PAGE, DONTNEED).unwrap();
    assert_eq!(*tries.lock().unwrap(), 2, "at the start and at the end");
    check(vm, &[space]);
    assert_eq!(content(&object), full_of([7, 0, 0]));
}
