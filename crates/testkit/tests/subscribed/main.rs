//! I24, I27: private pages of spaces with subscribers move, or go out of use, and the
//! subscribers are told. `notify` has a mirror meanwhile.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod meanwhile;
mod told;

use common::*;
use softfault::machine::SpaceTag;
use softfault::policy::compact::CompactBudget;
use softfault::{
    CompactRefusal, CpuId, Event, MigrateRefusal, Notice, PageRange, Pfn, PoisonRefusal, Subscription, Term, Vm, Vpn,
    Why,
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const ARENA: u64 = 16 << 20;

fn range(addr: u64, nr_pages: u64) -> PageRange {
    PageRange::sized(Vpn::of(addr), nr_pages).unwrap()
}

/// Start and end of one change in one space.
fn told(space: &Space<'_>, addr: u64, why: Why) -> [(SpaceTag, Notice); 2] {
    let range = range(addr, 1);
    [(space.tag(), Notice::Start { range, why }), (space.tag(), Notice::End { range, why })]
}

/// Everything that is told, in its order.
struct Log(Arc<Mutex<Vec<(SpaceTag, Notice)>>>);

impl Log {
    fn of(vm: &Vm<Hosted>) -> Log {
        let log = Log(Arc::default());
        let to = log.0.clone();
        let push = move |tag, notice: &Notice| {
            to.lock().unwrap().push((tag, *notice));
            false
        };
        assert!(vm.machine().on_notice(Box::new(push)).is_ok(), "one subscriber a machine");
        log
    }
    fn take(&self) -> Vec<(SpaceTag, Notice)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
