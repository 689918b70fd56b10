//! Operations on an object for several files of models.

use super::{Modelled, RW, World, pager};
use softfault_modelled::{AddressSpace, MapFlags, ObjectPart, SharedObject};

type Object = SharedObject<'static, Modelled>;

/// Maps one page, shared.
pub fn map(space: &AddressSpace<'static, Modelled>, page: u64, object: &Object) {
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    space.mmap_object(page * 4096, 4096, RW, flags, ObjectPart::new(object)).unwrap();
}

/// Moves a frame, as an actor of a model.
pub fn mover(w: World, pfn: softfault_modelled::Pfn) -> Box<dyn FnOnce() + Send> {
    Box::new(move || _ = w.vm.migrate_frame(pfn))
}

/// Bytes of one page, read by the handle. A program that finds that the memory has failed is killed.
pub fn content<const N: usize>(object: &Object, at: u64) -> [u8; N] {
    let mut bytes = [0xee; N];
    let nr = object.read(at, &mut bytes);
    assert!(nr == N || !pager::has_failed(object, at / 4096), "Poisoned");
    assert_eq!(nr, N);
    bytes
}

/// One byte.
pub fn byte(object: &Object, at: u64) -> u8 {
    content::<1>(object, at)[0]
}

/// Asserts the first word of a page whose memory has not failed.
pub fn assert_word(object: &Object, page: u64, expected: u8) {
    let mut word = [0xee; 8];
    let nr = object.read(page * 4096, &mut word);
    assert!(nr == 8 && word == [expected; 8] || pager::has_failed(object, page), "page {page}: {word:?}");
}
