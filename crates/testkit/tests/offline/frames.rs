//! One frame that goes.

use super::common::{FIXED, PAGE, PRIVATE, check, section};
use super::*;

/// One frame goes, whatever is in it: free, private, a huge page's, an object's, and a pool's, in use and free. Programs notice nothing.
#[test]
fn a_frame_goes_before_it_fails() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let filled = fill(&vm);
    let nr_free = vm.vmstat().nr_free_pages;
    let mut gone = Vec::new();
    for (at, nr) in ALL {
        for page in [0, nr / 3] {
            filled.space.read(at + page * PAGE, &mut [0]).unwrap();
            let pfn = filled.space.translate_at_rest(at + page * PAGE).unwrap().pfn;
            assert_eq!(vm.soft_offline_frame(pfn), Ok(()), "{at:#x}");
            assert_eq!(vm.soft_offline_frame(pfn), Err(MigrateRefusal::Reserved));
            assert_ne!(filled.space.translate_at_rest(at + page * PAGE).map(|there| there.pfn), Some(pfn));
            gone.push(pfn);
            check(&vm, &[&filled.space, &filled.child]);
        }
    }
    // Pages of the pool that are free.
    let pool = counts(&vm);
    let blocks = (section(1).first.0..).step_by(512).map(|first| Pfn(first + 300)).take(64);
    let free: Vec<Pfn> = blocks.filter(|pfn| vm.lies_free_in_pool(*pfn)).collect();
    assert!(!free.is_empty());
    for pfn in free {
        assert_eq!(vm.soft_offline_frame(pfn), Ok(()));
        gone.push(pfn);
    }
    assert_eq!((counts(&vm), vm.event(Event::FramesPoisoned)), (pool, gone.len() as u64));
    assert!(nr_free - vm.vmstat().nr_free_pages <= gone.len() as u64 + NR_NODES);
    check(&vm, &[&filled.space, &filled.child]);
    filled.assert_bytes();
    // It is refused by name, and stays.
    let at = BASE + 77 * PAGE;
    let pin = filled.space.pin_page(at, Term::Short).unwrap();
    assert_eq!(vm.soft_offline_frame(pin.pfn()), Err(MigrateRefusal::Pinned));
    assert_eq!(vm.soft_offline_frame(Pfn(0)), Err(MigrateRefusal::Reserved));
    assert_eq!(vm.soft_offline_frame(Pfn(u32::MAX)), Err(MigrateRefusal::Reserved));
    drop(pin);
    // Nobody gets one of them again.
    drop(filled);
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    check(&vm, &[]);
    let all: Space<'_> = vm.new_space().unwrap();
    let nr = vm.vmstat().nr_free_pages - 200;
    all.mmap(POOL, nr * PAGE, RW, PRIVATE | FIXED).unwrap();
    (0..nr).for_each(|page| all.write(POOL + page * PAGE, &[1]).unwrap());
    let used = (0..nr).filter_map(|page| all.translate_at_rest(POOL + page * PAGE));
    assert!({ used }.all(|there| !gone.contains(&there.pfn)));
    check(&vm, &[&all]);
}
