//! Huge pages on CPUs with store buffers. In the toy format a huge page is four small
//! ones; the rest is as in `weak_memory`.

use common::{FIXED_PRIVATE, NR_SLOTS, READ, RW, Shuffled, access, be, inside, run, shuffled, vm};
use softfault_shuffled::Advice;
use softfault_shuffled::policy::huge::Enabled;
use softfault_shuffled::table::format::Toy;
use softfault_shuffled::{Access, AddressSpace, Event, HugeKnobs, Term, Tunables, Vm};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

type Machine = Shuffled<Toy>;
type Space = AddressSpace<'static, Machine>;
type Actor = Box<dyn FnOnce() + Send>;

const NR_CPUS: usize = 3;
const NR_FRAMES: u64 = 128;
const SCHEDULES: usize = 1500;

#[derive(Clone, Copy)]
struct World {
    vm: &'static Vm<Machine>,
    space: &'static Space,
}

impl World {
    /// One huge page of zeroes, if `is_there`, or room for one.
    fn new(is_there: bool) -> World {
        World::with(is_there, HugeKnobs::DEFAULT)
    }

    fn with(is_there: bool, knobs: HugeKnobs) -> World {
        be(0);
        let thp = knobs.with_enabled(Enabled::Always);
        let vm = vm(NR_CPUS, NR_FRAMES, Tunables::default().with_mmap_min_addr(0).with_zero_batch(1).with_thp(thp));
        let space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(0, 4 * 4096, RW, FIXED_PRIVATE).unwrap();
        space.handle_fault(0, Access::Write).unwrap();
        if !is_there {
            space.madvise(0, 4 * 4096, Advice::DontNeed).unwrap();
        }
        World { vm, space }
    }

    fn check(&self, others: &[&Space]) {
        let mut spaces = vec![self.space];
        spaces.extend(others);
        self.vm.check_in_test(&spaces, &mut vec![0; NR_FRAMES as usize + NR_SLOTS]).unwrap();
    }
}

/// Writes ever higher values to two pages, and reads them.
fn count_up(w: World, pages: [u64; 2]) -> Actor {
    inside(w.space, move || {
        for value in 1..=4 {
            for page in pages {
                assert_eq!(access(w.space, w.vm, page * 4096, Some(value)), Ok(value));
            }
            for page in pages {
                assert_eq!(access(w.space, w.vm, page * 4096, None), Ok(value), "a store is lost");
            }
        }
    })
}

fn stores_against(is_there: bool, op: impl Fn(World) + Sync + Send + Copy + 'static) {
    shuffled(SCHEDULES, move || {
        let w = World::new(is_there);
        run(NR_CPUS, vec![inside(w.space, move || op(w)), count_up(w, [0, 2]), count_up(w, [1, 3])]);
        w.check(&[]);
    });
}

/// A call puts the edge of a VMA into the range while faults put a huge page there.
#[test]
fn faults_against_an_edge() {
    // MADV_RANDOM for one page.
    stores_against(false, |w| w.space.madvise(4096, 4096, Advice::Random).unwrap());
}

#[test]
fn stores_against_a_split() {
    stores_against(true, |w| w.space.madvise(4096, 4096, Advice::Random).unwrap());
}

/// Collapses the small pages into a huge one again.
#[test]
fn stores_against_a_collapse() {
    let nr_collapsed: &'static AtomicU64 = Box::leak(Box::default());
    shuffled(SCHEDULES, || {
        let w = World::new(true);
        // Split, and one VMA again.
        w.space.mprotect(4096, 4096, READ).unwrap();
        w.space.mprotect(4096, 4096, RW).unwrap();
        // MADV_COLLAPSE, which may be refused.
        let collapser =
            inside(w.space, move || (0..2).for_each(|_| _ = w.space.madvise(0, 4 * 4096, Advice::Collapse)));
        run(NR_CPUS, vec![collapser, count_up(w, [0, 2]), count_up(w, [1, 3])]);
        w.check(&[]);
        nr_collapsed.fetch_add(w.vm.event(Event::Collapsed), SeqCst);
    });
    assert!(nr_collapsed.load(SeqCst) > 0, "every collapse was refused");
}

/// Memory is short: huge pages that are mostly zeroes are split, and their zero pages
/// freed. Stores meanwhile, by a program or through a pin, stay.
#[test]
fn writes_against_a_split_of_the_underused() {
    let nr_split: &'static AtomicU64 = Box::leak(Box::default());
    shuffled(SCHEDULES, || {
        let w =
            World::with(true, HugeKnobs::DEFAULT.with_khugepaged(HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(1)));
        be(1);
        w.space.write(4096, &[1]).unwrap();
        let shrinker: Actor = Box::new(move || (0..3).for_each(|_| _ = w.vm.shrink_underused(u64::MAX)));
        let device = inside(w.space, move || {
            for value in 1..=4u64 {
                let pin = w.space.pin_page_mut(0, Term::Short).unwrap();
                pin.write(0, &value.to_ne_bytes());
                drop(pin);
                assert_eq!(access(w.space, w.vm, 0, None), Ok(value), "what was written through the pin is lost");
            }
        });
        run(NR_CPUS, vec![shrinker, device, count_up(w, [2, 3])]);
        w.check(&[]);
        nr_split.fetch_add(w.vm.event(Event::ThpUnderusedSplitPage), SeqCst);
    });
    assert!(nr_split.load(SeqCst) > 0, "nothing was split");
}

/// The child shows the pages of one moment.
#[test]
fn stores_against_fork() {
    shuffled(SCHEDULES, || {
        let w = World::new(true);
        let child: Arc<Mutex<Option<Space>>> = Arc::default();
        let slot = child.clone();
        let forker = inside(w.space, move || {
            let child = w.space.fork().unwrap();
            let read = || {
                let mut bytes = [0; 8];
                child.read(0, &mut bytes).unwrap();
                bytes
            };
            let first = read();
            (0..4).for_each(|_| assert_eq!(read(), first, "F5: the child sees a later write"));
            *slot.lock().unwrap() = Some(child);
        });
        run(NR_CPUS, vec![forker, count_up(w, [0, 2]), count_up(w, [1, 3])]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}
