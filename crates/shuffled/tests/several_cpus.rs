//! Long random schedules of whole programs on several CPUs, with store buffers and
//! TLBs that go stale: what loom's small models cannot reach.
//!
//! Each CPU has a part of one address space to itself and knows what it wrote
//! there, while tables, counts, frames and the tree are everybody's. After each
//! schedule every invariant is checked.

mod common;

use common::{FIXED_PRIVATE, Shuffled, access, run, shuffled, vm};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Discipline, FaultError, Tunables, Vm};
use softfault_shuffled::{Advice, Prot};
use std::sync::Arc;

const NR_FRAMES: u64 = 1024;
const NR_CPUS: usize = 3;
const PAGES: u64 = 6;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;

/// What one CPU does in its part of the space: each value that it reads has to be
/// the one it wrote last.
fn play(vm: &'static Vm<Machine>, space: &Space, cpu: u16, nr_ops: usize) {
    let active = space.activate();
    let mut rng = shuttle::rand::thread_rng();
    let base = 0x4000_0000 + u64::from(cpu) * PAGES * 4096;
    let mut wrote = [0u64; PAGES as usize];
    let mut child: Option<(Space, [u64; PAGES as usize])> = None;
    space.mmap(base, PAGES * 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE).unwrap();
    for step in 0..nr_ops as u64 {
        let page = rng.gen_range(0..PAGES);
        let at = base + page * 4096;
        match rng.gen_range(0..12) {
            0..=3 => {
                let value = step * 100 + page + 1;
                assert_eq!(access(space, vm, at, Some(value)), Ok(value));
                wrote[page as usize] = value;
            }
            4..=6 => assert_eq!(access(space, vm, at, None), Ok(wrote[page as usize]), "cpu {cpu} page {page}"),
            7 => {
                space.madvise(at, 4096, Advice::DontNeed).unwrap();
                wrote[page as usize] = 0;
            }
            8 => {
                space.munmap(at, 4096).unwrap();
                assert_eq!(access(space, vm, at, None), Err(FaultError::NotMapped), "mapped after munmap");
                space.mmap(at, 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE).unwrap();
                wrote[page as usize] = 0;
            }
            9 => {
                space.mprotect(at, 4096, Prot::READ).unwrap();
                assert_eq!(access(space, vm, at, Some(7)), Err(FaultError::NoRights), "written after mprotect");
                assert_eq!(access(space, vm, at, None), Ok(wrote[page as usize]));
                space.mprotect(at, 4096, Prot::READ | Prot::WRITE).unwrap();
            }
            10 => child = Some((space.fork().unwrap(), wrote)),
            _ => {
                if let Some((child, then)) = &child {
                    let mut bytes = [0; 8];
                    child.read(at, &mut bytes).unwrap();
                    assert_eq!(u64::from_ne_bytes(bytes), then[page as usize], "F5: the child saw a later write");
                }
            }
        }
    }
    drop(child);
    drop(active);
}

fn schedule(discipline: Discipline) {
    let tunables = Tunables::default().with_discipline(discipline).with_zero_batch(4).with_deferred_nodes_max(8);
    let vm = vm(NR_CPUS, NR_FRAMES, tunables);
    let before = vm.vmstat().nr_free_pages;
    let space: Arc<Space> = Arc::new(vm.new_space().unwrap());
    let actor = |cpu: u16| -> Box<dyn FnOnce() + Send> {
        let space = space.clone();
        Box::new(move || play(vm, &space, cpu, 12))
    };
    run(NR_CPUS, (0..NR_CPUS as u16).map(actor).collect());
    vm.check(&[&space], &mut vec![0; NR_FRAMES as usize]).unwrap();
    drop(space);
    vm.check(&[], &mut vec![0; NR_FRAMES as usize]).unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

fn play_all(discipline: Discipline, schedules: usize) {
    shuffled(schedules, move || schedule(discipline));
}

#[test]
fn lockfree() {
    play_all(Discipline::Lockfree, 2000);
}

#[test]
fn fastpath2004() {
    play_all(Discipline::Fastpath2004, 400);
}

#[test]
fn split() {
    play_all(Discipline::Split, 400);
}

#[test]
fn global() {
    play_all(Discipline::Global, 400);
}
