//! A minimal test: map, touch, fork, copy, unmap, exit; every frame is free again.

mod common;

use common::{PRIVATE, RW, SHARED, check};
use softfault::addr::Access;
use softfault::machine::CpuId;
use softfault::{Advice, Event, FaultLocking, MremapFlags, Prot, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};

fn vm(nr_cpus: usize, fault_locking: FaultLocking) -> Vm<Hosted> {
    let hosted = Hosted::new(HostedConfig::default().with_nr_cpus(nr_cpus).with_arena_bytes(64 << 20)).unwrap();
    let tunables = Tunables::default().with_fault_locking(fault_locking);
    Vm::new(hosted, tunables).unwrap()
}

#[test]
fn a_page_lives_and_dies() {
    for fault_locking in FaultLocking::ALL {
        let vm = vm(1, fault_locking);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let before = vm.vmstat().nr_free_pages;
        {
            let space = vm.new_space().unwrap();
            let active = space.activate();
            check(&vm, &[&space]);
            let at = space.mmap(0, 1 << 20, RW, PRIVATE).unwrap();
            check(&vm, &[&space]);
            for page in 0..256 {
                space.write(at + page * 4096, &[page as u8; 8]).unwrap();
            }
            check(&vm, &[&space]);
            assert_eq!(space.rss_pages().anon, 256, "{fault_locking:?}");
            let child = space.fork().unwrap();
            check(&vm, &[&space, &child]);
            child.write(at, b"child").unwrap();
            space.write(at + 4096, b"parent").unwrap();
            check(&vm, &[&space, &child]);
            let mut b = [0; 6];
            space.read(at, &mut b).unwrap();
            assert_eq!(b, [0; 6]);
            child.read(at + 4096, &mut b).unwrap();
            assert_eq!(b, [1; 6]);
            assert_eq!(vm.event(Event::CowBreak), 2);
            drop(child);
            check(&vm, &[&space]);
            space.mprotect(at, 8192, Prot::READ).unwrap();
            check(&vm, &[&space]);
            assert!(space.handle_fault(at, Access::Write).is_err());
            space.munmap(at + 4096, 4096).unwrap();
            check(&vm, &[&space]);
            let moved = space.mremap(at + 8192, 1 << 16, 1 << 17, MremapFlags::MAYMOVE, 0).unwrap();
            check(&vm, &[&space]);
            space.read(moved, &mut b).unwrap();
            assert_eq!(b, [2; 6]);
            space.madvise(moved, 4096, Advice::DontNeed).unwrap();
            space.read(moved, &mut b).unwrap();
            assert_eq!(b, [0; 6]);
            check(&vm, &[&space]);
            let shared = space.mmap(0, 1 << 16, RW, SHARED).unwrap();
            space.write(shared, b"before").unwrap();
            let child = space.fork().unwrap();
            child.write(shared, b"shared").unwrap();
            space.read(shared, &mut b).unwrap();
            assert_eq!(&b, b"shared");
            check(&vm, &[&space, &child]);
            space.munmap(at, 1 << 20).unwrap();
            check(&vm, &[&space, &child]);
            drop(active);
        }
        check(&vm, &[]);
        assert_eq!(vm.vmstat().nr_free_pages, before, "{fault_locking:?}");
    }
}
