//! Long-term pins.

use super::*;

/// A page that is pinned for long leaves the block of its neighbours; compaction looks at none of
/// the blocks with such pins.
#[test]
fn a_long_pin_moves_its_page_to_a_block_of_pins() {
    in_each_setup(1, 16 << 20, |w| {
        w.space.mmap(BASE, 8 * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.mmap(BASE + 8 * PAGE, 8 * PAGE, RW, SHARED | FIXED).unwrap();
        (0..16).for_each(|page| w.space.write(BASE + page * PAGE, &[page as u8 + 1; 8]).unwrap());
        let block = |page: u64| w.space.translate_at_rest(BASE + page * PAGE).unwrap().pfn.0 / 512;
        let short = w.space.pin_page(BASE + PAGE, Term::Short).unwrap();
        assert_eq!(w.vm.block_class(short.pfn().0 / 512), Class::Movable);
        let mut pins = vec![];
        for page in [0, 3, 8, 11] {
            let before = block(page);
            let pin = w.space.pin_page_mut(BASE + page * PAGE, Term::Long).unwrap();
            assert_eq!((pin.pfn().0 / 512, w.vm.block_class(block(page))), (block(page), Class::Pinned), "page {page}");
            assert!(before != block(page) && w.vm.block_class(before) < Class::Pinned);
            let mut seen = [0; 8];
            pin.read(0, &mut seen);
            assert_eq!(seen, [page as u8 + 1; 8]);
            pins.push(pin);
        }
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 0));
        // A second pin of the same page, and one that somebody else holds already.
        pins.push(w.space.pin_page_mut(BASE, Term::Long).unwrap());
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 0));
        let held = w.space.pin_page(BASE + PAGE, Term::Long).unwrap();
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 1));
        assert_eq!(w.vm.block_class(held.pfn().0 / 512), Class::Pinned, "compaction passes it over");
        check(w.vm, &[w.space]);
        drop((pins, held, short));
        (0..16).for_each(|page| {
            let mut seen = [0; 8];
            w.space.read(BASE + page * PAGE, &mut seen).unwrap();
            assert_eq!(seen, [page as u8 + 1; 8]);
        });
    });
}
