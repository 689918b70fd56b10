//! A machine with a subscriber, everything that its calls need, and the operations
//! that tell it.

use super::{BASE, DONTNEED, FIXED, FREE, MAYMOVE, MREMAP_FIXED, PAGE, PRIVATE, READ, RW, Space, check};
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{Access, CpuId, FaultDone, HugeKnobs, HugetlbSubpool, Notice, Order, Pfn, PinMut};
use softfault::{SharedObject, SubpoolLimits, Subscription, Term, Tunables, Vm, Why};
use softfault_host::{Hosted, HostedConfig};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread;

pub const HUGE: u64 = 2 << 20;
/// Where huge pages are.
pub const AT: u64 = 0x20_0000_0000;
/// Where a page is mapped and nothing is told of.
pub const FRESH: u64 = 0x30_0000_0000;
const MOVED: u64 = 0x40_0000_0000;
const FILLER: u64 = 0x50_0000_0000;
const ARENA: u64 = 16 << 20;
const NR_PAGES: u64 = 16;

/// When the subscriber calls back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    Start(Why),
    End(Why),
    Young,
    Release,
}

impl Moment {
    pub fn of(notice: &Notice) -> Moment {
        match *notice {
            Notice::Start { why, .. } => Moment::Start(why),
            Notice::End { why, .. } => Moment::End(why),
            Notice::Young { .. } => Moment::Young,
            Notice::Release => Moment::Release,
            _ => panic!("no call has a moment for {notice:?}"),
        }
    }

    pub fn all() -> impl Iterator<Item = Moment> {
        let whys =
            [Why::Unmap, Why::Discard, Why::Protect, Why::Move, Why::Fork, Why::Copy, Why::Migrate, Why::Collapse];
        let whys = whys.into_iter().chain([Why::Clean, Why::Poison]);
        let told = whys.flat_map(|why| [Moment::Start(why), Moment::End(why)]);
        told.chain([Moment::Young, Moment::Release])
    }

    fn is_of(self, what: Why) -> bool {
        matches!(self, Moment::Start(why) | Moment::End(why) if why == what)
    }

    /// Frames that the operation takes before it tells.
    fn nr_frames(self) -> usize {
        let (Moment::Start(why) | Moment::End(why)) = self else { return 0 };
        match why {
            Why::Fork => 2,
            Why::Copy | Why::Migrate => 1,
            _ => 0,
        }
    }
}

pub struct Stage {
    pub vm: &'static Vm<Hosted>,
    /// The one with subscriptions.
    pub space: &'static Space<'static>,
    /// One without, in which CPU 1 is active.
    pub other: &'static Space<'static>,
    filler: &'static Space<'static>,
    pub object: SharedObject<'static, Hosted>,
    pub subpool: HugetlbSubpool<'static, Hosted>,
    pub subscription: Subscription<'static, Hosted>,
    props: Mutex<Props>,
    cpu_1: Mutex<(Sender<()>, Receiver<()>)>,
}

/// The objects that are made anew for each notice.
#[derive(Default)]
struct Props {
    sharers: Vec<Space<'static>>,
    subscription: Option<Subscription<'static, Hosted>>,
    pin: Option<PinMut<'static, Hosted>>,
    object: Option<SharedObject<'static, Hosted>>,
    space: Option<Space<'static>>,
    /// To be released, with its subscription.
    released: Option<Space<'static>>,
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

impl Stage {
    /// Of a new machine, whose CPU 0 the calling thread has to be.
    pub fn new(vm: &'static Vm<Hosted>) -> &'static Stage {
        let [space, other, filler] = [(); 3].map(|()| leak(vm.new_space().unwrap()));
        // Huge pages of zeroes would be split when memory is short.
        filler.set_thp_disable(true);
        let object = vm.new_shared_object(8 * PAGE).unwrap();
        object.write(0, &[1; 4 * PAGE as usize]).unwrap();
        let subpool = vm.new_hugetlb_subpool(Order::PMD, SubpoolLimits::default()).unwrap();
        let subscription = space.subscribe();
        let cpu_1 = Mutex::new(second_cpu(vm, space, other));
        leak(Stage { vm, space, other, filler, object, subpool, subscription, props: Mutex::default(), cpu_1 })
    }

    fn props(&self) -> MutexGuard<'_, Props> {
        self.props.lock().unwrap()
    }

    /// A frame of a huge page that two spaces share.
    pub fn other_huge(&self) -> Pfn {
        self.other.translate_at_rest(AT).unwrap().pfn
    }

    /// The frame of the page that operations change.
    fn told_frame(&self) -> Pfn {
        self.space.translate_at_rest(BASE).unwrap().pfn
    }

    pub fn take_subscription(&self) -> Subscription<'static, Hosted> {
        self.props().subscription.take().unwrap()
    }

    pub fn with_pin(&self, f: impl Fn(&PinMut<'static, Hosted>)) {
        self.props().pin.as_ref().into_iter().for_each(f);
    }

    pub fn drop_pin(&self) {
        drop(self.props().pin.take());
    }

    pub fn drop_object(&self) {
        let object = self.props().object.take();
        drop(object);
    }

    pub fn drop_space(&self) {
        let space = self.props().space.take();
        drop(space);
    }

    /// Makes everything as it is before an operation that tells at that moment.
    pub fn prepare(&self, moment: Moment, is_full: bool) {
        self.make_room();
        self.clear();
        self.prepare_other();
        self.prepare_told(moment);
        let mut props = self.props();
        let props = &mut *props;
        props.subscription.get_or_insert_with(|| self.space.subscribe());
        props.object.get_or_insert_with(|| self.vm.new_shared_object(PAGE).unwrap());
        props.space.get_or_insert_with(|| self.vm.new_space().unwrap());
        props.pin = Some(self.other.pin_page_mut(FRESH, Term::Short).unwrap());
        if is_full {
            self.fill(moment.nr_frames());
        }
    }

    fn make_room(&self) {
        self.filler.munmap(FILLER, 2 * ARENA).unwrap();
    }

    fn clear(&self) {
        let mut props = self.props();
        (props.pin, props.released) = (None, None);
        props.sharers.clear();
        for space in [self.space, self.other] {
            for at in [BASE, MOVED, FRESH] {
                space.munmap(at, NR_PAGES * PAGE).unwrap();
            }
            space.munmap(AT, 2 * HUGE).unwrap();
        }
    }

    /// A page that is shared, one that is not, an empty one; a huge page that is
    /// shared, one that is mostly zero.
    fn prepare_other(&self) {
        let s = self.other;
        map(s, BASE, NR_PAGES * PAGE);
        map(s, AT, HUGE);
        [BASE, BASE + PAGE, AT].into_iter().for_each(|at| s.write(at, &[1]).unwrap());
        self.props().sharers.push(s.fork().unwrap());
        s.write(BASE + PAGE, &[1]).unwrap();
        map(s, AT + HUGE, HUGE);
        s.write(AT + HUGE, &[1]).unwrap();
        map(s, FRESH, PAGE);
        s.write(FRESH, &[1]).unwrap();
    }

    fn prepare_told(&self, moment: Moment) {
        let s = self.space;
        map(s, BASE, NR_PAGES * PAGE);
        map(s, FRESH, NR_PAGES * PAGE);
        map(s, MOVED, NR_PAGES * PAGE);
        (0..4).for_each(|page| s.write(BASE + page * PAGE, &[1]).unwrap());
        s.write(MOVED + PAGE, &[1]).unwrap();
        if moment.is_of(Why::Protect) {
            // The tree keeps the nodes that two more VMAs take.
            s.mprotect(BASE, PAGE, READ).unwrap();
            s.mprotect(BASE, PAGE, RW).unwrap();
        }
        if moment.is_of(Why::Copy) {
            self.props().sharers.push(s.fork().unwrap());
        }
        if moment.is_of(Why::Collapse) {
            map(s, AT, HUGE);
            s.write(AT, &[1]).unwrap();
            // Split, and in order: no frame is needed to collapse it.
            s.mprotect(AT, PAGE, READ).unwrap();
            s.mprotect(AT, PAGE, RW).unwrap();
        }
        if moment == Moment::Release {
            let space = self.vm.new_space().unwrap();
            drop(space.subscribe());
            self.props().released = Some(space);
        }
    }

    /// Uses all frames but `nr_left`.
    fn fill(&self, nr_left: usize) {
        let s = self.filler;
        map(s, FILLER, 2 * ARENA);
        let pages = || (FILLER..FILLER + 2 * ARENA).step_by(PAGE as usize);
        let nr_pages = pages().take_while(|at| s.handle_fault(*at, Access::Write).is_ok()).count();
        pages().take(nr_pages).skip(nr_pages - nr_left).for_each(|at| s.madvise(at, PAGE, DONTNEED).unwrap());
    }

    /// The operation that tells at that moment. Whether it was done is not told here:
    /// it may lack frames.
    pub fn tell(&self, moment: Moment) {
        let s = self.space;
        match moment {
            Moment::Start(why) | Moment::End(why) => match why {
                Why::Unmap => s.munmap(BASE, PAGE).unwrap(),
                Why::Discard => s.madvise(BASE, PAGE, DONTNEED).unwrap(),
                Why::Protect => s.mprotect(BASE, PAGE, READ).unwrap(),
                Why::Move => _ = s.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, MOVED).unwrap(),
                Why::Fork => drop(s.fork()),
                Why::Copy => assert_eq!(s.handle_fault(BASE, Access::Write), Ok(FaultDone::Copied)),
                Why::Migrate => assert_eq!(self.vm.migrate_frame(self.told_frame()).ok(), Some(self.told_frame())),
                Why::Poison => assert_eq!(self.vm.poison_frame(self.told_frame()), Ok(1)),
                Why::Collapse => s.collapse(AT).unwrap(),
                Why::Clean => s.madvise(BASE, PAGE, FREE).unwrap(),
                _ => unreachable!(),
            },
            Moment::Young => assert_eq!(s.test_young(BASE, PAGE), 1),
            Moment::Release => {
                let released = self.props().released.take();
                drop(released);
            }
        }
    }

    /// Nothing stays owned, locked, counted or marked.
    pub fn everything_works(&self, moment: Moment) {
        self.make_room();
        let mut bytes = [0; 4 * PAGE as usize];
        self.object.read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 1), "a refused call has changed the object");
        [BASE, BASE + PAGE, BASE + 2 * PAGE, AT, AT + HUGE].iter().for_each(|at| self.other.write(*at, &[2]).unwrap());
        self.space.write(FRESH, &[2]).unwrap();
        {
            let cpu_1 = self.cpu_1.lock().unwrap();
            cpu_1.0.send(()).unwrap();
            cpu_1.1.recv().unwrap();
        }
        self.prepare(moment, false);
        self.tell(moment);
        drop(self.space.fork().unwrap());
        self.clear();
        drop(self.vm.new_space().unwrap());
    }

    pub fn check(&self) {
        let props = self.props();
        let spaces = [self.space, self.other, self.filler].into_iter().chain(&props.space).chain(&props.released);
        check(self.vm, &spaces.collect::<Vec<_>>());
    }
}

fn map(space: &Space<'_>, at: u64, len: u64) {
    assert_eq!(space.mmap(at, len, RW, PRIVATE | FIXED), Ok(at));
}

/// CPU 1, which runs `other` all the time, and makes some faults when it is told to.
fn second_cpu(
    vm: &'static Vm<Hosted>,
    space: &'static Space<'static>,
    other: &'static Space<'static>,
) -> (Sender<()>, Receiver<()>) {
    let (begin, begun) = channel();
    let (end, ended) = channel();
    thread::spawn(move || {
        let cpu = vm.machine().bind(CpuId(1)).unwrap();
        let running = cpu.enter(other).unwrap();
        end.send(()).unwrap();
        while begun.recv().is_ok() {
            for at in [BASE, BASE + 3 * PAGE, AT, AT + HUGE + PAGE] {
                running.write_u64(at, 3).unwrap();
            }
            space.handle_fault(FRESH + PAGE, Access::Write).unwrap();
            end.send(()).unwrap();
        }
    });
    ended.recv().unwrap();
    (begin, ended)
}

/// Huge pages that fork shares are split by a write; those that are mostly zero are
/// split when memory is short.
pub fn machine() -> &'static Vm<Hosted> {
    let khugepaged = HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(400);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(CowHuge::Split).with_khugepaged(khugepaged);
    let config = HostedConfig::default().with_nr_cpus(2).with_arena_bytes(ARENA);
    leak(Vm::new(Hosted::new(config).unwrap(), Tunables::default().with_thp(thp)).unwrap())
}
