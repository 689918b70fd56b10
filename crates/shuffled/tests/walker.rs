//! I39 on CPUs whose stores wait in buffers: a store through a walk is visible, or was
//! refused, when the operation that takes the page away goes on.

use common::{FIXED_PRIVATE, NR_SLOTS, RW, Shuffled, be, run, shuffled, vm, word_at};
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{Access, AddressSpace, Prot, Tunables};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

type Space = AddressSpace<'static, Shuffled<X86_64>>;

const BASE: u64 = 0x4000_0000;
const FRESH: u64 = BASE + 4096;
const SCHEDULES: usize = 2500;

/// CPU 1 stores 1, 2, ... through walks; CPU 0 does `op`. `op` gets the value that CPU 1
/// had stored at the last look. The page must not show a smaller one.
fn store_against(op: impl Fn(&'static Space, &dyn Fn() -> u64) + Sync + Send + Copy + 'static) {
    store_in(SCHEDULES, op);
}

/// The same in so many schedules.
fn store_in(nr_schedules: usize, op: impl Fn(&'static Space, &dyn Fn() -> u64) + Sync + Send + Copy + 'static) {
    shuffled(nr_schedules, move || {
        be(0);
        let vm = vm(3, 128, Tunables::default().with_zero_batch(1));
        let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(BASE, 2 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.write(BASE, &[0; 8]).unwrap();
        let stored = Arc::new(AtomicU64::new(0));
        let last = stored.clone();
        let taker = move || {
            let active = space.activate();
            op(space, &|| last.load(SeqCst));
            drop(active);
        };
        let program = move || {
            let active = space.activate();
            let walker = active.walker();
            let mut tlb = None;
            for _ in 0..12 {
                let next = stored.load(SeqCst) + 1;
                match tlb {
                    None => tlb = walker.translate(BASE, Access::Write).ok(),
                    Some(walked) => match walker.store_through(&walked, 0, &next.to_ne_bytes()) {
                        Ok(()) => stored.store(next, SeqCst),
                        Err(_) => tlb = None,
                    },
                }
            }
            drop(active);
        };
        run(3, vec![Box::new(taker), Box::new(program)]);
        vm.check_in_test(&[space], &mut [0; 128 + NR_SLOTS]).unwrap();
    });
}

/// The frame is used again at once.
#[test]
fn store_against_munmap() {
    store_against(|space, _| {
        space.munmap(BASE, 4096).unwrap();
        space.write(FRESH, &[0; 8]).unwrap();
        assert_eq!(word_at(space, FRESH), 0, "a frame was used again while another CPU wrote to it");
        assert_eq!(word_at(space, FRESH), 0);
    });
}

/// The child has all stores before the fork and none after it. A fork takes many steps, and
/// the window is a few of them.
#[test]
fn store_against_fork() {
    store_in(6 * SCHEDULES, |space, stored| {
        let before = stored();
        let child = space.fork().unwrap();
        let seen = word_at(&child, BASE);
        assert!(before <= seen, "what was stored before the fork");
        // One store may have been made and not counted.
        assert!(seen <= stored() + 1);
        assert_eq!(word_at(&child, BASE), seen, "a store after the fork");
    });
}

#[test]
fn store_against_migration() {
    store_against(|space, stored| {
        let before = stored();
        if let Some(there) = space.translate_at_rest(BASE) {
            _ = space.vm().migrate_frame(there.pfn);
        }
        assert!(before <= word_at(space, BASE), "a store was lost");
    });
}

#[test]
fn store_against_another_mapping() {
    store_against(|space, _| {
        space.mmap(BASE, 4096, Prot::READ, FIXED_PRIVATE).unwrap();
        assert_eq!(word_at(space, BASE), 0, "what was stored before");
    });
}
