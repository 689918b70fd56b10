//! An emulator's memory: a software TLB over the walks of the core.
//!
//! `cargo run --release -p softfault-host --example software_tlb`
//!
//! The guest has eight registers and instructions of four bytes; its memory is an
//! address space. No line of it is unsafe, and nothing has to be done in a shootdown:
//! an access through a translation that is no longer current is a miss.

use softfault::{Access, CpuId, FaultError, Machine, MapFlags, Miss, PAGE_SIZE, Prot, Tunables, Vm, Walked, Walker};
use softfault_host::{Hosted, HostedConfig};

const NR_SETS: usize = 64;

struct Tlb<'a, 'vm, M: Machine> {
    walker: Walker<'a, 'vm, M>,
    /// Page and translation.
    sets: [Option<(u64, Walked<'vm>)>; NR_SETS],
    nr_accesses: u64,
    nr_misses: u64,
}

impl<'a, 'vm, M: Machine> Tlb<'a, 'vm, M> {
    /// Calls `through` with translations of the page until one allows the access.
    fn access(
        &mut self,
        addr: u64,
        access: Access,
        mut through: impl FnMut(&Walker<'a, 'vm, M>, &Walked<'vm>, usize) -> Result<(), Miss>,
    ) -> Result<(), FaultError> {
        let (page, offset) = (addr / PAGE_SIZE, (addr % PAGE_SIZE) as usize);
        let set = &mut self.sets[page as usize % NR_SETS];
        self.nr_accesses += 1;
        loop {
            if let Some((of, walked)) = set
                && *of == page
                && through(&self.walker, walked, offset).is_ok()
            {
                return Ok(());
            }
            self.nr_misses += 1;
            *set = Some((page, self.walker.translate(addr, access)?));
        }
    }

    fn fetch(&mut self, addr: u64) -> Result<[u8; 4], FaultError> {
        let mut bytes = [0; 4];
        self.access(addr, Access::Exec, |walker, walked, at| walker.fetch_through(walked, at, &mut bytes))?;
        Ok(bytes)
    }

    fn load(&mut self, addr: u64) -> Result<u64, FaultError> {
        let mut bytes = [0; 8];
        self.access(addr, Access::Read, |walker, walked, at| walker.load_through(walked, at, &mut bytes))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store(&mut self, addr: u64, value: u64) -> Result<(), FaultError> {
        let bytes = value.to_le_bytes();
        self.access(addr, Access::Write, |walker, walked, at| walker.store_through(walked, at, &bytes))
    }
}

/// r0 address, r1 value, r2 stride, r3 one, r4 end, r5 sum, r6 what was loaded.
const PROGRAM: [[u8; 4]; 7] = [
    [b's', 0, 1, 0],
    [b'l', 6, 0, 0],
    [b'a', 5, 5, 6],
    [b'a', 0, 0, 2],
    [b'a', 1, 1, 3],
    [b'b', 1, 4, 5], // five back unless r1 = r4
    [b'h', 0, 0, 0],
];

/// Runs the guest from `pc` until it halts; gives its sum.
fn run<M: Machine>(tlb: &mut Tlb<'_, '_, M>, mut pc: u64, mut r: [u64; 8]) -> Result<u64, FaultError> {
    loop {
        let [op, a, b, c] = tlb.fetch(pc)?;
        let [a, b, c] = [a, b, c].map(usize::from);
        pc += 4;
        match op {
            b'a' => r[a] = r[b].wrapping_add(r[c]),
            b'l' => r[a] = tlb.load(r[b])?,
            b's' => tlb.store(r[a], r[b])?,
            b'b' if r[a] != r[b] => pc -= 4 * (c as u64 + 1),
            b'b' => {}
            _ => return Ok(r[5]),
        }
    }
}

/// Runs the guest, forks in between, and takes its memory away.
pub fn main() {
    let vm = Vm::new(Hosted::new(HostedConfig::default()).unwrap(), Tunables::default()).unwrap();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let memory = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let code = space.mmap(0, PAGE_SIZE, Prot::READ | Prot::EXEC, memory).unwrap();
    let data = space.mmap(0, 1 << 20, Prot::READ | Prot::WRITE, memory).unwrap();
    space.write_forced(code, PROGRAM.as_flattened()).unwrap();

    let active = space.activate();
    let mut tlb = Tlb { walker: active.walker(), sets: [None; NR_SETS], nr_accesses: 0, nr_misses: 0 };
    let registers = |first: u64| [data, first, 512, 1, first + 1000, 0, 0, 0];
    assert_eq!(run(&mut tlb, code, registers(0)), Ok(999 * 1000 / 2));
    println!("{} accesses, {} misses", tlb.nr_accesses, tlb.nr_misses);

    // All that the TLB has is stale now, or the child would see what the guest stores.
    let child = space.fork().unwrap();
    assert_eq!(run(&mut tlb, code, registers(1)), Ok(1000 * 1001 / 2));
    let mut byte = [0];
    child.read(data + 512, &mut byte).unwrap();
    assert_eq!(byte, [1], "the child has what was stored before the fork");

    space.mprotect(data, PAGE_SIZE, Prot::READ).unwrap();
    assert_eq!(run(&mut tlb, code, registers(0)), Err(FaultError::NoRights));
    space.munmap(code, PAGE_SIZE).unwrap();
    assert_eq!(run(&mut tlb, code, registers(0)), Err(FaultError::NotMapped));
    println!("the guest was told SIGSEGV twice");
    drop(active);
}
