//! I6: a search for zeroes holds the frames in use.

use crate::addr::{Access, BlockId, OptPfn};
use crate::frame::FrameKind;
use crate::policy::huge::Enabled;
use crate::space::Vm;
use crate::sync::Ordering;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, on_relax, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::{HugeKnobs, KhugepagedKnobs};
use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

const AT: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
const NR_FRAMES: u64 = 4096;

fn vm_with(max_ptes_none: u32) -> Vm<Plain> {
    let khugepaged = KhugepagedKnobs { max_ptes_none, ..HugeKnobs::DEFAULT.khugepaged };
    let thp = HugeKnobs { enabled: Enabled::Always, khugepaged, ..HugeKnobs::DEFAULT };
    vm_of(2, NR_FRAMES, Tunables { thp, ..Tunables::default() }).unwrap()
}

/// Another CPU unmaps the huge page at turn `begin` at which the shrinker answers, and
/// gets to the end of that unless it has to wait. From its end on nobody may look at
/// the frames. `false` if there are fewer turns.
fn unmap_at_turn(begin: u64, nr_written: u64) -> bool {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_with(100)));
    let space = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap(AT, HUGE, RW, FIXED_PRIVATE).unwrap();
    space.handle_fault(AT, Access::Write).unwrap();
    assert_eq!(space.rss_pages().anon_huge, 512);
    (0..nr_written).for_each(|page| space.write(AT + page * 4096, &[1]).unwrap());
    let first = space.translate_at_rest(AT).unwrap().pfn;
    vm.underused_cursor.set(BlockId::of(first).0.into());
    let (go, wait) = mpsc::channel();
    // Turns of the other CPU's waits, or MAX after its end.
    let progress = Arc::new(AtomicU64::new(0));
    let (theirs, mut nr_turns) = (progress.clone(), 0);
    let unmapping = std::thread::scope(|scope| {
        let unmapping = scope.spawn(move || {
            be(1);
            let counted = progress.clone();
            on_relax(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
            });
            if wait.recv().is_err() {
                return false;
            }
            space.munmap(AT, HUGE).unwrap();
            if vm.frames.folio(first).state().kind() == FrameKind::Free {
                vm.machine.closed.set(OptPfn::some(first).to_word());
            }
            progress.store(u64::MAX, Ordering::SeqCst);
            true
        });
        let mut go = Some(go);
        on_relax(move || {
            if nr_turns == begin
                && let Some(go) = go.take()
            {
                go.send(()).unwrap();
                while theirs.load(Ordering::SeqCst) < 10 {
                    std::thread::yield_now();
                }
            }
            nr_turns += 1;
        });
        vm.shrink_underused(1);
        // No turn may have come: the other CPU has to hear of the end.
        on_relax(|| {});
        unmapping.join().unwrap()
    });
    vm.machine.closed.set(0);
    unmapping
}

#[test]
fn nobody_looks_at_frames_that_are_nobodys() {
    // Too few zeroes; enough of them, so that there is a second look.
    for nr_written in [512, 500, 5] {
        let nr_turns = (0..).take_while(|begin| unmap_at_turn(*begin, nr_written)).count();
        assert!(nr_turns > 0, "{nr_written} pages written: the shrinker answers nobody");
    }
}
