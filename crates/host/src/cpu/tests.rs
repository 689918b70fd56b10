//! Binding threads to CPUs.

use crate::config::{HostedConfig, HostedError};
use crate::cpu::BindError;
use crate::hosted::Hosted;
use softfault::machine::{CpuId, Machine};
use std::thread;

fn machine(nr_cpus: usize) -> Hosted {
    Hosted::new(HostedConfig { nr_cpus, arena_bytes: 1 << 20, ..HostedConfig::default() }).unwrap()
}

#[test]
fn a_cpu_is_one_thread_and_a_thread_one_cpu() {
    let (a, b) = (machine(2), machine(2));
    let cpu = a.bind(CpuId(1)).unwrap();
    assert_eq!(a.this_cpu(), CpuId(1));
    assert_eq!(a.bind(CpuId(0)).err(), Some(BindError::Bound));
    assert_eq!(b.bind(CpuId(0)).err(), Some(BindError::Bound));
    assert_eq!(a.bind(CpuId(2)).err(), Some(BindError::Unknown(CpuId(2))));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(a.bind(CpuId(1)).err(), Some(BindError::Taken(CpuId(1))));
            let _other = a.bind(CpuId(0)).unwrap();
            assert_eq!(a.this_cpu(), CpuId(0));
        });
    });
    drop(cpu);
    let _cpu = b.bind(CpuId(1)).unwrap();
    assert_eq!(b.this_cpu(), CpuId(1));
}

#[test]
#[should_panic(expected = "not a CPU of this machine")]
fn a_thread_that_is_no_cpu_is_refused() {
    machine(1).this_cpu();
}

#[test]
#[should_panic(expected = "not a CPU of this machine")]
fn a_cpu_of_another_machine_is_refused() {
    let (a, b) = (machine(1), machine(1));
    let _cpu = a.bind(CpuId(0)).unwrap();
    b.this_cpu();
}

#[test]
fn bad_configurations_are_named() {
    let make = |config| Hosted::new(config).err();
    let good = HostedConfig::default();
    assert_eq!(make(HostedConfig { nr_cpus: 0, ..good }), Some(HostedError::Cpus(0)));
    assert_eq!(make(HostedConfig { nr_cpus: 513, ..good }), Some(HostedError::Cpus(513)));
    assert_eq!(make(HostedConfig { arena_bytes: 0, ..good }), Some(HostedError::Arena(0)));
    assert_eq!(make(HostedConfig { arena_bytes: 4097, ..good }), Some(HostedError::Arena(4097)));
    assert_eq!(make(HostedConfig { spare_bytes: 5, ..good }), Some(HostedError::Spare(5)));
    assert_eq!(make(HostedConfig { spare_bytes: 16 << 40, ..good }), Some(HostedError::Spare(16 << 40)));
    assert_eq!(make(HostedConfig { tlb_entries: 3, ..good }), Some(HostedError::Tlb(3)));
    assert!(HostedError::Cpus(513).to_string().contains("nr_cpus is 513, should be 1 to 512"));
}

#[test]
fn random_numbers_repeat_with_the_seed() {
    let draw = |seed, cpu| {
        let machine = Hosted::new(HostedConfig { nr_cpus: 2, seed, ..HostedConfig::default() }).unwrap();
        let _cpu = machine.bind(CpuId(cpu)).unwrap();
        [machine.random(), machine.random()]
    };
    assert_eq!(draw(1, 0), draw(1, 0));
    assert_ne!(draw(1, 0), draw(1, 1));
    assert_ne!(draw(1, 0), draw(2, 0));
}
