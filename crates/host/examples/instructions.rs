//! Instructions per page of one operation, for `valgrind --tool=callgrind`:
//!
//! ```text
//! cargo build --release -p softfault-host --example instructions
//! for n in 4096 8192; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!         target/release/examples/instructions read $n 2>&1 | grep Collected
//! done
//! ```
//! The difference of the two, by the difference in pages, is the cost of a page;
//! what is left at the smaller one is fixed. Faults are taken directly: no
//! translation is emulated on the way. `fork-vmas` has as many VMAs as pages, and
//! none of them touched.

use softfault::machine::CpuId;
use softfault::{Access, AddressSpace, Config, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};
use std::process::ExitCode;

const PAGE_BYTES: u64 = 4096;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let nr_pages = args.next().and_then(|n| n.parse().ok()).unwrap_or(8192);
    let hosted = Hosted::new(HostedConfig { arena_bytes: 256 << 20, ..HostedConfig::default() }).expect("an arena");
    let regions = hosted.regions();
    let config = Config { regions: &regions, frames_are_zero: true, tunables: Tunables::default() };
    let vm = Vm::new(hosted, &config).expect("a subsystem");
    let _cpu = vm.machine().bind(CpuId(0)).expect("a CPU");
    let space = vm.new_space().expect("a space");
    let at = space.mmap(0, nr_pages * PAGE_BYTES, 3, 0x22).expect("a mapping");
    space.activate();
    let fill = || touch(&space, at, nr_pages, Access::Write);
    match what.as_str() {
        "read" => measured(|| touch(&space, at, nr_pages, Access::Read)),
        "write" => measured(fill),
        "munmap" => {
            fill();
            measured(|| space.munmap(at, nr_pages * PAGE_BYTES).expect("aligned"));
        }
        "fork" => {
            fill();
            let mut child = None;
            measured(|| child = space.fork().ok());
        }
        "exit" => {
            fill();
            let mut child = space.fork().ok();
            measured(|| drop(child.take()));
        }
        "fork-vmas" => {
            (0..nr_pages)
                .step_by(2)
                .for_each(|page| space.mprotect(at + page * PAGE_BYTES, PAGE_BYTES, 1).expect("aligned"));
            let mut child = None;
            measured(|| child = space.fork().ok());
        }
        _ => {
            eprintln!("the first argument should be read, write, munmap, fork, exit or fork-vmas");
            return ExitCode::from(2);
        }
    }
    space.deactivate();
    ExitCode::SUCCESS
}

#[inline(never)]
fn measured(run: impl FnOnce()) {
    run();
}

fn touch(space: &AddressSpace<'_, Hosted>, at: u64, nr_pages: u64, access: Access) {
    for page in 0..nr_pages {
        space.handle_fault(at + page * PAGE_BYTES, access).expect("mapped and allowed");
    }
}
