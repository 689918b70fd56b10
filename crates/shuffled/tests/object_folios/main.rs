//! Folios of objects on CPUs whose stores wait in buffers, with TLBs that go stale: several CPUs that move, cut and use
//! them, mappings that come and go, descriptors of tails that are free memory. Loom has pairs of these, with folios of two
//! pages and few entries. `gib_folios` has folios of 1 GiB.

mod members;
mod moves;
mod tails;

use common::{NR_SLOTS, RW, Shuffled, access, be, run, shuffled, vm, walk};
use shuttle::rand::Rng;
use softfault_shuffled::policy::folio::FolioOrders;
use softfault_shuffled::sync::quietly;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Event, MapFlags, ObjectPart, Order, SharedObject, Term, Tunables, Vm};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;
type Actor = Box<dyn FnOnce() + Send>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);

/// The first word of a page, read by the handle.
fn content(object: &Object, page: u64) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(object.read(page * 4096, &mut bytes), 8, "page {page}");
    u64::from_ne_bytes(bytes)
}

/// The frame that the entry for `addr` names now.
fn frame_at(vm: &'static Vm<Machine>, space: &Space, addr: u64) -> Option<softfault_shuffled::Pfn> {
    quietly(|| walk(space, vm, addr)).map(|there| there.pfn)
}

/// Adds what one schedule has seen of some events.
fn add_seen<const N: usize>(sums: &[AtomicU64; N], events: [Event; N], vm: &Vm<Machine>) {
    sums.iter().zip(events).for_each(|(sum, event)| _ = sum.fetch_add(vm.event(event), Relaxed));
}

/// Asserts that each event was seen in some schedule.
fn assert_all_seen<const N: usize>(sums: &[AtomicU64; N], events: [Event; N]) {
    let nr = sums.each_ref().map(|sum| sum.load(Relaxed));
    assert!(nr.iter().all(|nr| *nr > 0), "{events:?}: {nr:?}");
}
