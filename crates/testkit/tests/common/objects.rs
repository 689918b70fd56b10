//! For tests of shared objects: mappings of them, and bytes through mappings and handles.

use super::{FIXED, Hosted, PAGE, RW, Space};
use softfault::{Access, FaultError, MapFlags, ObjectPart, SharedObject};

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
