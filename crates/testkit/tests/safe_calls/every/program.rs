//! Calls of a CPU that runs programs.

use super::*;
use softfault_host::Trap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn programs() {
    with_others(|w| {
        let others = &w.others.space;
        call("CpuGuard::id", || assert_eq!(w.cpu.id(), CpuId(0)));
        call("CpuGuard::machine", || assert!(std::ptr::eq(w.cpu.machine(), w.vm.machine())));
        call("CpuGuard::arrive", || assert_eq!(w.cpu.arrive(others), Err(BindError::OtherMachine)));
        call("CpuGuard::depart", || w.cpu.depart(others));
        assert_eq!(w.cpu.enter(others).err(), Some(BindError::OtherMachine));
        w.cpu.depart(w.space);
        let program = call("CpuGuard::enter", || w.cpu.enter(w.space).unwrap());
        call("Running::space", || assert!(std::ptr::eq(program.space(), w.space)));
        let mut bytes = [7; 2 * PAGE as usize];
        each("Running::load", |addr| _ = program.load(addr, &mut bytes));
        each("Running::store", |addr| _ = program.store(addr, &bytes));
        each("Running::fetch", |addr| _ = program.fetch(addr));
        each("Running::try_load", |addr| _ = program.try_load(addr, &mut bytes));
        each("Running::try_store", |addr| _ = program.try_store(addr, &bytes));
        each("Running::try_fetch", |addr| _ = program.try_fetch(addr));
        each("Running::read_u64", |addr| _ = program.read_u64(addr));
        each("Running::write_u64", |addr| _ = program.write_u64(addr, addr));
        each("Running::add_u64", |addr| _ = program.add_u64(addr, u64::MAX));
        each("Running::read_page", |addr| _ = program.read_page(addr, |words| words[511].load(Relaxed)));
    });
}

/// Code that runs within an access could free the page that it reads: a shootdown does not wait for its own CPU.
#[test]
fn an_access_under_way_calls_nothing() {
    with_others(|w| {
        let program = w.cpu.enter(w.space).unwrap();
        let within = |f: &dyn Fn(&[AtomicU64; 512])| {
            panics(|| _ = program.read_page(BASE, |words| f(words)).map_err(|trap: Trap| trap.cause))
        };
        let text = within(&|_| w.space.munmap(BASE, PAGE).unwrap());
        assert!(text.contains("not a CPU of this machine"), "{text}");
        let text = within(&|_| _ = program.read_u64(BASE + PAGE));
        assert!(text.contains("do not nest"), "{text}");
        // Nothing of it stays.
        assert_eq!(program.read_page(BASE, |words| words[0].load(Relaxed)), Ok(0x0707_0707_0707_0707));
        w.space.munmap(BASE, PAGE).unwrap();
        assert!(program.read_u64(BASE).is_err());
    });
}
