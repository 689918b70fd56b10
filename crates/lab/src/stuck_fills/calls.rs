//! The calls, timed one by one, beside threads that sleep.

use super::gate::{Gate, OpenAtEnd, StuckFile};
use super::options::Options;
use crate::bench::{Arena, Frames, PAGE_BYTES, bind, prepare_frames};
use crate::error::LabError;
use softfault::policy::folio::FolioOrders;
use softfault::{AddressSpace, Advice, MapFlags, ObjectPart, Prot, Tunables, Vm};
use softfault_host::{Hosted, Running};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Where the file is mapped.
const BASE: u64 = 1 << 40;
/// Bytes of private memory that are mapped and unmapped.
const PRIVATE_BYTES: u64 = 64 << 10;

/// The reason for which the other threads sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Faults whose reads never end.
    Fills,
    /// Something else.
    Sleepers,
}

impl Beside {
    /// Both.
    pub const BOTH: [Beside; 2] = [Beside::Fills, Beside::Sleepers];

    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Beside::Fills => "fills",
            Beside::Sleepers => "sleepers",
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The words of the calls in output, in the order of [`Sample`].
pub const CALLS: [&str; 3] = ["mmap", "fault", "munmap"];

/// Nanoseconds of each call, by [`CALLS`].
#[derive(Clone, Default, Debug)]
pub struct Sample(pub [Vec<u64>; CALLS.len()]);

/// One run.
pub fn run(options: &Options, arena: &mut Arena, beside: Beside) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), Frames::Zeroed);
    let vm = Vm::new(arena.take(), Tunables::default()).map_err(|e| LabError::subsystem("Vm::new", e))?;
    let sample = run_in(options, &vm, beside)?;
    arena.put(vm.into_machine());
    Ok(sample)
}

fn run_in(options: &Options, vm: &Vm<Hosted>, beside: Beside) -> Result<Sample, LabError> {
    let cpu = bind(vm.machine(), 0)?;
    let nr_sleepers = usize::from(options.sleepers);
    let (gate, end_of_stuck) = (Arc::new(Gate::default()), nr_sleepers as u64 * PAGE_BYTES);
    let file = vm.machine().add_file(Arc::new(StuckFile { end_of_stuck, gate: Arc::clone(&gate) }));
    let len = options.nr_pages() * PAGE_BYTES;
    let object = vm.new_file_object(len, FolioOrders::BASE, file);
    let object = object.map_err(|e| LabError::subsystem("new_file_object", e))?;
    for offset in (end_of_stuck..len).step_by(PAGE_BYTES as usize) {
        if object.read(offset, &mut [0; 8]) != 8 {
            return Err(LabError::subsystem("reading the file", "the read ended early"));
        }
    }
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    let part = ObjectPart::new(&object);
    space
        .mmap_object(BASE, len, Prot::READ, MapFlags::SHARED | MapFlags::FIXED, part)
        .map_err(|e| LabError::subsystem("mmap_object", e))?;
    // Each read is of one page, and each fault maps one.
    space.madvise(BASE, len, Advice::Random).map_err(|e| LabError::subsystem("madvise", e))?;
    let asleep = |i: usize| -> Result<(), LabError> {
        // A thread that fails would be waited for.
        let _open = OpenAtEnd(&gate);
        let cpu = bind(vm.machine(), i + 1)?;
        let running = enter(&cpu, &space)?;
        match beside {
            Beside::Fills => read(&running, BASE + i as u64 * PAGE_BYTES),
            Beside::Sleepers => {
                gate.sleep();
                Ok(())
            }
        }
    };
    std::thread::scope(|scope| {
        let asleep = &asleep;
        let threads: Vec<_> = (0..nr_sleepers).map(|i| scope.spawn(move || asleep(i))).collect();
        gate.wait_for(nr_sleepers);
        let sample = {
            let _open = OpenAtEnd(&gate);
            timed(options, &enter(&cpu, &space)?)
        };
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        sample
    })
}

fn enter<'a>(
    cpu: &'a softfault_host::CpuGuard<'a>,
    space: &'a AddressSpace<'a, Hosted>,
) -> Result<Running<'a>, LabError> {
    cpu.enter(space).map_err(|e| LabError::subsystem("entering the space", e))
}

fn read(running: &Running<'_>, addr: u64) -> Result<(), LabError> {
    running.read_u64(addr).map(drop).map_err(|e| LabError::subsystem(format!("a read at {addr:#x}"), e))
}

/// The rounds, from the end of the file's mapping on.
fn timed(options: &Options, running: &Running<'_>) -> Result<Sample, LabError> {
    let mut sample = Sample::default();
    let space = running.space();
    let mut time = |call: usize, work: &mut dyn FnMut() -> Result<(), LabError>| {
        let start = Instant::now();
        let done = work();
        sample.0[call].push(start.elapsed().as_nanos() as u64);
        done
    };
    let (prot, flags) = (Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS);
    let unmap = |addr, len| space.munmap(addr, len).map_err(|e| LabError::subsystem("munmap", e));
    for page in (u64::from(options.sleepers)..options.nr_pages()).rev() {
        let (mut private, addr) = (0, BASE + page * PAGE_BYTES);
        time(0, &mut || {
            private = space.mmap(0, PRIVATE_BYTES, prot, flags).map_err(|e| LabError::subsystem("mmap", e))?;
            Ok(())
        })?;
        time(1, &mut || read(running, addr))?;
        time(2, &mut || unmap(addr, PAGE_BYTES))?;
        time(2, &mut || unmap(private, PRIVATE_BYTES))?;
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Experiment, typed};

    #[test]
    fn calls_end_while_fills_do_not() {
        let options: Options = typed("stuck-fills --sleepers 3 --ops 100 --reps 1");
        let mut arena = options.set_up().unwrap();
        for beside in Beside::BOTH {
            let sample = run(&options, &mut arena, beside).unwrap();
            assert_eq!(sample.0.map(|times| times.len()), [100, 100, 200], "{beside}");
        }
    }
}
