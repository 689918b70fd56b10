//! Ways to fail on purpose (`--append selftest=NAME`), so that tests can see how
//! each failure is reported.

use crate::port::boot::paging;
use crate::port::console::log;
use crate::port::mm::{self, Space};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::GsBase;
use x86_64::structures::DescriptorTablePointer;

/// A failure.
#[derive(Clone, Copy)]
pub enum Selftest {
    /// A panic.
    Panic,
    /// A triple fault.
    Reset,
    /// An NMI where %gs is the program's, and its base as high as the kernel's.
    Nmi,
    /// The kernel reads a program's byte directly, which SMAP has to prevent.
    UserAccess,
}

impl Selftest {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Selftest> {
        match name {
            "panic" => Some(Selftest::Panic),
            "reset" => Some(Selftest::Reset),
            "nmi" => Some(Selftest::Nmi),
            "user-access" => Some(Selftest::UserAccess),
            _ => None,
        }
    }
    /// Fails. `mapped` is an address that the program has touched.
    pub fn run(self, space: &Space, mapped: u64) {
        match self {
            Selftest::Panic => panic!("as asked"),
            Selftest::Reset => {
                let nothing = DescriptorTablePointer { limit: 0, base: VirtAddr::zero() };
                // SAFETY: K6: no trap can be delivered any more, which is the
                // point: the next one resets the machine.
                unsafe { x86_64::instructions::tables::lidt(&nothing) };
                x86_64::instructions::interrupts::int3();
            }
            Selftest::Nmi => {
                // As between `syscall` and the `swapgs` of its entry: a program can choose the base by `wrgsbase`.
                GsBase::write(VirtAddr::new(0xffff_ffff_ffff_f000));
                // SAFETY: never completes: K3 does not hold any more, and the gate's stub makes it hold anew.
                unsafe { core::arch::asm!("int 2") };
            }
            Selftest::UserAccess => {
                // SAFETY: I11: never completes, so that the space is never dropped.
                unsafe { space.activate_raw() };
                paging::load_root(mm::root_address(space));
                // SAFETY: never completes: K5 says that such an access traps.
                let byte = unsafe { (mapped as *const u8).read_volatile() };
                log!("SMAP is off: read {byte}");
            }
        }
    }
}
