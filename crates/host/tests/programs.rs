//! Programs on the hosted machine with the real core: what `Running` promises.

use softfault::{Access, CpuId, FaultError, MapFlags, Prot, Tunables, Vm};
use softfault_host::{BindError, Hosted, HostedConfig, Mode, PageFault};
use std::thread;

const MAP: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);
const AT: u64 = 0x1000_0000;
const BOTH_MODES: [Mode; 2] = [Mode::Interrupt, Mode::Broadcast];

fn vm(nr_cpus: usize, mode: Mode) -> Vm<Hosted> {
    let config =
        HostedConfig::default().with_nr_cpus(nr_cpus).with_mode(mode).with_strict_bbm(true).with_tlb_entries(64);
    let hosted = Hosted::new(config).unwrap();
    Vm::new(hosted, Tunables::default()).unwrap()
}

#[test]
fn loads_and_stores_fault_pages_in() {
    let vm = vm(1, Mode::Interrupt);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(AT, 4 * 4096, Prot::READ | Prot::WRITE, MAP | MapFlags::FIXED).unwrap();
    let program = cpu.enter(&space).unwrap();
    assert_eq!(program.try_load(AT, &mut [0; 4]), Err(PageFault { addr: AT, access: Access::Read }));
    let text: Vec<u8> = (0..9000).map(|i| i as u8).collect();
    program.store(AT + 1001, &text).unwrap();
    let mut back = vec![0; 9000];
    program.load(AT + 1001, &mut back).unwrap();
    assert_eq!(back, text);
    program.write_u64(AT + 4092, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(program.read_u64(AT + 4092), Ok(0x0102_0304_0506_0708), "across a page border");
    assert_eq!(program.add_u64(AT + 8, 5), Some(Ok(0)));
    assert_eq!(program.add_u64(AT + 8, 5), Some(Ok(5)));
    assert!(program.add_u64(AT + 4, 1).is_none(), "not aligned");
}

#[test]
fn what_is_refused_says_where_and_why() {
    let vm = vm(1, Mode::Interrupt);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(AT, 4096, Prot::READ | Prot::WRITE, MAP | MapFlags::FIXED).unwrap();
    let program = cpu.enter(&space).unwrap();
    let trap = program.store(AT + 4000, &[1; 200]).unwrap_err();
    assert_eq!((trap.addr, trap.access, trap.cause), (AT + 4096, Access::Write, FaultError::NotMapped));
    let mut head = [0; 96];
    program.load(AT + 4000, &mut head).unwrap();
    assert_eq!(head, [1; 96], "what lies before the fault was stored");
    assert_eq!(program.fetch(AT).unwrap_err().cause, FaultError::NoRights);
    space.mprotect(AT, 4096, Prot::READ | Prot::EXEC).unwrap();
    assert_eq!(program.fetch(AT + 4000), Ok(1));
    assert_eq!(program.write_u64(AT, 1).unwrap_err().cause, FaultError::NoRights);
    assert!(program.read_u64(u64::MAX - 3).is_err(), "a range that wraps");
}

#[test]
fn a_cpu_is_in_one_space_at_a_time_and_forgets_it_when_it_leaves() {
    let vm = vm(1, Mode::Interrupt);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (a, b) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    for (space, value) in [(&a, 1), (&b, 2)] {
        space.mmap(AT, 4096, Prot::READ | Prot::WRITE, MAP | MapFlags::FIXED).unwrap();
        let program = cpu.enter(space).unwrap();
        program.write_u64(AT, value).unwrap();
        let again = cpu.enter(space).unwrap();
        drop(program);
        assert!(again.try_load(AT, &mut [0; 8]).is_ok(), "still there");
        let other = if value == 1 { &b } else { &a };
        assert_eq!(cpu.enter(other).err(), Some(BindError::Elsewhere));
    }
    // The CPU has lost its translation of the page: a walk is needed.
    let walks = || vm.machine().stats(CpuId(0)).unwrap().walks;
    let before = walks();
    assert_eq!(cpu.enter(&a).unwrap().read_u64(AT), Ok(1));
    assert_eq!(walks(), before + 1);
}

#[test]
fn a_space_of_another_machine_is_refused() {
    let (one, other) = (vm(1, Mode::Interrupt), vm(1, Mode::Interrupt));
    let cpu = one.machine().bind(CpuId(0)).unwrap();
    let space = {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _cpu = other.machine().bind(CpuId(0)).unwrap();
                    std::mem::ManuallyDrop::new(other.new_space().unwrap())
                })
                .join()
                .unwrap()
        })
    };
    assert_eq!(cpu.enter(&space).err(), Some(BindError::OtherMachine));
}

/// Every CPU adds to the same words while one forks: a store that goes to a frame
/// after it was copied is an addition that is lost.
#[test]
fn no_addition_is_lost_while_a_sibling_forks() {
    const NR_ADDERS: u16 = 3;
    const NR_TURNS: u64 = 4000;
    for mode in BOTH_MODES {
        let vm = vm(4, mode);
        let space = {
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            vm.new_space().unwrap()
        };
        let word = |turn: u64| AT + turn % 5 * 4096 + 8;
        thread::scope(|scope| {
            let adders: Vec<_> = (1..=NR_ADDERS)
                .map(|id| {
                    let (vm, space) = (&vm, &space);
                    scope.spawn(move || {
                        let cpu = vm.machine().bind(CpuId(id)).unwrap();
                        while space.vma(AT).is_none() {
                            thread::yield_now();
                        }
                        let program = cpu.enter(space).unwrap();
                        (0..NR_TURNS).for_each(|turn| _ = program.add_u64(word(turn), 1).unwrap().unwrap());
                    })
                })
                .collect();
            let cpu = vm.machine().bind(CpuId(0)).unwrap();
            space.mmap(AT, 5 * 4096, Prot::READ | Prot::WRITE, MAP | MapFlags::FIXED).unwrap();
            while !adders.iter().all(|adder| adder.is_finished()) {
                let child = space.fork().unwrap();
                let program = cpu.enter(&child).unwrap();
                let first: Vec<u64> = (0..5).map(|turn| program.read_u64(word(turn)).unwrap()).collect();
                let again: Vec<u64> = (0..5).map(|turn| program.read_u64(word(turn)).unwrap()).collect();
                assert_eq!(first, again, "{mode:?}: the parent's stores show in the child");
            }
        });
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let program = cpu.enter(&space).unwrap();
        let sum: u64 = (0..5).map(|turn| program.read_u64(word(turn)).unwrap()).sum();
        assert_eq!(sum, u64::from(NR_ADDERS) * NR_TURNS, "{mode:?}");
        drop(program);
        assert_eq!(vm.machine().violations(), (0, None));
        drop(space);
    }
}
