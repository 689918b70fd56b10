//! For tests of shared objects: mappings of them, and bytes through mappings and handles.

use super::{BASE, FIXED, Hosted, PAGE, RW, Space, World, frame_of};
use softfault::policy::folio::FolioOrders;
use softfault::{Access, CpuId, FaultDone, FaultError, MapFlags, ObjectPart, Order, Pfn, SharedObject, Vm};

pub type Object<'vm> = SharedObject<'vm, Hosted>;

/// `MAP_SHARED`, of an object.
pub const MAP: MapFlags = MapFlags::SHARED;
pub const EXTRA: u64 = 0x30_0000_0000;

pub fn whole<'a, 'vm>(object: &'a Object<'vm>) -> ObjectPart<'a, 'vm, Hosted> {
    ObjectPart::new(object)
}

pub fn map<'vm>(space: &Space<'vm>, at: u64, nr_pages: u64, object: &Object<'vm>, first_page: u64) {
    let part = whole(object).with_offset_bytes(first_page * PAGE);
    assert_eq!(space.mmap_object(at, nr_pages * PAGE, RW, MAP | FIXED, part), Ok(at));
}

pub fn bytes<const N: usize>(space: &Space<'_>, at: u64) -> [u8; N] {
    let mut into = [0xee; N];
    space.read(at, &mut into).unwrap();
    into
}

pub fn content<const N: usize>(object: &Object<'_>, at: u64) -> [u8; N] {
    let mut into = [0xee; N];
    assert_eq!(object.read(at, &mut into), N);
    into
}

pub fn touch(space: &Space<'_>, at: u64) -> Result<(), FaultError> {
    space.handle_fault(at, Access::Write).map(drop)
}

/// A read fault of the `page`th page at `BASE`.
pub fn read(space: &Space<'_>, page: u64) -> Result<FaultDone, FaultError> {
    space.handle_fault(BASE + page * PAGE, Access::Read)
}

/// The same on this CPU, which the calling thread becomes for it.
pub fn read_on(vm: &Vm<Hosted>, space: &Space<'_>, cpu: u16, page: u64) -> Result<FaultDone, FaultError> {
    let _cpu = vm.machine().bind(CpuId(cpu)).unwrap();
    read(space, page)
}

/// Folios of `least` to `most` orders.
pub fn orders(least: u8, most: u8) -> FolioOrders {
    FolioOrders::new(Order(least), Order(most)).unwrap()
}

/// A new object of so many pages and of such folios.
pub fn object<'vm>(w: &World<'vm>, nr_pages: u64, orders: FolioOrders) -> Object<'vm> {
    w.vm.new_shared_object_of(nr_pages * PAGE, orders).unwrap()
}

/// The frame of the page at `at`, after a read fault.
pub fn faulted_frame(space: &Space<'_>, at: u64) -> Pfn {
    space.handle_fault(at, Access::Read).unwrap();
    frame_of(space, at)
}
