//! Growth of a `MAP_GROWSDOWN` mapping.
#![deny(unsafe_code)]

mod common;

use common::{FIXED, GROWSDOWN, MAYMOVE, MREMAP_FIXED, PAGE, PRIVATE, RW, huge};
use softfault::policy::huge::Enabled;
use softfault::{Access, FaultError, HugeKnobs};

const LOW: u64 = 0x40_0000;
const HIGH: u64 = 0x7000_0000_0000;
const LEN: u64 = 4 * PAGE;

/// The index of a mapping's first page is its first page number. One that was moved up
/// keeps its index, and cannot grow below index 0, as on Linux.
#[test]
fn a_mapping_that_was_moved_grows_to_its_first_index_only() {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    huge::with_space(thp, |_, space| {
        assert_eq!(space.mmap(LOW, LEN, RW, PRIVATE | FIXED | GROWSDOWN), Ok(LOW));
        assert_eq!(space.mremap(LOW, LEN, LEN, MAYMOVE | MREMAP_FIXED, HIGH), Ok(HIGH));
        let touch = |pages_below: u64| space.handle_fault(HIGH - pages_below * PAGE, Access::Write).map(drop);
        let nr_indices = LOW / PAGE;
        assert_eq!(touch(nr_indices + 1), Err(FaultError::NotMapped));
        assert_eq!(touch(nr_indices + 500), Err(FaultError::NotMapped));
        assert_eq!(touch(nr_indices), Ok(()));
        assert_eq!(touch(nr_indices + 1), Err(FaultError::NotMapped));
        // All of it can be looked at and split.
        let (first, len) = (HIGH - LOW, LOW + LEN);
        let mut nr_pages = 0;
        space.mincore(first, len, &mut |_, _| nr_pages += 1).unwrap();
        assert!(nr_pages > 0);
        space.munmap(first + PAGE, PAGE).unwrap();
        space.munmap(HIGH - PAGE, PAGE).unwrap();
    });
}
