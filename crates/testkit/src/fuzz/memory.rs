//! Bytes as calls, faults and accesses on all kinds of memory: anonymous memory, shared objects, a file that is read and
//! written back, pools of huge pages, explicit objects, foreign frames, swap and pins. No model says what a call gives: the
//! core's checker judges what is there at the end, and every frame has to come back. [`run`](super::run) has the model.
//!
//! | bytes | content |
//! | --- | --- |
//! | 3 | the machine and its tunables: `setup.rs` |
//! | then, for each step: 1 | the step: `steps.rs` and the files below it |
//! | and its arguments | a byte each: `bytes.rs` |
//!
//! Every string of bytes is a run. One thread does all, and no clock decides, so that a run repeats. The machine is kept
//! from one run to the next, which gets a new `Vm` in it: that takes a tenth of the time of a new machine. Frames begin
//! with what the run before has left in them, and no outcome may depend on that.

mod bytes;
mod daemons;
mod objects;
mod setup;
mod spaces;
mod steps;
mod storage;
mod world;

use crate::hosted::nr_free_pages;
use crate::judge::check_some;
use bytes::Bytes;
use setup::Kept;
use softfault::{CpuId, Order, Vm};
use softfault_host::Hosted;
use std::cell::RefCell;
use world::World;

/// Steps of a run; what follows is not read.
pub const MAX_STEPS: usize = 128;

thread_local! {
    /// The machines that earlier runs have left, by kind.
    static KEPT: RefCell<[Option<Kept>; setup::NR_KINDS]> = const { RefCell::new([const { None }; setup::NR_KINDS]) };
}

/// Runs the bytes.
///
/// # Errors
///
/// The broken invariant, or the number of frames that are lost.
///
/// # Panics
///
/// If the core does.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes(bytes);
    let setup = setup::Setup::read(&mut bytes);
    let kind = setup.kind();
    let kept = KEPT.with_borrow_mut(|all| all[kind].take());
    let kept = kept.map_or_else(|| setup.machine(), Ok)?;
    let kept = run_on(kept, &setup, &mut bytes)?;
    KEPT.with_borrow_mut(|all| all[kind] = Some(kept));
    Ok(())
}

/// A run on a machine. A machine that a run has broken is not used again.
fn run_on(kept: Kept, setup: &setup::Setup, bytes: &mut Bytes<'_>) -> Result<Kept, String> {
    let Kept { machine, storage, file } = kept;
    storage.reset();
    machine.fail_swap(false, false);
    machine.fail_copy(None);
    let vm = Vm::new(machine, setup.tunables()).map_err(|error| error.to_string())?;
    {
        let cpu = vm.machine().bind(CpuId(0)).map_err(|error| error.to_string())?;
        setup.begin(&vm)?;
        let nr_free = nr_free_pages(&vm);
        let mut world = World::new(&vm, &cpu, &storage, file).ok_or("no room for a program")?;
        let mut nr_steps = 0;
        while !bytes.is_empty() && nr_steps < MAX_STEPS {
            steps::step(&mut world, bytes);
            nr_steps += 1;
        }
        judge(world, nr_free)?;
        setup.end(&vm)?;
    }
    Ok(Kept { machine: vm.into_machine(), storage, file })
}

/// Checks all that is there, lets it end, and counts the frames.
fn judge(world: World<'_>, nr_free: u64) -> Result<(), String> {
    let vm = world.vm;
    vm.fail_allocation(None);
    vm.fail_runs(None);
    broken(vm, check_some(vm, world.spaces(), false))?;
    drop(world);
    _ = vm.set_nr_overcommit_hugepages(Order::PMD, 0);
    let left = vm.set_nr_hugepages(Order::PMD, 0).map_err(|error| format!("the pool does not end: {error}"))?;
    broken(vm, check_some(vm, std::iter::empty(), false))?;
    if left != 0 {
        return Err(format!("{left} pages stay in the pool"));
    }
    match nr_free_pages(vm) {
        nr if nr == nr_free => Ok(()),
        nr => Err(format!("{nr_free} frames were free before the first step, and {nr} are after the last one")),
    }
}

fn broken(vm: &Vm<Hosted>, found: Option<String>) -> Result<(), String> {
    if let (nr @ 1.., first) = vm.machine().violations() {
        return Err(format!("{nr} violations of break before make: {}", first.unwrap_or_default()));
    }
    found.map_or(Ok(()), Err)
}
