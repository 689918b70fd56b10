//! Programs without `unsafe` that once reached undefined behaviour.
#![forbid(unsafe_code)]

mod common;

use common::*;
use softfault::{CpuId, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};

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
