//! The machine below the parsers, in place of the kernel's: a hosted one with one CPU.
#![allow(missing_docs)] // as in the kernel

pub mod console {
    //! Messages are made and dropped.
    macro_rules! log {
        ($($arg:tt)*) => {{ _ = format!($($arg)*); }};
    }
    pub(crate) use log;
}

pub mod mm {
    //! Memory management, under the names that the kernel has for it.

    use softfault::{AccessError, AddressSpace, CpuId, HugetlbCounts, Order, PAGE_SIZE, SharedObject, Tunables, Vm};
    use softfault_host::{Hosted, HostedConfig};
    use std::sync::{Mutex, OnceLock, PoisonError};

    pub type Space = AddressSpace<'static, Hosted>;
    pub type Object = SharedObject<'static, Hosted>;

    /// One past the last address of a program.
    pub const USER_END: u64 = 0x7fff_ffff_f000;
    const ARENA_BYTES: u64 = 8 << 20;

    /// The machine's memory.
    pub fn vm() -> &'static Vm<Hosted> {
        static VM: OnceLock<Vm<Hosted>> = OnceLock::new();
        VM.get_or_init(|| {
            let hosted = Hosted::new(HostedConfig::default().with_arena_bytes(ARENA_BYTES)).expect("8 MiB");
            Vm::new(hosted, Tunables::default()).expect("8 MiB are enough")
        })
    }

    /// Runs as the machine's CPU, one thread at a time.
    pub fn alone<T>(run: impl FnOnce(&'static Vm<Hosted>) -> T) -> T {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _cpu = vm().machine().bind(CpuId(0)).expect("no other thread is the CPU");
        run(vm())
    }

    /// Copies bytes to the program, whatever rights it has to that memory.
    pub fn copy_out_forced(space: &Space, addr: u64, from: &[u8]) -> Result<(), AccessError> {
        space.write_forced(addr, from)
    }

    pub fn default_huge_order() -> Order {
        Order::PMD
    }

    pub fn huge_order_of(bytes: u64) -> Option<Order> {
        [Order::PMD, Order::PUD].into_iter().find(|order| order.nr_pages() * PAGE_SIZE == bytes)
    }

    pub fn huge_counts(order: Order) -> HugetlbCounts {
        vm().hugetlb_counts(order).expect("both sizes have pools")
    }
}
