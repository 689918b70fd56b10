//! Programs without `unsafe` that once reached undefined behaviour.
#![forbid(unsafe_code)]

mod common;

use common::*;
use softfault::{Access, CpuId, HugeKnobs, Tunables, Vm};
use softfault_host::{BindError, Hosted, HostedConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    let mut hosted = vm.into_machine();
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
    let config = HostedConfig { arena_bytes: 8 << 20, ..HostedConfig::default() };
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
        drop(running);
        std::mem::forget(space);
    };
    run(&vm, true);
    run(&Vm::new(vm.into_machine(), Tunables::default()).unwrap(), false);
}

/// What `call` panics with.
fn panics(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("should panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_string())
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
            vm.set_huge_knobs(&HugeKnobs { use_zero_page: !knobs.use_zero_page, ..*knobs }).unwrap();
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
