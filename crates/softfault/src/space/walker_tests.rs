//! How often a miss looks at tables.

use super::Walker;
use crate::addr::Access;
use crate::table::format::{Format, X86_64};
use crate::testing::{self, FIXED_PRIVATE, Plain, RW};
use crate::tunables::Tunables;

const PAGE: u64 = 4096;
const AT: u64 = 1 << 30;
const WALK: u64 = X86_64::LEVELS as u64;

/// How often `f` asked where a frame is: once for each level of a walk.
fn looks(walker: &Walker<'_, '_, Plain>, f: impl FnOnce()) -> u64 {
    let nr_looks = &walker.space().vm.machine.nr_looks;
    let before = nr_looks.get();
    f();
    nr_looks.get() - before
}

fn with_walker(test: impl FnOnce(&Walker<'_, '_, Plain>)) {
    let vm = testing::vm(512, Tunables::default());
    let space = vm.new_space().unwrap();
    space.mmap(AT, 16 * PAGE, RW, FIXED_PRIVATE).unwrap();
    space.write(AT, &[1]).unwrap();
    let active = space.activate();
    test(&active.walker());
}

#[test]
fn a_miss_walks_once() {
    with_walker(|walker| {
        for access in [Access::Read, Access::Write] {
            let nr = looks(walker, || _ = walker.translate(AT, access).unwrap());
            assert_eq!(nr, WALK, "{access:?}");
        }
    });
}

/// The fault has walked; the look after it loads the entry.
#[test]
fn a_miss_with_a_fault_walks_once_more_than_the_fault() {
    with_walker(|walker| {
        let fault = |page: u64| _ = walker.space().handle_fault(AT + page * PAGE, Access::Write).unwrap();
        // The CPU's caches are the same for both.
        fault(1);
        let nr_of_fault = looks(walker, || fault(2));
        let nr = looks(walker, || _ = walker.translate(AT + 3 * PAGE, Access::Write).unwrap());
        assert_eq!(nr, WALK + nr_of_fault + 1);
    });
}

#[test]
fn a_hit_walks_not_at_all() {
    with_walker(|walker| {
        let walked = walker.translate(AT, Access::Write).unwrap();
        let mut word = [0; 8];
        let load = || walker.load_through(&walked, 8, &mut word).unwrap();
        assert_eq!(looks(walker, load), 1, "the word itself");
        assert_eq!(looks(walker, || walker.store_through(&walked, 8, &[1; 8]).unwrap()), 1);
    });
}
