//! The calls that several files of models make.

use super::{FIXED_PRIVATE, Modelled, RW, World};
use softfault_modelled::{Access, Advice, MapFlags, MlockFlags, MremapFlags, ObjectPart, SharedObject, Term};

/// Never called. The core's generic code for these calls is compiled here, once, rather than in each test binary
/// that makes them.
pub fn compiled_once(w: World, object: &'static SharedObject<'static, Modelled>) {
    _ = w.space.mmap(0, 0, RW, FIXED_PRIVATE);
    _ = w.space.mmap_object(0, 0, RW, MapFlags::SHARED, ObjectPart::new(object));
    _ = w.space.munmap(0, 0);
    _ = w.space.mremap(0, 0, 0, MremapFlags::MAYMOVE, 0);
    _ = w.space.mprotect(0, 0, RW);
    _ = w.space.madvise(0, 0, Advice::DontNeed);
    _ = w.space.mlock(0, 0, MlockFlags::empty());
    _ = w.space.collapse(0);
    _ = w.space.handle_fault(0, Access::Write);
    _ = w.space.read(0, &mut []);
    _ = w.space.write(0, &[]);
    _ = w.space.pin_page(0, Term::Short);
    _ = w.space.pin_page_mut(0, Term::Short);
    _ = w.space.fork();
    _ = w.space.activate();
    _ = w.space.unsubscribe(w.space.subscribe());
    _ = w.vm.new_shared_object(0);
    _ = object.read(0, &mut []);
    _ = object.write(0, &[]);
    _ = w.vm.migrate_frame(softfault_modelled::addr::Pfn(0));
    _ = w.vm.advance_generation(0);
    _ = w.space.rss_pages();
    _ = w.vm.vmstat();
}
