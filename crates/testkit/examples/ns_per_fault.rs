//! Software cost of a fault, in nanoseconds, for each fault-locking mode: the shortest
//! loop that a change of the fault path can be judged by.
//!
//! `cargo run --release -p softfault-testkit --example ns_per_fault [CPUS [PAGES]]`

use softfault::machine::CpuId;
use softfault::{Access, FaultLocking, MapFlags, Prot, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};
use std::sync::Barrier;
use std::time::Instant;

/// Pages per CPU and round.
fn pages() -> u64 {
    std::env::args().nth(2).map_or(32_768, |a| a.parse().expect("PAGES: a number"))
}

fn main() {
    let nr_cpus: usize = std::env::args().nth(1).map_or(1, |a| a.parse().expect("CPUS: a number"));
    for zeroed in [true, false] {
        for fault_locking in FaultLocking::ALL {
            let mut best: Vec<f64> = (0..15).map(|_| run(nr_cpus, fault_locking, zeroed)).collect();
            best.sort_by(f64::total_cmp);
            let fill = if zeroed { "zeroed" } else { "fresh" };
            println!("{:>14} {fill:>7} {:8.1} ns (min {:.1})", fault_locking.name(), best[best.len() / 2], best[0]);
        }
    }
}

fn run(nr_cpus: usize, fault_locking: FaultLocking, zeroed: bool) -> f64 {
    let arena_bytes = 4096 * pages() * nr_cpus as u64 * 2;
    let config = HostedConfig::default().with_nr_cpus(nr_cpus).with_arena_bytes(arena_bytes).with_huge(true);
    let mut hosted = Hosted::new(config).unwrap();
    // Touches every frame, so that the host has given memory for it.
    if zeroed {
        hosted.zero();
    } else {
        hosted.soil(1);
    }
    let tunables = Tunables::default().with_fault_locking(fault_locking);
    let vm = Vm::new(hosted, tunables).unwrap();
    let (space, at) = {
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let at = space
            .mmap(0, pages() * 4096 * nr_cpus as u64, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS)
            .unwrap();
        (space, at)
    };
    let barrier = Barrier::new(nr_cpus);
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..nr_cpus)
            .map(|cpu| {
                let (vm, space, barrier) = (&vm, &space, &barrier);
                s.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(cpu as u16)).unwrap();
                    let active = space.activate();
                    barrier.wait();
                    let start = Instant::now();
                    let base = at + cpu as u64 * pages() * 4096;
                    for page in 0..pages() {
                        space.handle_fault(base + page * 4096, Access::Write).unwrap();
                    }
                    let end = Instant::now();
                    drop(active);
                    (start, end)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let start = spans.iter().map(|s| s.0).min().unwrap();
    let end = spans.iter().map(|s| s.1).max().unwrap();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    drop(space);
    (end - start).as_nanos() as f64 / (pages() * nr_cpus as u64) as f64
}
