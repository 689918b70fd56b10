//! Walks for embedders that translate in software: what may be kept, and for how long.
#![forbid(unsafe_code)]

mod common;

use common::huge::{AT, HUGE};
use common::*;
use softfault::policy::huge::Enabled;
use softfault::{Access, Active, CpuId, Event, FaultError, HugeKnobs, Miss, Notice, Order, Rights, Vm, Walked, Walker};
use softfault_testkit::formats::Tested;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

type Walk<'a, 'vm> = Walker<'a, 'vm, Hosted>;
const RX: Rights = Rights::READ.union(Rights::EXEC);
const RIGHTS_RW: Rights = Rights::READ.union(Rights::WRITE);

/// CPU 0 of a machine, active in a space of 16 pages at `BASE`.
fn with_walker(test: impl Fn(&Space<'_>, &Walk<'_, '_>)) {
    let vm = Setup::PLAIN.vm(1, 16 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        space.mmap(BASE, 16 * PAGE, RW, PRIVATE | FIXED).unwrap();
        let active = space.activate();
        test(&space, &active.walker());
        check(&vm, &[&space]);
        drop(active);
    }
    assert_eq!(vm.check_free_is_zero(), Ok(()));
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

fn dirty_pages(space: &Space<'_>) -> u64 {
    let mut nr = 0;
    space.smaps(&mut |entry| nr += entry.dirty_pages);
    nr
}

fn loaded(walker: &Walk<'_, '_>, walked: &Walked<'_>) -> Result<u8, Miss> {
    let mut byte = [0];
    walker.load_through(walked, 0, &mut byte).map(|()| byte[0])
}

#[test]
fn a_fault_is_taken_once() {
    with_walker(|space, walker| {
        let nr_faults = || space.vm().event(Event::Fault);
        let before = nr_faults();
        let walked = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!(nr_faults() - before, 1);
        assert_eq!(Some(walked.translation().pfn), space.translate_at_rest(BASE).map(|t| t.pfn));
        assert_eq!(walked.translation().order, Order::BASE);
        for access in [Access::Read, Access::Write] {
            assert_eq!(walker.translate(BASE + 7, access), Ok(walked), "{access:?}");
        }
        assert_eq!(nr_faults() - before, 1, "the entry allowed the access");
        walker.store_through(&walked, 5, b"text").unwrap();
        let mut text = [0; 4];
        space.read(BASE + 5, &mut text).unwrap();
        assert_eq!(&text, b"text");
    });
}

#[test]
fn what_is_refused_is_what_a_fault_refuses() {
    with_walker(|space, walker| {
        let prot = |prot| space.mprotect(BASE, PAGE, prot).unwrap();
        walker.translate(BASE, Access::Write).unwrap();
        assert_eq!(walker.translate(BASE, Access::Exec), Err(FaultError::NoRights));
        prot(READ);
        assert_eq!(walker.translate(BASE, Access::Write), Err(FaultError::NoRights));
        prot(NONE);
        assert_eq!(walker.translate(BASE, Access::Read), Err(FaultError::NoRights));
        space.madvise(BASE + PAGE, PAGE, GUARD_INSTALL).unwrap();
        assert_eq!(walker.translate(BASE + PAGE, Access::Read), Err(FaultError::Guard));
        for at in [BASE - PAGE, BASE + 16 * PAGE, 1 << 60, u64::MAX] {
            assert_eq!(walker.translate(at, Access::Read), Err(FaultError::NotMapped), "{at:#x}");
        }
    });
}

/// Linux lets a program read what it may only execute, where the CPU cannot tell.
#[test]
fn execute_only_memory_can_be_read_and_fetched() {
    with_walker(|space, walker| {
        space.write(BASE, b"code").unwrap();
        space.mprotect(BASE, PAGE, softfault::Prot::EXEC).unwrap();
        let walked = walker.translate(BASE, Access::Exec).unwrap();
        assert_eq!(walked.translation().rights, RX);
        let mut code = [0; 4];
        walker.fetch_through(&walked, 0, &mut code).unwrap();
        assert_eq!(&code, b"code");
        assert_eq!(loaded(walker, &walked), Ok(b'c'));
        assert_eq!(walker.store_through(&walked, 0, &[1]), Err(Miss::NoRights));
        space.fetch(BASE, &mut code[..2]).unwrap();
        space.read(BASE, &mut code).unwrap();
        assert_eq!(&code, b"code");
    });
}

#[test]
fn fetch_asks_for_the_right_to_execute() {
    with_walker(|space, walker| {
        space.write(BASE + PAGE - 2, b"code").unwrap();
        space.mprotect(BASE, PAGE, RWX).unwrap();
        let mut code = [0; 4];
        let refused = space.fetch(BASE + PAGE - 2, &mut code).unwrap_err();
        assert_eq!((refused.at, refused.fault), (BASE + PAGE, FaultError::NoRights));
        assert_eq!(&code[..2], b"co", "the bytes before were read");
        space.mprotect(BASE + PAGE, PAGE, RWX).unwrap();
        space.fetch(BASE + PAGE - 2, &mut code).unwrap();
        assert_eq!(&code, b"code");
        let walked = walker.translate(BASE + 2 * PAGE, Access::Write).unwrap();
        assert_eq!(walker.fetch_through(&walked, 0, &mut code), Err(Miss::NoRights));
    });
}

/// A page that was only read is kept without the right to write, so that the first
/// store makes its entry dirty.
#[test]
fn a_page_gets_dirty_by_stores_alone() {
    with_walker(|space, walker| {
        let old = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!((old.translation().rights, dirty_pages(space)), (RIGHTS_RW, 1));
        space.madvise(BASE, PAGE, FREE).unwrap();
        assert_eq!(dirty_pages(space), 0);
        assert_eq!(walker.store_through(&old, 0, &[1]), Err(Miss::Stale), "the store would leave no mark");
        let clean = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!((clean.translation().rights, dirty_pages(space)), (Rights::READ, 0));
        assert_eq!(walker.store_through(&clean, 0, &[1]), Err(Miss::NoRights));
        let dirty = walker.translate(BASE, Access::Write).unwrap();
        assert_eq!((dirty.translation().rights, dirty_pages(space)), (RIGHTS_RW, 1));
        walker.store_through(&dirty, 0, &[1]).unwrap();
        assert_eq!(walker.translate(BASE, Access::Read), Ok(dirty), "a dirty page may be stored to");
    });
}

#[test]
fn a_walk_leaves_the_page_young() {
    with_walker(|space, walker| {
        for access in [Access::Read, Access::Write] {
            walker.translate(BASE, access).unwrap();
            assert_eq!(space.test_and_clear_young(BASE, PAGE), 1, "{access:?}");
            assert_eq!(space.test_young(BASE, PAGE), 0);
        }
        walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(space.test_young(BASE, PAGE), 1);
    });
}

/// Whatever takes the page, its frame or a right away ends the translation.
#[test]
fn a_translation_ends_with_what_it_was_of() {
    type Change = fn(&Space<'_>);
    let changes: [(&str, Change); 9] = [
        ("munmap", |s| s.munmap(BASE, PAGE).unwrap()),
        ("mmap over it", |s| _ = s.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap()),
        ("mprotect", |s| s.mprotect(BASE, PAGE, READ).unwrap()),
        ("mremap", |s| _ = s.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, BASE + 64 * PAGE).unwrap()),
        ("MADV_DONTNEED", |s| s.madvise(BASE, PAGE, DONTNEED).unwrap()),
        ("a guard", |s| s.madvise(BASE, PAGE, GUARD_INSTALL).unwrap()),
        ("fork", |s| drop(s.fork().unwrap())),
        ("migration", |s| _ = s.vm().migrate_frame(s.translate_at_rest(BASE).unwrap().pfn).unwrap()),
        ("the end of all", |s| s.munmap(0, Format::TASK_SIZE).unwrap()),
    ];
    for (name, change) in changes {
        with_walker(|space, walker| {
            let walked = walker.translate(BASE, Access::Write).unwrap();
            let stamp = walker.stamp();
            assert!(walker.is_current(&walked) && walked.stamp() == stamp);
            change(space);
            assert!(!walker.is_current(&walked) && walker.stamp() != stamp, "{name}");
            assert_eq!(walker.store_through(&walked, 0, &[1]), Err(Miss::Stale), "{name}");
            assert_eq!(loaded(walker, &walked), Err(Miss::Stale), "{name}");
        });
    }
}

/// The zero frame, and a page that a child shares: a store gets another frame.
#[test]
fn a_copy_ends_the_translation_of_what_was_copied() {
    with_walker(|space, walker| {
        let zero = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(zero.translation().rights, Rights::READ);
        let written = walker.translate(BASE, Access::Write).unwrap();
        assert!(!walker.is_current(&zero) && zero.translation().pfn != written.translation().pfn);
        let child = space.fork().unwrap();
        let shared = walker.translate(BASE, Access::Read).unwrap();
        assert_eq!(shared.translation().rights, Rights::READ, "though the page is dirty");
        let copied = walker.translate(BASE, Access::Write).unwrap();
        assert!(!walker.is_current(&shared) && walker.is_current(&copied));
        walker.store_through(&copied, 0, &[9]).unwrap();
        let mut byte = [1];
        child.read(BASE, &mut byte).unwrap();
        assert_eq!(byte, [0]);
    });
}

/// What adds rights or pages ends nothing.
#[test]
fn a_translation_outlives_what_takes_nothing_away() {
    with_walker(|space, walker| {
        let walked = walker.translate(BASE, Access::Write).unwrap();
        space.mmap(BASE + 64 * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE + PAGE, &[1; 8 * PAGE as usize]).unwrap();
        assert!(walker.is_current(&walked));
        assert_eq!(loaded(walker, &walked), Ok(0));
    });
}

/// A page of a huge mapping: its own frame, and the size. Collapse and split end it.
#[test]
fn a_huge_page() {
    let vm = huge::vm(1, 64 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Always));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, HUGE);
    let active = space.activate();
    let walker = active.walker();
    let first = walker.translate(AT, Access::Write).unwrap().translation();
    assert_eq!((first.order, first.rights), (Order::PMD, RIGHTS_RW));
    let walked = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    assert_eq!(walked.translation().pfn.0, first.pfn.0 + 7);
    walker.store_through(&walked, 3, &[7]).unwrap();
    assert_eq!(huge::byte(&space, AT + 7 * PAGE + 3), 7);
    space.mprotect(AT, PAGE, READ).unwrap();
    assert!(!walker.is_current(&walked), "split");
    let small = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    assert_eq!((small.translation().order, small.translation().pfn), (Order::BASE, walked.translation().pfn));
    space.mprotect(AT, PAGE, RW).unwrap();
    let small = walker.translate(AT + 7 * PAGE, Access::Write).unwrap();
    space.collapse(AT).unwrap();
    assert_eq!(walker.store_through(&small, 3, &[1]), Err(Miss::Stale));
    assert_eq!(walker.translate(AT + 7 * PAGE, Access::Write).unwrap().translation().order, Order::PMD);
    drop(active);
}

/// Translations are of one space of one machine, and changes count also while no CPU
/// has a walker.
#[test]
fn a_translation_is_of_one_space() {
    let (vm, other) = (Setup::PLAIN.vm(1, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let spaces = [vm.new_space().unwrap(), vm.new_space().unwrap()];
    let walk = |space: &Space<'_>, test: &dyn Fn(&Walk<'_, '_>)| test(&space.activate().walker());
    let walked = spaces.each_ref().map(|space| {
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        space.activate().walker().translate(BASE, Access::Write).unwrap()
    });
    for i in [0, 1] {
        walk(&spaces[i], &|walker| {
            assert_eq!(walker.store_through(&walked[i], 0, &[1]), Ok(()), "across activations");
            assert!(!walker.is_current(&walked[1 - i]));
            assert_eq!(walker.store_through(&walked[1 - i], 0, &[1]), Err(Miss::Stale));
        });
    }
    spaces[0].madvise(BASE, PAGE, DONTNEED).unwrap();
    walk(&spaces[0], &|walker| assert_eq!(loaded(walker, &walked[0]), Err(Miss::Stale)));
    drop(cpu);
    thread::scope(|threads| {
        let walked = &walked[1];
        let look = || {
            let _cpu = other.machine().bind(CpuId(0)).unwrap();
            let ids = [other.new_space().unwrap(), other.new_space().unwrap()];
            walk(&ids[1], &|walker| assert!(!walker.is_current(walked), "of another Vm"));
        };
        threads.spawn(look).join().unwrap();
    });
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    drop(spaces);
}

/// A subscriber is called in the middle of an operation.
#[test]
fn a_walker_does_not_walk_in_a_notice() {
    thread_local!(static WALKER: Cell<Option<(&'static Walk<'static, 'static>, Walked<'static>)>> = const { Cell::new(None) });
    let calls: [fn(&Walk<'static, 'static>, Walked<'static>); 2] =
        [|walker, _| _ = walker.translate(BASE, Access::Read), |walker, walked| _ = loaded(walker, &walked)];
    for call in calls {
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
        let active: &'static Active<'static, 'static, Hosted> = Box::leak(Box::new(space.activate()));
        let walker: &'static Walk<'static, 'static> = Box::leak(Box::new(active.walker()));
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        WALKER.set(Some((walker, walker.translate(BASE, Access::Write).unwrap())));
        let tell = move |_, notice: &Notice| {
            let (walker, walked) = WALKER.get().unwrap();
            if matches!(notice, Notice::Start { .. }) {
                call(walker, walked);
            }
            false
        };
        assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
        let _subscription = space.subscribe();
        space.munmap(BASE, PAGE).unwrap();
        assert_eq!(vm.machine().notices_lost(), 1);
        WALKER.set(None);
    }
}

/// CPU 1 does `step` with a walker and the page's last translation, until `own` of CPU 0
/// is over. Each setup begins with a page of zeroes.
fn race(step: impl Fn(&Walk<'_, '_>, &Walked<'_>) -> Result<(), Miss> + Sync, own: impl Fn(&Space<'_>)) {
    let (nr_hits, nr_stale) = (AtomicU64::new(0), AtomicU64::new(0));
    in_each_setup(2, 16 << 20, |w| {
        let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        w.map(BASE, 1, RW);
        let walks = || {
            let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
            let active = w.space.activate();
            let walker = active.walker();
            let mut tlb = None;
            while !stop.load(SeqCst) {
                match tlb.map(|walked| step(&walker, &walked)) {
                    Some(Ok(())) => _ = nr_hits.fetch_add(1, SeqCst),
                    Some(Err(Miss::Stale)) => {
                        nr_stale.fetch_add(1, SeqCst);
                        tlb = None;
                    }
                    Some(Err(miss)) => panic!("{miss}"),
                    None => tlb = walker.translate(BASE, Access::Write).ok(),
                }
                ready.store(true, SeqCst);
            }
        };
        thread::scope(|scope| {
            scope.spawn(walks);
            wait_until(|| ready.load(SeqCst));
            own(w.space);
            stop.store(true, SeqCst);
        });
    });
    assert!(nr_hits.load(SeqCst) > 0 && nr_stale.load(SeqCst) > 0, "{nr_hits:?} hits, {nr_stale:?} misses");
}

/// A store after munmap(2) has returned would be seen in whatever has the frame next.
#[test]
fn stores_against_munmap() {
    race(
        |walker, walked| walker.store_through(walked, 8, &[7; 8]),
        |space| {
            for _ in 0..fewer(400) {
                space.munmap(BASE, PAGE).unwrap();
                space.mmap(BASE + PAGE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
                let mut bytes = [0; 4096];
                for page in [1, 2] {
                    space.write(BASE + page * PAGE, &[0]).unwrap();
                    space.read(BASE + page * PAGE, &mut bytes).unwrap();
                    assert_eq!(bytes, [0; 4096], "a store to a page that is gone");
                }
                space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
                space.munmap(BASE + PAGE, 2 * PAGE).unwrap();
                thread::yield_now();
            }
        },
    );
}

/// What the parent stores after fork(2) the child does not see.
#[test]
fn stores_against_fork() {
    let last = AtomicU64::new(0);
    race(
        |walker, walked| {
            let next = last.fetch_add(1, SeqCst);
            walker.store_through(walked, 8, &next.to_ne_bytes())
        },
        |space| {
            for _ in 0..fewer(200) {
                let child = space.fork().unwrap();
                let mut seen = [[0; 8]; 2];
                child.read(BASE + 8, &mut seen[0]).unwrap();
                thread::yield_now();
                child.read(BASE + 8, &mut seen[1]).unwrap();
                assert_eq!(seen[0], seen[1], "a store after the fork");
            }
        },
    );
}

/// No store is lost while the page gets another frame.
#[test]
fn stores_against_migration() {
    let number = |walker: &Walk<'_, '_>, walked: &Walked<'_>| {
        let mut bytes = [0; 8];
        walker.load_through(walked, 8, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    };
    // CPU 1 alone stores: what it loads is what it stored last. Setups begin at zero.
    let last = AtomicU64::new(0);
    race(
        |walker, walked| {
            let now = number(walker, walked)?;
            assert!(now == last.load(SeqCst) || now == 0, "a store was lost");
            walker.store_through(walked, 8, &(now + 1).to_ne_bytes())?;
            last.store(now + 1, SeqCst);
            Ok(())
        },
        |space| {
            for _ in 0..fewer(400) {
                if let Some(there) = space.translate_at_rest(BASE) {
                    _ = space.vm().migrate_frame(there.pfn);
                }
                thread::yield_now();
            }
        },
    );
}
