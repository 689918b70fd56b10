//! Programs without `unsafe` that once reached undefined behaviour.
#![forbid(unsafe_code)]

mod common;

use common::*;
use softfault::{Access, CpuId, CpuSet, HugeKnobs, Notice, ObjectPart, Order, Pfn, Tunables, Vm};
use softfault_host::{BindError, Hosted, HostedConfig};
use std::thread;

const NR_PAGES: u64 = 1024;

/// Writes every page of a new space, and never frees them.
fn leave_pages_full(vm: &Vm<Hosted>) {
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(BASE, NR_PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
    for page in 0..NR_PAGES {
        space.write(BASE + page * PAGE, &[0xff; 4096]).unwrap();
    }
    std::mem::forget(space);
}

/// Touches as many pages of a new space; each is zero at first.
fn find_pages_zero(vm: &Vm<Hosted>) {
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(BASE, NR_PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
    for page in 0..NR_PAGES {
        let mut bytes = [1; 4096];
        space.write(BASE + page * PAGE, &[0]).unwrap();
        space.read(BASE + page * PAGE, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096], "page {page}");
    }
    check(vm, &[&space]);
}

#[test]
fn a_machine_that_was_used_has_no_zero_frames() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    leave_pages_full(&vm);
    let vm = Vm::new(vm.into_machine(), Tunables::default()).unwrap();
    find_pages_zero(&vm);
    // A machine that no `Vm` has used.
    let config = HostedConfig::default().with_arena_bytes(8 << 20);
    let mut hosted = Hosted::new(config).unwrap();
    hosted.soil(u64::MAX);
    let vm = Vm::new(hosted, Tunables::default()).unwrap();
    find_pages_zero(&vm);
    leave_pages_full(&vm);
    let mut hosted = vm.into_machine();
    hosted.zero();
    find_pages_zero(&Vm::new(hosted, Tunables::default()).unwrap());
}

/// The ids of spaces begin at 1 in each `Vm`; no translation of the one before may
/// answer for them.
#[test]
fn translations_end_with_their_vm() {
    let config = HostedConfig::default().with_arena_bytes(8 << 20);
    let vm = Vm::new(Hosted::new(config).unwrap(), Tunables::default()).unwrap();
    let run = |vm: &Vm<Hosted>, is_first: bool| {
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let running = cpu.enter(&space).unwrap();
        if is_first {
            space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
            running.write_u64(BASE, 7).unwrap();
        } else {
            assert!(running.read_u64(BASE).is_err(), "nothing is mapped here");
        }
        // A departure would drop the translations.
        std::mem::forget(running);
        std::mem::forget(space);
    };
    run(&vm, true);
    run(&Vm::new(vm.into_machine(), Tunables::default()).unwrap(), false);
}

const MARK: u32 = 0xdead_beef;

/// The closure takes the page away, and another CPU gets its frame: the exchange
/// must not be made in it.
#[test]
fn update_u32_looks_the_page_up_again() {
    let vm = Setup::PLAIN.vm(2, 8 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    let running = cpu.enter(&a).unwrap();
    a.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    running.write_u64(BASE, 0).unwrap();
    b.mmap(BASE, 4096 * PAGE, RW, PRIVATE | FIXED).unwrap();
    let full = (0..4096).find(|page| b.handle_fault(BASE + page * PAGE, Access::Write).is_err()).unwrap();
    let mut was_called = false;
    let updated = a.update_u32(BASE + 128, &mut |old| {
        assert!(!was_called, "the page is gone");
        was_called = true;
        a.munmap(BASE, PAGE).unwrap();
        thread::scope(|threads| {
            threads.spawn(|| {
                let _cpu = vm.machine().bind(CpuId(1)).unwrap();
                _ = b.handle_fault(BASE + full * PAGE, Access::Write);
            });
        });
        Some(old + MARK)
    });
    assert!(updated.is_err() && was_called);
    for page in (0..4096).filter(|page| b.page_state(BASE + page * PAGE).is_some()) {
        let mut bytes = [0; 4];
        b.read(BASE + page * PAGE + 128, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4], "page {page} of another space");
    }
    drop(running);
    check(&vm, &[&a, &b]);
}

#[test]
fn update_u32_asks_again_when_the_word_changed() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let a = vm.new_space().unwrap();
    a.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    let mut seen = Vec::new();
    let old = a.update_u32(BASE, &mut |old| {
        if seen.is_empty() {
            a.write(BASE, &7u32.to_ne_bytes()).unwrap();
        }
        seen.push(old);
        Some(old + 1)
    });
    assert_eq!((old, seen), (Ok(7), vec![0, 7]));
    assert_eq!(a.update_u32(BASE, &mut |_| None), Ok(8));
    assert_eq!(a.update_u32(BASE, &mut |old| Some(old)), Ok(8));
}

/// Closures of reports may change the space that is being reported.
#[test]
fn reports_hold_nothing_while_they_call() {
    let vm = Setup::PLAIN.vm(1, 16 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let a = vm.new_space().unwrap();
    let fill = || {
        for i in 0..100 {
            a.mmap(BASE + 2 * i * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
            a.write(BASE + 2 * i * PAGE, &[1]).unwrap();
        }
    };
    fill();
    let (mut nr, mut last) = (0, 0);
    a.maps(&mut |vma| {
        let start = vma.range.start.addr();
        assert!(start >= last, "no page twice");
        last = vma.range.end.addr();
        nr += 1;
        a.munmap(start, 3 * PAGE).unwrap();
    });
    assert!((50..=100).contains(&nr), "{nr}: VMAs of a batch are named though they are gone");
    assert_eq!(a.nr_vmas(), 0);
    fill();
    let mut nr_pages = 0;
    a.smaps(&mut |entry| {
        nr_pages += entry.rss_pages;
        a.munmap(entry.vma.range.start.addr(), 3 * PAGE).unwrap();
    });
    assert_eq!((nr_pages, a.nr_vmas()), (50, 0));
    // Every other page is there: more runs than one batch has.
    // In tables, in an object behind tables, and in one behind a hole.
    let object = vm.new_shared_object(600 * PAGE).unwrap();
    (0..300).for_each(|i| object.write(2 * i * PAGE, &[1]).unwrap());
    for has_tables in [Some(PRIVATE), Some(SHARED), None] {
        if let Some(flags) = has_tables {
            a.mmap(BASE, 600 * PAGE, RW, flags | FIXED).unwrap();
            (0..300).for_each(|i| a.write(BASE + 2 * i * PAGE, &[1]).unwrap());
        } else {
            let part = ObjectPart::new(&object);
            a.mmap_object(BASE, 600 * PAGE, RW, SHARED | FIXED, part).unwrap();
        }
        if has_tables == Some(SHARED) {
            a.madvise(BASE, 600 * PAGE, DONTNEED).unwrap();
        }
        let mut pages = Vec::new();
        a.mincore(BASE, 600 * PAGE, &mut |nr_pages, is_resident| {
            pages.extend((0..nr_pages).map(|_| is_resident));
            // Under a lock this would wait for itself.
            a.munmap(BASE + 700 * PAGE, PAGE).unwrap();
        })
        .unwrap();
        assert!(pages.len() == 600 && pages.iter().enumerate().all(|(i, there)| *there == (i % 2 == 0)));
        a.munmap(BASE, 600 * PAGE).unwrap();
    }
    // One VMA that grows in front of the report: it is finite, and names no page twice.
    a.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    let mut nr = 0;
    a.maps(&mut |vma| {
        nr += vma.range.nr_pages();
        if nr < 40 {
            a.mmap(vma.range.end.addr(), PAGE, RW, PRIVATE | FIXED).unwrap();
        }
    });
    assert_eq!(nr, 40);
}

#[test]
fn knobs_are_changed_with_nothing_held() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let mut nr_calls = 0;
    vm.change_huge_knobs(&mut |knobs| {
        nr_calls += 1;
        if nr_calls == 1 {
            vm.set_huge_knobs(&knobs.with_use_zero_page(!knobs.use_zero_page)).unwrap();
        }
        knobs.khugepaged.max_ptes_none = 3;
        Ok(())
    })
    .unwrap();
    assert_eq!(nr_calls, 2, "they had changed meanwhile");
    let knobs = vm.huge_knobs();
    assert_eq!((knobs.use_zero_page, knobs.khugepaged.max_ptes_none), (!HugeKnobs::DEFAULT.use_zero_page, 3));
}

#[test]
fn a_space_that_a_cpu_runs_is_not_dropped() {
    let vm = Setup::PLAIN.vm(2, 8 << 20);
    let before = vm.vmstat().nr_free_pages;
    let dropped = |run: &dyn Fn(&Space<'_>)| {
        let space = vm.new_space().unwrap();
        space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE, &[1]).unwrap();
        run(&space);
        let nr_free = vm.vmstat().nr_free_pages;
        let text = panics(|| drop(space));
        assert!(text.contains("I11") && text.contains("still runs"), "{text}");
        assert_eq!(vm.vmstat().nr_free_pages, nr_free, "nothing was freed");
    };
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    dropped(&|space| std::mem::forget(cpu.enter(space).unwrap()));
    let other = vm.new_space().unwrap();
    assert_eq!(cpu.enter(&other).err(), Some(BindError::Elsewhere), "where it is for ever");
    drop(cpu);
    // The next thread that is the CPU is where the last one was.
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    assert_eq!(cpu.arrive(&other), Err(BindError::Elsewhere));
    // Another CPU.
    dropped(&|space| {
        thread::scope(|threads| {
            threads.spawn(|| {
                let _cpu = vm.machine().bind(CpuId(1)).unwrap();
                std::mem::forget(space.activate());
            });
        });
    });
    assert!(vm.vmstat().nr_free_pages < before);
    drop(other);
}

#[test]
fn an_activation_is_one_cpus() {
    let vm = Setup::PLAIN.vm(2, 8 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    let active = a.activate();
    let text = panics(|| drop(b.activate()));
    assert!(text.contains("I11") && text.contains("already"), "{text}");
    drop(cpu);
    let cpu = vm.machine().bind(CpuId(1)).unwrap();
    let text = panics(|| drop(active));
    assert!(text.contains("I11: CpuId(0) was activated, and CpuId(1) ends it"), "{text}");
    drop(cpu);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    assert!(panics(|| drop(a)).contains("still runs"));
    drop(b);
}

/// A guard of `activate` and a stay in a space would end each other: a CPU that no
/// shootdown reaches would go on using pages that are gone.
#[test]
fn a_cpu_runs_a_space_in_one_way() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    a.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    let active = a.activate();
    for space in [&a, &b] {
        for text in [panics(|| _ = cpu.arrive(space)), panics(|| drop(cpu.enter(space).unwrap()))] {
            assert!(text.contains("I11") && text.contains("drop that guard first"), "{text}");
        }
    }
    drop(active);
    // The guard is gone, and the refusals left nothing behind.
    let running = cpu.enter(&a).unwrap();
    cpu.arrive(&a).unwrap();
    for space in [&a, &b] {
        assert!(panics(|| drop(space.activate())).contains("already"));
    }
    running.write_u64(BASE, 7).unwrap();
    a.munmap(BASE, PAGE).unwrap();
    b.mmap(BASE, 4096 * PAGE, RW, PRIVATE | FIXED).unwrap();
    while (0..4096).all(|page| b.handle_fault(BASE + page * PAGE, Access::Write).is_ok()) {}
    assert!(running.read_u64(BASE).is_err(), "a translation of a page that is gone");
    drop(running);
    cpu.depart(&a);
    drop(a.activate());
    drop(cpu.enter(&b).unwrap());
}

/// A program goes on although another part of the caller departs from its space.
#[test]
fn departing_leaves_those_who_run_there() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    a.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    let running = cpu.enter(&a).unwrap();
    running.write_u64(BASE, 7).unwrap();
    (0..3).for_each(|_| cpu.depart(&a));
    cpu.arrive(&a).unwrap();
    (0..3).for_each(|_| cpu.depart(&a));
    a.munmap(BASE, PAGE).unwrap();
    b.mmap(BASE, 4096 * PAGE, RW, PRIVATE | FIXED).unwrap();
    while (0..4096).all(|page| b.handle_fault(BASE + page * PAGE, Access::Write).is_ok()) {}
    assert!(running.write_u64(BASE, 9).is_err(), "a translation of a page that is gone");
    drop(running);
    cpu.enter(&b).unwrap();
}

/// Ids of spaces begin at 1 on every machine.
#[test]
fn a_cpu_runs_spaces_of_its_own_machine_only() {
    let (vm, other) = (Setup::PLAIN.vm(1, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let theirs = thread::scope(|threads| {
        let make = || {
            let _cpu = other.machine().bind(CpuId(0)).unwrap();
            other.new_space().unwrap()
        };
        threads.spawn(make).join().unwrap()
    });
    {
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let mine = vm.new_space().unwrap();
        assert_eq!(mine.tag().id, theirs.tag().id);
        assert_eq!(cpu.enter(&theirs).err(), Some(BindError::OtherMachine));
        let _running = cpu.enter(&mine).unwrap();
        assert_eq!(cpu.enter(&theirs).err(), Some(BindError::OtherMachine));
        assert_eq!(cpu.arrive(&theirs), Err(BindError::OtherMachine));
        assert!(panics(|| drop(theirs.activate())).contains("not a CPU of this machine"));
    }
    let _cpu = other.machine().bind(CpuId(0)).unwrap();
    drop(theirs);
}

/// A subscriber that calls back is stopped by a panic, which ends there: the
/// operation that told it is done as a whole.
#[test]
fn a_subscriber_that_calls_back_is_stopped() {
    type Call = fn(&Space<'_>);
    let calls: [(&str, Call); 8] = [
        ("munmap", |s| _ = s.munmap(BASE + 9 * PAGE, PAGE)),
        ("a fault that is refused", |s| _ = s.handle_fault(BASE + 8 * PAGE, Access::Exec)),
        ("subscribe", |s| _ = s.subscribe()),
        ("maps", |s| s.maps(&mut |_| ())),
        ("the end of a space", |s| drop(s.vm().new_space().unwrap())),
        ("activate", |s| drop(s.activate())),
        ("rmap", |s| _ = s.vm().rmap_anon(Pfn(9), &mut [])),
        ("split", |s| s.vm().split_folio(Pfn(9))),
    ];
    for (name, call) in calls {
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
        let tell = move |_, notice: &Notice| {
            if matches!(notice, Notice::Start { .. }) {
                call(space);
            }
            false
        };
        assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
        space.mmap(BASE, 16 * PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE, &[1]).unwrap();
        let subscription = space.subscribe();
        space.munmap(BASE, PAGE).unwrap();
        assert_eq!(vm.machine().notices_lost(), 1, "{name}: called back");
        assert!(space.page_state(BASE).is_none());
        // Nothing is left marked: lookups, operations and the end of the subscription.
        space.write(BASE + PAGE, &[1]).unwrap();
        subscription.lookup(space, BASE + PAGE).unwrap();
        space.unsubscribe(subscription).unwrap();
        space.munmap(BASE, 16 * PAGE).unwrap();
        // The space whose end was stopped is still there, and nobody can name it.
        if name != "the end of a space" {
            check(vm, &[space]);
        }
        drop(cpu);
    }
}

/// What a subscriber may do: look up, and ask what waits for nothing.
#[test]
fn a_subscriber_may_look_pages_up() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    let subscription: &'static _ = Box::leak(Box::new(space.subscribe()));
    let tell = move |_, _: &Notice| {
        assert!(subscription.lookup(space, BASE + PAGE).is_err() == space.page_state(BASE).is_some());
        _ = (space.rss_pages(), vm.vmstat());
        false
    };
    assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
    space.mmap(BASE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1; 2 * PAGE as usize]).unwrap();
    space.munmap(BASE, PAGE).unwrap();
    assert_eq!(vm.machine().notices_lost(), 0);
}

/// In a wait of the core the thread is no CPU.
#[test]
fn a_hook_that_calls_the_core_is_stopped() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 8 << 20)));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[1]).unwrap();
    let call = || {
        assert_eq!(vm.machine().bind(CpuId(0)).err(), Some(BindError::Bound));
        let text = panics(|| _ = space.munmap(BASE, PAGE));
        assert!(text.contains("not a CPU of this machine"), "{text}");
    };
    assert!(vm.machine().on_wait(Box::new(call)).is_ok());
    let _active = space.activate();
    space.munmap(BASE, PAGE).unwrap();
}

#[test]
fn cpus_that_no_set_can_hold() {
    let mut set = CpuSet::first(512);
    for cpu in [512, 513, 600, u16::MAX] {
        assert!(!set.contains(CpuId(cpu)));
        set.remove(CpuId(cpu));
        assert!(panics(|| set.insert(CpuId(cpu))).contains("should be below 512"));
    }
    assert_eq!((set, set.iter().count()), (CpuSet::first(512), 512));
    for nr in [513, 65_536, 65_537, usize::MAX] {
        panics(|| _ = CpuSet::first(nr));
    }
    let vm = Setup::PLAIN.vm(2, 8 << 20);
    for cpu in [2, 512, u16::MAX] {
        assert_eq!(vm.machine().bind(CpuId(cpu)).err(), Some(BindError::Unknown(CpuId(cpu))));
        assert!(vm.machine().stats(CpuId(cpu)).is_none() && vm.machine().tlb_stats(CpuId(cpu)).is_none());
        assert!(!vm.machine().reset_tlb_stats(CpuId(cpu)));
    }
}

/// Frames and sizes that there are not, in every call that takes one.
#[test]
fn frames_and_sizes_that_there_are_not() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[5]).unwrap();
    for pfn in (0..2048).chain([2048, 1 << 20, u32::MAX]).map(Pfn) {
        vm.split_folio(pfn);
        assert!(vm.rmap_anon(pfn, &mut []) <= 1);
        _ = vm.migrate_frame(pfn);
    }
    for order in (0..=u8::MAX).map(Order) {
        assert!(order.nr_pages() > 0);
        _ = (vm.fragmentation(order), vm.huge_stat(order), vm.clear_order(order));
    }
    for addr in [0, 1, 4095, 4096, 4097, usize::MAX, usize::MAX - 7] {
        assert!(vm.describe(addr).is_none());
    }
    let mut byte = [0];
    space.read(BASE, &mut byte).unwrap();
    assert_eq!(byte, [5]);
    check(&vm, &[&space]);
}

/// One thread is one CPU, and a CPU is one thread.
#[test]
fn a_cpu_is_bound_once() {
    let (vm, other) = (Setup::PLAIN.vm(2, 8 << 20), Setup::PLAIN.vm(2, 8 << 20));
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    assert_eq!(vm.machine().bind(CpuId(0)).err(), Some(BindError::Bound));
    assert_eq!(vm.machine().bind(CpuId(1)).err(), Some(BindError::Bound));
    assert_eq!(other.machine().bind(CpuId(1)).err(), Some(BindError::Bound));
    thread::scope(|threads| {
        threads.spawn(|| assert_eq!(vm.machine().bind(CpuId(0)).err(), Some(BindError::Taken(CpuId(0)))));
        threads.spawn(|| assert!(panics(|| _ = vm.new_space()).contains("not a CPU of this machine")));
    });
    assert!(panics(|| _ = other.new_space()).contains("not a CPU of this machine"));
    // Whoever forgets a guard stays that CPU; the machine goes on without it.
    std::mem::forget(cpu);
    drop(vm.new_space().unwrap());
    let vm = Vm::new(vm.into_machine(), Tunables::default()).unwrap();
    drop(vm.new_space().unwrap());
    thread::scope(|threads| {
        threads.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            drop(vm.new_space().unwrap());
        });
    });
}

/// What outlives its space, and what is never given back.
#[test]
fn pins_and_subscriptions_outlive_their_space() {
    let vm = Setup::PLAIN.vm(1, 8 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, &[7]).unwrap();
    let pin = space.pin_page(BASE, softfault::Term::Long).unwrap();
    let subscription = space.subscribe();
    drop(space);
    let mut byte = [0];
    pin.read(0, &mut byte);
    assert_eq!(byte, [7]);
    assert!(subscription.lookup(&other, BASE).is_err());
    let subscription = other.unsubscribe(subscription).expect_err("it is to another space");
    drop((subscription, other));
    assert_eq!(vm.vmstat().nr_free_pages, before - 1);
    drop(pin);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}
