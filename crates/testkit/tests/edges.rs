//! A VMA that ends inside a huge page. The call that makes it publishes the VMAs first
//! and splits the huge mapping later. A fault in between must not reach beyond
//! the VMA that it found (I16).
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE};
use common::turns::TwoCpus;
use common::{FIXED, NONE, PAGE, PRIVATE, READ, RW, RWX, Space, huge};
use softfault::policy::huge::Enabled;
use softfault::{Access, AccessError, Event, FaultError, HugeKnobs, Prot};

const HALF: u64 = HUGE / 2;
/// In the second half.
const THERE: u64 = AT + HALF + 5 * PAGE;

/// CPU 0 makes the call, and CPU 1 touches the second half at each moment at which
/// the call lets others run. Then all of the first half gives what its VMA says.
fn at_each_moment(
    prepare: impl Fn(&Space<'_>),
    call: impl Fn(&Space<'_>),
    touch: impl Fn(&Space<'_>) + Sync,
    look: impl Fn(&Space<'_>),
) {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    let cpus = TwoCpus::over(huge::vm(2, 32 << 20, thp));
    let prepare = |space: &Space<'_>| {
        assert_eq!(space.mmap(AT, HUGE, RW, PRIVATE | FIXED), Ok(AT));
        prepare(space);
    };
    let mut begin = 0;
    while cpus.play(begin, prepare, &call, &touch, |space, (), ()| look(space)) {
        begin += 1;
    }
    assert!(begin > 0, "the call never let CPU 1 run");
    assert!(cpus.vm.event(Event::ThpSplitPmd) > begin, "there was no huge mapping to split");
}

/// A huge page of this CPU alone, with the rights.
fn own(space: &Space<'_>, rights: Prot) {
    space.write(AT, &[1]).unwrap();
    space.write(AT + HUGE - 1, &[2]).unwrap();
    assert_eq!(huge::huge_pages(space), 1);
    space.mprotect(AT, HUGE, rights).unwrap();
}

fn write_there(space: &Space<'_>) {
    match space.write(THERE, &[3]) {
        // The call has not published yet.
        Ok(()) | Err(AccessError { fault: FaultError::NoRights, .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn first_half_refuses(space: &Space<'_>, access: Access) {
    assert_eq!(space.handle_fault(AT + PAGE, access), Err(FaultError::NoRights));
}

#[test]
fn a_page_kept_by_its_writer_stays_read_only_elsewhere() {
    at_each_moment(
        |space| own(space, READ),
        |space| space.mprotect(AT + HALF, HALF, RW).unwrap(),
        write_there,
        |space| {
            first_half_refuses(space, Access::Write);
            assert_eq!(huge::byte(space, AT), 1);
        },
    );
}

#[test]
fn a_copied_page_stays_read_only_elsewhere() {
    at_each_moment(
        |space| {
            assert_eq!(huge::byte(space, AT), 0, "the huge zero page");
            space.mprotect(AT, HUGE, READ).unwrap();
        },
        |space| space.mprotect(AT + HALF, HALF, RW).unwrap(),
        write_there,
        |space| first_half_refuses(space, Access::Write),
    );
}

#[test]
fn a_widened_entry_gives_nothing_elsewhere() {
    at_each_moment(
        |space| own(space, NONE),
        |space| space.mprotect(AT + HALF, HALF, RWX).unwrap(),
        |space| match space.handle_fault(THERE, Access::Exec) {
            Ok(_) | Err(FaultError::NoRights) => {}
            other => panic!("{other:?}"),
        },
        |space| [Access::Read, Access::Exec].into_iter().for_each(|access| first_half_refuses(space, access)),
    );
}

/// The remaining VMA begins after the huge page does, and so has no index for its
/// first page.
#[test]
fn a_page_is_copied_while_its_beginning_goes() {
    at_each_moment(
        |space| assert_eq!(huge::byte(space, AT), 0, "the huge zero page"),
        |space| space.munmap(AT, HALF).unwrap(),
        |space| space.write(THERE, &[3]).unwrap(),
        |space| {
            assert_eq!(space.handle_fault(AT, Access::Read), Err(FaultError::NotMapped));
            assert_eq!(huge::byte(space, THERE), 3);
        },
    );
}
