//! The content of the frames of a used machine, and closures that change the memory they are called about.

use super::*;

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
