//! The layout `pool`: a file whose pages come from a reserved pool, mapped in a space for each CPU.

use super::machine::Simulated;
use super::options::{Layout, OBJECT_AT, Options, PAGE_BYTES, Pages};
use crate::error::LabError;
use softfault_recorded::{AddressSpace, HugetlbLocking, MapFlags, ObjectPart, Order, Prot, Vm};

/// As the options say; the recorded core has types of its own.
pub fn discipline(options: &Options) -> HugetlbLocking {
    let name = options.hugetlb_locking.name();
    HugetlbLocking::ALL.into_iter().find(|d| d.name() == name).expect("both crates are made of the same sources")
}

/// The word in output.
pub fn name(options: &Options) -> Option<&'static str> {
    (options.layout == Layout::Pool).then(|| options.hugetlb_locking.name())
}

/// Maps page `turn * CPUs + cpu` of one file in the space of the CPU, as its `turn`th. All are reserved.
pub fn map(vm: &Vm<Simulated>, spaces: &[AddressSpace<Simulated>], options: &Options) -> Result<u64, LabError> {
    let (order, bytes) = (Order(options.pages.order()), Pages::HUGE.nr_frames() * PAGE_BYTES);
    let (nr_cpus, touches) = (options.nr_cpus(), u64::from(options.touches));
    let wanted = nr_cpus * touches;
    let nr = vm.set_nr_hugepages(order, wanted).map_err(|e| LabError::subsystem("set_nr_hugepages", e))?;
    if nr < wanted {
        return Err(LabError::subsystem("pages of the pool", format!("{nr}, should be {wanted}")));
    }
    let file = vm.new_hugetlb_object(wanted * bytes, order);
    let file = file.map_err(|e| LabError::subsystem("new_hugetlb_object", e))?;
    for (cpu, space) in (0..nr_cpus).zip(spaces) {
        for turn in 0..touches {
            let (prot, flags) = (Prot::READ | Prot::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            let part = ObjectPart::new(&file).with_offset_bytes((turn * nr_cpus + cpu) * bytes);
            let done = space.mmap_object(OBJECT_AT + turn * bytes, bytes, prot, flags, part);
            done.map_err(|e| LabError::subsystem(format!("mmap_object for turn {turn} of CPU {cpu}"), e))?;
        }
    }
    Ok(OBJECT_AT)
}
