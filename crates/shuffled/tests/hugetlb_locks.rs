//! H8: faults and operations that need each other's locks, with the historic mutexes of pages of a pool. None waits for ever:
//! shuttle ends a schedule that goes on, and the machine checks the order of locks.

use common::{RW, Shuffled, access, free, run, shuffled, vm};
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Advice, FaultError, HugetlbLocking, MapFlags, ObjectPart, Order, SharedObject, Tunables, Vm,
};

const NR_FRAMES: u64 = 1536;
const HUGE: u64 = 512 * 4096;
const AT: u64 = 0x4000_0000;
const COPY_AT: u64 = AT + 4 * HUGE;
const FILE_AT: u64 = AT + 8 * HUGE;
const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED).union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;
type Actor = Box<dyn FnOnce() + Send>;

/// A store of the program: served, or refused as it would be if the other CPU had been first.
fn store(space: &'static Space, vm: &'static Vm<Machine>, addr: u64) {
    let active = space.activate();
    let stored = access(space, vm, addr, Some(7)).map(drop);
    drop(active);
    assert!(matches!(stored, Ok(()) | Err(FaultError::NotMapped | FaultError::NoHugePage)), "{stored:?}");
}

/// Copies of a private page and of a file's page, by parent and child, against munmap(2), `MADV_DONTNEED`, a hole and a fork.
/// One mutex, or two for three pages, so that faults on different pages need the same.
#[test]
fn h8_copies_against_unmaps() {
    let disciplines = [(HugetlbLocking::One, None), (HugetlbLocking::Table, Some(2)), (HugetlbLocking::Lockfree, None)];
    for (locking, nr_mutexes) in disciplines {
        shuffled(250, move || {
            let tunables = Tunables::default().with_hugetlb_locking(locking).with_hugetlb_mutexes(nr_mutexes);
            let vm = vm(5, NR_FRAMES, tunables);
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
            let object: &'static Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
            let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
            let lax = MapFlags::FIXED | MapFlags::NORESERVE;
            parent.mmap(AT, HUGE, RW, ANON | MapFlags::NORESERVE).unwrap();
            parent.mmap_object(FILE_AT, HUGE, RW, MapFlags::SHARED | lax, ObjectPart::new(object)).unwrap();
            parent.mmap_object(COPY_AT, HUGE, RW, MapFlags::PRIVATE | lax, ObjectPart::new(object)).unwrap();
            parent.write(AT, &[7]).unwrap();
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            let actors: Vec<Actor> = vec![
                Box::new(move || [AT, COPY_AT + 4096].into_iter().for_each(|addr| store(parent, vm, addr))),
                Box::new(move || [FILE_AT + 8192, AT + 8].into_iter().for_each(|addr| store(child, vm, addr))),
                Box::new(move || parent.munmap(AT, HUGE).unwrap()),
                Box::new(move || {
                    child.madvise(AT, HUGE, Advice::DontNeed).unwrap();
                    child.munmap(COPY_AT, HUGE).unwrap();
                }),
                Box::new(move || {
                    object.discard(0..512);
                    store(parent, vm, COPY_AT);
                }),
            ];
            run(5, actors);
            vm.check_in_test(&[parent, child], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
            let stat = vm.hugetlb_lock_stat();
            assert_eq!(stat.acquisitions > 0, locking != HugetlbLocking::Lockfree);
            for space in [parent, child] {
                space.munmap(AT, 16 * HUGE).unwrap();
            }
            object.discard(0..512);
            assert_eq!(free(vm), (2, 2, 0));
        });
    }
}
