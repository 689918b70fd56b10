//! Faults and nothing else, for instruction counters: `valgrind --tool=callgrind`.
//!
//! `cargo run --release -p softfault-testkit --example fault_loop [PAGES]`

use softfault::machine::CpuId;
use softfault::{Access, MapFlags, Prot, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};

fn main() {
    let pages: u64 = std::env::args().nth(1).map_or(8192, |a| a.parse().expect("PAGES: a number"));
    let hosted = Hosted::new(HostedConfig::default().with_arena_bytes(256 << 20)).unwrap();
    let vm = Vm::new(hosted, Tunables::default()).unwrap();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let at = space.mmap(0, pages * 4096, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS).unwrap();
    let active = space.activate();
    touch(&space, at, pages);
    drop(active);
}

#[inline(never)]
fn touch(space: &softfault::AddressSpace<'_, Hosted>, at: u64, pages: u64) {
    for page in 0..pages {
        space.handle_fault(at + page * 4096, Access::Write).unwrap();
    }
}
