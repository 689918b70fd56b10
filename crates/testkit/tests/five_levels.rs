//! The same core over five-level tables: 64 PiB of addresses, and mappings above
//! what four levels reach.

use softfault::machine::CpuId;
use softfault::table::format::X86_64La57;
use softfault::{Access, FaultError, MapFlags, Prot, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};

const FIXED_PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);
/// Past 128 TiB, in another half of the top table than anything low.
const HIGH: u64 = 0x0080_0000_0000_0000;
const STEP: u64 = 1 << 48;

fn vm() -> Vm<Hosted<X86_64La57>> {
    let hosted = Hosted::<X86_64La57>::with_format(HostedConfig::default().with_arena_bytes(16 << 20));
    let hosted = hosted.unwrap();
    Vm::new(hosted, Tunables::default()).unwrap()
}

#[test]
fn pages_live_and_die_above_what_four_levels_reach() {
    let vm = vm();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let space = vm.new_space().unwrap();
    let places = [0x10_0000, 1 << 46, STEP, 5 * STEP, HIGH];
    for (i, at) in places.iter().enumerate() {
        assert_eq!(space.mmap(*at, 3 * 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE), Ok(*at));
        space.write(at + 4096, &[i as u8 + 1; 8]).unwrap();
    }
    // Four below the root for each place; the second has its highest from the first.
    assert_eq!(space.rss_pages().tables, 4 + 3 + 4 + 4 + 4);
    let child = space.fork().unwrap();
    softfault_testkit::at_rest::check(&vm, &[&space, &child], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    for (i, at) in places.iter().enumerate() {
        let mut bytes = [0; 8];
        child.read(at + 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [i as u8 + 1; 8]);
        assert_eq!(space.handle_fault(at + 3 * 4096, Access::Read), Err(FaultError::NotMapped));
        space.munmap(*at, 3 * 4096).unwrap();
    }
    assert_eq!(space.rss_pages().tables, 0, "I19: every table served one of the places");
    assert!(space.mmap(1 << 56, 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE).is_err(), "past the user part");
    let top = (1 << 56) - 2 * 4096;
    assert_eq!(space.mmap(top, 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE), Ok(top));
    space.write(top, b"top").unwrap();
    drop((space, child));
    softfault_testkit::at_rest::check(&vm, &[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, before);
}
