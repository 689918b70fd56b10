//! The calls themselves, and the address spaces in which they are made.

use super::what::What;
use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use softfault_recorded::addr::Access;
use softfault_recorded::policy::huge::{Enabled, SizeEnabled};
use softfault_recorded::{Active, AddressSpace, FaultError, HugeKnobs, MapFlags, Prot};

/// A small page.
pub const PAGE_BYTES: u64 = 4096;
/// A block, and what one leaf table maps.
pub const HUGE_BYTES: u64 = 2 << 20;
/// Where a program's memory begins.
pub const BASE: u64 = 1 << 40;
/// The knob of 64 KiB among those of all sizes, 16 KiB first.
const SIZE_64K: usize = 2;

/// An address space of the recorded core.
pub type Space<'vm> = AddressSpace<'vm, Simulated>;

/// A call that had to succeed.
pub fn failed(what: What, why: impl std::fmt::Display) -> LabError {
    LabError::subsystem(what.name(), why)
}

/// Small pages, but where the row is about others.
pub fn knobs(what: What) -> HugeKnobs {
    let mut knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    if what != What::Touch2M {
        knobs.sizes.fill(SizeEnabled::Never);
    }
    if what == What::Touch64K {
        knobs.sizes[SIZE_64K] = SizeEnabled::Always;
    }
    knobs
}

/// Maps writable memory at [`BASE`].
pub fn map(space: &Space<'_>, what: What, len: u64) -> Result<(), LabError> {
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE | MapFlags::FIXED;
    space.mmap(BASE, len, Prot::READ | Prot::WRITE, flags).map(|_| ()).map_err(|e| failed(what, e))
}

/// Touches a page.
pub fn touch(what: What, space: &Space<'_>, addr: u64) -> Result<(), LabError> {
    space.handle_fault(addr, Access::Write).map(|_| ()).map_err(|e| failed(what, e))
}

/// Touches the pages that the call finds.
pub fn fill(what: What, space: &Space<'_>) -> Result<(), LabError> {
    let (nr_pages, every) = match what {
        What::Collapse => (512, 16),
        What::Mincore => (512, 4),
        _ => (64, 1),
    };
    (0..nr_pages).step_by(every).try_for_each(|page| touch(what, space, BASE + page * PAGE_BYTES))
}

/// A call in a space that all CPUs run.
pub fn in_shared(what: What, space: &Space<'_>, addr: u64) -> Result<(), LabError> {
    match what {
        What::Vmstat => _ = space.vm().vmstat(),
        What::Proc => _ = space.rss_pages(),
        What::Refusal => match space.handle_fault(addr, Access::Write) {
            Err(FaultError::OutOfFrames) => {}
            other => return Err(failed(what, format!("should have been refused, and came to {other:?}"))),
        },
        _ => return touch(what, space, addr),
    }
    Ok(())
}

/// A call in a space that the caller alone runs. Gives the space that it made.
pub fn in_own<'vm>(what: What, space: &Space<'vm>) -> Result<Option<Space<'vm>>, LabError> {
    match what {
        What::Fork => return space.fork().map(Some).map_err(|e| failed(what, e)),
        What::Munmap => space.munmap(BASE, HUGE_BYTES).map_err(|e| failed(what, e))?,
        // Where there is no block and none can be made, that is the answer.
        What::Collapse => _ = space.collapse(BASE),
        _ => space.mincore(BASE, HUGE_BYTES, &mut |_, _| ()).map_err(|e| failed(what, e))?,
    }
    Ok(None)
}

/// A CPU that runs a space until this is dropped.
pub struct OnCpu<'s, 'vm> {
    cpu: u16,
    active: Option<Active<'s, 'vm, Simulated>>,
}

impl<'s, 'vm> OnCpu<'s, 'vm> {
    /// This thread is that CPU from now on.
    pub fn begin(space: &'s Space<'vm>, cpu: u16) -> OnCpu<'s, 'vm> {
        machine::become_cpu(cpu);
        OnCpu { cpu, active: Some(space.activate()) }
    }
}

impl Drop for OnCpu<'_, '_> {
    fn drop(&mut self) {
        machine::become_cpu(self.cpu);
        drop(self.active.take());
    }
}
