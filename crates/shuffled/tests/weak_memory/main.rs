//! The real code on CPUs whose stores wait in buffers (x86's total store order),
//! with TLBs that go stale: pairs of operations, each under many random schedules.
//!
//! The plain stores that ship are run as they are: entering and leaving a section,
//! taking frames from a frame cache, hints, generations. A program's stores wait in the
//! same buffers. Each barrier of these protocols has a mutant that a test here kills.

mod accesses;
mod forks;
mod frames;
mod moves;

use common::{FIXED_PRIVATE, NR_SLOTS, READ, RW, Shuffled, access, be, inside, run, shuffled, vm, word_at};
use softfault_shuffled::sync::quietly;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{Access, AddressSpace, FaultError, ObjectPart, SharedObject, Term, Tunables, Vm};
use softfault_shuffled::{Advice, MapFlags, MremapFlags, Prot};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Actor = Box<dyn FnOnce() + Send>;

const BASE: u64 = 0x4000_0000;
/// In a leaf table of its own.
const ELSEWHERE: u64 = BASE + (2 << 20);
const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
/// mremap(2): may move, to a fixed place.
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
/// The same, and the source stays mapped (MREMAP_DONTUNMAP).
const KEEP: MremapFlags = MOVE.union(MremapFlags::DONTUNMAP);
const NR_CPUS: usize = 3;
const NR_FRAMES: u64 = 128;
const SCHEDULES: usize = 2500;
/// A visit has few moments at which its set of CPUs is out of date.
const VISITS: usize = 10_000;
/// The last value that is written.
const LAST: u64 = 8;

/// The state that threads share; leaked, since threads ask for `'static`.
#[derive(Clone, Copy)]
struct World {
    vm: &'static Vm<Machine>,
    space: &'static Space,
}

fn at(page: u64) -> u64 {
    BASE + page * 4096
}

impl World {
    /// Two mappings of four pages; one page of each is there, and so are all tables. Frames
    /// are claimed one at a time, so that a frame that was freed is soon used again.
    fn new() -> World {
        World::tuned(Tunables::default().with_zero_batch(1))
    }

    fn tuned(tunables: Tunables) -> World {
        be(0);
        let vm = vm(NR_CPUS, NR_FRAMES, tunables);
        let space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(at(0), 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.mmap(ELSEWHERE, 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.handle_fault(at(1), Access::Write).unwrap();
        space.handle_fault(ELSEWHERE + 3 * 4096, Access::Write).unwrap();
        World { vm, space }
    }

    fn store(&self, addr: u64, value: u64) -> Result<u64, FaultError> {
        access(self.space, self.vm, addr, Some(value))
    }

    fn load(&self, addr: u64) -> Result<u64, FaultError> {
        access(self.space, self.vm, addr, None)
    }

    fn check(&self, others: &[&Space]) {
        let mut spaces = vec![self.space];
        spaces.extend(others);
        self.vm.check_in_test(&spaces, &mut vec![0; NR_FRAMES as usize + NR_SLOTS]).unwrap();
    }

    /// Fresh pages are zero, and nobody else writes to their frames.
    fn use_fresh_pages(&self) {
        for page in 0..3 {
            let addr = ELSEWHERE + page * 4096;
            assert_eq!(self.load(addr), Ok(0), "a fresh page shows what another wrote");
            self.store(addr, 1000 + page).unwrap();
        }
        for page in 0..3 {
            let addr = ELSEWHERE + page * 4096;
            assert_eq!(self.load(addr), Ok(1000 + page), "a frame was used again while another CPU wrote to it");
        }
    }
}

/// Writes ever higher values to a word, which nobody else writes, and reads them.
fn count_up(w: World, addr: u64, write: impl Fn(World, u64, u64) + Send + 'static) -> Actor {
    inside(w.space, move || {
        for value in 1..=LAST {
            write(w, addr, value);
            assert_eq!(w.load(addr), Ok(value), "a write is lost");
        }
    })
}

/// By an instruction of the program's.
fn by_store(w: World, addr: u64, value: u64) {
    assert_eq!(w.store(addr, value), Ok(value));
}

/// By a system call: through the direct map, in a section.
fn by_call(w: World, addr: u64, value: u64) {
    w.space.write(addr, &value.to_ne_bytes()).unwrap();
}
