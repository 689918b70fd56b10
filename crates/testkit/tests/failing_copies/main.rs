//! The memory of a page fails while the core copies it: for every operation that copies, the first copy fails, then the
//! second, and so on. The fault says so, a move is abandoned, and nothing but that page is lost.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod huge;
mod moves;
mod pools;
mod private;

use common::{Hosted, PAGE, Setup, Space, World, check};
use softfault::errno::Errno;
use softfault::{CpuId, Event, FaultError, Pfn, Vm};
use std::cell::Cell;

/// The copy that fails in one run.
struct Failing {
    nr_before: u64,
    pfn: Cell<Option<Pfn>>,
}

impl Failing {
    /// Runs the operation whose copies are meant.
    fn run<T>(&self, w: &World<'_>, operation: impl FnOnce() -> T) -> T {
        w.vm.machine().fail_copy(Some(self.nr_before));
        let done = operation();
        self.pfn.set(w.vm.machine().failed_copy());
        w.vm.machine().fail_copy(None);
        done
    }

    fn has_failed(&self) -> bool {
        self.pfn.get().is_some()
    }
}

/// Runs the test with each of these copies failing; `true` if it has failed. All frames are back then, but for those that
/// were taken out of use.
fn run_with(vm: &Vm<Hosted>, nr_before: u64, test: &dyn Fn(&World<'_>, &Failing)) -> bool {
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let failing = Failing { nr_before, pfn: Cell::new(None) };
    {
        let space = vm.new_space().unwrap();
        test(&World { vm, cpu: &cpu, space: &space }, &failing);
        check(vm, &[&space]);
    }
    check(vm, &[]);
    assert_eq!(
        softfault_testkit::at_rest::check_free_is_zero(vm),
        Ok(()),
        "a copy that was begun is in a frame that counts as zero"
    );
    let now = vm.vmstat().nr_free_pages + vm.event(Event::FramesPoisoned) + 512 * vm.event(Event::ThpZeroPageAlloc);
    assert_eq!(now, before, "frames were lost or freed twice");
    assert_eq!(vm.machine().violations(), (0, None));
    failing.has_failed()
}

/// Runs the test with each copy failing, until none does; and asserts how many there are.
fn each_copy_fails(nr_copies: u64, test: impl Fn(&World<'_>, &Failing)) {
    for setup in Setup::all() {
        eprintln!("{setup:?}");
        for nr_before in 0..=nr_copies {
            let has_failed = run_with(&setup.vm(1, 32 << 20), nr_before, &test);
            assert_eq!(has_failed, nr_before < nr_copies, "copy {nr_before}");
        }
    }
}

/// A store that has to copy a page: whether it was told that the memory failed.
fn store(space: &Space<'_>, at: u64, byte: u8) -> bool {
    match space.write(at, &[byte]) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!((error.at, error.fault, error.errno()), (at, FaultError::Poisoned, Errno::EFAULT));
            true
        }
    }
}

/// The first bytes of pages, or that their memory has failed.
fn pages(space: &Space<'_>, at: u64, nr: u64) -> Vec<Option<u8>> {
    let look = |page: u64| {
        let mut byte = [0];
        match space.read(at + page * PAGE, &mut byte) {
            Ok(()) => Some(byte[0]),
            Err(error) => {
                assert_eq!(error.fault, FaultError::Poisoned);
                None
            }
        }
    };
    (0..nr).map(look).collect()
}
