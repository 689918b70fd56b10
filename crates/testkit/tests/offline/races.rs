//! Sections that go while programs run.

use super::*;

/// Programs store and load, fork and unmap; a section is emptied and comes again; two CPUs want the same one to go.
#[test]
fn sections_go_under_programs() {
    let vm = vm(4);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_memory(section(1)).unwrap();
    vm.add_memory(section(2)).unwrap();
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 4), Ok(4));
    let is_over = AtomicBool::new(false);
    let (vm, is_over) = (&vm, &is_over);
    thread::scope(|scope| {
        for id in 1..3 {
            scope.spawn(move || {
                let cpu = vm.machine().bind(CpuId(id)).unwrap();
                let mut round = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let space: Space<'_> = vm.new_space().unwrap();
                    space.mmap(BASE, 1500 * PAGE, RW, PRIVATE | FIXED).unwrap();
                    space.mmap(POOL, HUGE, RW, HUGETLB).unwrap();
                    let running = cpu.enter(&space).unwrap();
                    for at in (0..1500).map(|page| BASE + page * PAGE).chain((0..512).map(|page| POOL + page * PAGE)) {
                        running.store(at, &(at ^ round).to_le_bytes()).unwrap();
                    }
                    let child = space.fork().unwrap();
                    for at in (0..512).map(|page| POOL + page * PAGE).chain((0..1500).map(|page| BASE + page * PAGE)) {
                        let mut bytes = [0; 8];
                        running.load(at, &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), at ^ round);
                        running.store(at, &(at ^ !round).to_le_bytes()).unwrap();
                    }
                    drop(running);
                    for at in [BASE + 7 * PAGE, POOL + 9 * PAGE] {
                        let mut bytes = [0; 8];
                        child.read(at, &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), at ^ round);
                    }
                    round += 1;
                }
            });
        }
        let offline = |nr: u64| match vm.offline_memory(section(nr)) {
            Ok(()) => true,
            Err(OfflineRefusal::InTheWay(..)) => false,
            Err(OfflineRefusal::Memory(RemoveMemoryRefusal::NotThere | RemoveMemoryRefusal::LastResort)) => false,
            Err(other) => panic!("{other:?}"),
        };
        scope.spawn(move || {
            let _cpu = vm.machine().bind(CpuId(3)).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                offline(2);
            }
        });
        let _stop = StopAtEnd(is_over);
        let (mut nr_gone, patience) = (0, Patience::new("nothing goes"));
        for round in 0.. {
            nr_gone += u64::from(offline(1 + round % 2));
            for nr in [1, 2] {
                match vm.add_memory(section(nr)) {
                    Ok(()) | Err(AddMemoryRefusal::AlreadyThere | AddMemoryRefusal::NoMetadata) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            if (nr_gone >= 4 && round >= 12) || (nr_gone > 0 && round >= 2000) {
                break;
            }
            patience.check();
        }
    });
    check(vm, &[]);
    assert_eq!((counts(vm).nr, counts(vm).free, counts(vm).reserved), (4, 4, 0));
    assert_eq!(vm.machine().violations(), (0, None));
}
