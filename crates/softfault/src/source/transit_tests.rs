//! I52: the folio of a page that is read in, one step at a time.

use super::*;
use crate::addr::SwapSlot;
use crate::frame::{FrameKind, OutOfFrames};
use crate::source::object_slot::ObjectSlot;
use crate::testing::{kind, vm};
use crate::tunables::Tunables;

/// A CPU that is still looking for the lock of a page that the frame had before may find one that a loser has
/// set. Nobody takes that back for it.
#[test]
fn a_cpu_that_loses_the_page_has_locked_nothing() -> Result<(), OutOfFrames> {
    let vm = vm(1024, Tunables::default());
    let object = vm.new_shared_object(4096)?;
    object.write(0, &[1]).unwrap();
    let (pfn, held) = vm.obtain_held(Fill::Shared)?;
    {
        let section = vm.section();
        let place = vm.object_slot(section.inside(), object.id, 0);
        let ObjectSlot::Page(at) = place else { panic!("a page is there") };
        let swapped = Swapped::whole(SwapSlot(0));
        assert!(vm.begin_to_read(section.inside(), (object.id, 0), at, swapped, pfn).is_err());
    }
    assert_eq!(kind(&vm, pfn), FrameKind::Free);
    vm.give_back(pfn, Fill::Shared);
    drop(held);
    Ok(())
}
