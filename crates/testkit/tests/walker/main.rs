//! Walks for embedders that translate in software: what may be kept, and for how long.
#![forbid(unsafe_code)]

mod accesses;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod races;

use common::huge::{AT, HUGE};
use common::*;
use softfault::policy::huge::Enabled;
use softfault::{Access, Active, CpuId, Event, FaultError, HugeKnobs, Miss, Notice, Order, Rights, Vm, Walked, Walker};
use softfault_testkit::formats::Tested;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

type Walk<'a, 'vm> = Walker<'a, 'vm, Hosted>;
const RX: Rights = Rights::READ.union(Rights::EXEC);
const RIGHTS_RW: Rights = Rights::READ.union(Rights::WRITE);

/// CPU 0 of a machine, active in a space of 16 pages at `BASE`.
fn with_walker(test: impl Fn(&Space<'_>, &Walk<'_, '_>)) {
    let vm = Setup::PLAIN.vm(1, 16 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        space.mmap(BASE, 16 * PAGE, RW, PRIVATE | FIXED).unwrap();
        let active = space.activate();
        test(&space, &active.walker());
        check(&vm, &[&space]);
        drop(active);
    }
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(&vm), Ok(()));
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

fn loaded(walker: &Walk<'_, '_>, walked: &Walked<'_>) -> Result<u8, Miss> {
    let mut byte = [0];
    walker.load_through(walked, 0, &mut byte).map(|()| byte[0])
}
