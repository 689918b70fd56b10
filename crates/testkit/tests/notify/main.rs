//! T14, T15: a subscriber that keeps a table of its own beside a space's is told of every
//! change before and after, and asked when pages age.
#![deny(unsafe_code)]

mod ages;
#[path = "../common/mod.rs"]
mod common;
mod mirror;
mod moments;
mod told;

use common::huge::HUGE;

use common::*;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{
    Access, Advance, Advice, CpuId, Event, HugeKnobs, LookupRefused, Notice, Order, PageRange, Pfn, Rights,
    Subscription, Term, Vm, Vpn, Why,
};
use softfault_host::{Hosted, Running};
use std::collections::{BTreeMap, BTreeSet};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const ARENA: u64 = 16 << 20;
const OTHER: u64 = BASE + (1 << 30);
/// Where a huge page fits.
const AT: u64 = 0x20_0000_0000;

const NR_PAGES: u64 = 512;

fn range(at: u64, nr_pages: u64) -> PageRange {
    PageRange::sized(Vpn::of(at), nr_pages).unwrap()
}

/// Everything that is told, in its order.
#[derive(Default, Clone)]
struct Log(Arc<Mutex<Vec<Notice>>>);

impl Log {
    fn of(vm: &Vm<Hosted>) -> Log {
        let log = Log::default();
        let to = log.clone();
        let push = move |_, notice: &Notice| {
            to.0.lock().unwrap().push(*notice);
            false
        };
        assert!(vm.machine().on_notice(Box::new(push)).is_ok(), "one subscriber a machine");
        log
    }
    fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Start and end of one change.
fn told(at: u64, nr_pages: u64, why: Why) -> [Notice; 2] {
    let range = range(at, nr_pages);
    [Notice::Start { range, why }, Notice::End { range, why }]
}

fn enable(w: &World<'_>, cow: CowHuge) {
    w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow)).unwrap();
}
