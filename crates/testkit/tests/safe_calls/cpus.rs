//! A CPU runs one space of its own machine in one way, and is one thread.

use super::*;

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
    // A thread that forgets a guard stays that CPU; the machine goes on without it.
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
