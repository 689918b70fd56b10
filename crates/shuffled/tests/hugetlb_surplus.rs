//! Surplus pages of a pool: reservations that want all the memory there is, beside others that want some of it. A call is refused
//! only what is not there: the pages of those that were granted, and its own, are more than memory has.

use common::{Shuffled, free, run, shuffled, vm};
use shuttle::rand::Rng;
use softfault_shuffled::policy::folio::FolioOrders;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{Order, SharedObject, Tunables, Vm};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Two blocks are free beside what the machine needs.
const NR_FRAMES: u64 = 1536;
const NR_FREE: u64 = 2;
const HUGE: u64 = 512 * 4096;

type Machine = Shuffled<X86_64>;
type Object = SharedObject<'static, Machine>;

/// A call that asks for a number of blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Ask {
    /// For surplus pages of the pool.
    Pool(u64),
    /// For a folio of an object that has no smaller ones.
    Folio,
}

impl Ask {
    const fn nr(self) -> u64 {
        match self {
            Ask::Pool(nr) => nr,
            Ask::Folio => 1,
        }
    }

    /// The object whose pages are asked for: its nodes are there before.
    fn object(self, vm: &'static Vm<Machine>) -> &'static Object {
        let size_bytes = self.nr() * HUGE;
        let object = match self {
            Ask::Pool(_) => vm.new_hugetlb_object(size_bytes, Order::PMD).unwrap(),
            Ask::Folio => {
                vm.new_shared_object_of(size_bytes, FolioOrders::new(Order::PMD, Order::PMD).unwrap()).unwrap()
            }
        };
        let object: &Object = Box::leak(Box::new(object));
        self.of(object);
        object.set_size_bytes(0);
        object.set_size_bytes(size_bytes);
        object
    }

    fn of(self, object: &Object) -> bool {
        match self {
            Ask::Pool(nr) => object.reserve(0..nr * 512).is_ok(),
            Ask::Folio => object.write(0, b"x").is_ok(),
        }
    }
}

/// All ask at once, with so many schedules.
fn ask(schedules: usize, asks: &'static [Ask]) {
    shuffled(schedules, move || {
        let vm = vm(asks.len(), NR_FRAMES, Tunables::default());
        vm.set_nr_overcommit_hugepages(Order::PMD, 4).unwrap();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let objects: Vec<&Object> = asks.iter().map(|ask| ask.object(vm)).collect();
        let actor = |(ask, object): (Ask, &'static Object)| -> Box<dyn FnOnce() + Send> {
            let answers = Arc::clone(&answers);
            Box::new(move || {
                let is_granted = ask.of(object);
                answers.lock().unwrap().push((ask, is_granted));
            })
        };
        run(asks.len(), asks.iter().copied().zip(objects.iter().copied()).map(actor).collect());
        let answers = answers.lock().unwrap();
        let nr_granted: u64 = answers.iter().filter(|(_, is_granted)| *is_granted).map(|(ask, _)| ask.nr()).sum();
        let is_false = |(ask, is_granted): &&(Ask, bool)| !is_granted && nr_granted + ask.nr() <= NR_FREE;
        assert_eq!(answers.iter().find(is_false), None, "a false out-of-memory: {answers:?}");
        let of_pool = answers.iter().filter(|(ask, is_granted)| *is_granted && *ask != Ask::Folio);
        let nr_reserved = of_pool.map(|(ask, _)| ask.nr()).sum();
        assert_eq!(free(vm), (nr_reserved, nr_reserved, nr_reserved), "a page that nobody needs stays");
        objects.iter().for_each(|object| object.set_size_bytes(0));
        assert_eq!(free(vm), (0, 0, 0));
        vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
}

/// Each wants all that is free, and one of them gets it.
#[test]
fn one_of_two_reservations_is_granted() {
    ask(1500, &[Ask::Pool(2), Ask::Pool(2)]);
    ask(600, &[Ask::Pool(2), Ask::Pool(2), Ask::Pool(1)]);
}

/// It takes no page, also for a moment.
#[test]
fn a_reservation_that_is_too_large_refuses_nobody() {
    ask(400, &[Ask::Pool(4), Ask::Pool(2)]);
    ask(400, &[Ask::Pool(3), Ask::Folio, Ask::Folio]);
}

/// A reservation loses a block to the one, and gives the other block back: the other one waits for it.
#[test]
fn a_reservation_that_is_refused_in_the_middle_refuses_nobody() {
    ask(1500, &[Ask::Pool(2), Ask::Folio, Ask::Folio]);
    ask(600, &[Ask::Pool(2), Ask::Folio, Ask::Pool(1)]);
}

/// The pool has one page, and memory another one. The size of the pool changes while a reservation wants both: where a page goes
/// from the one to the other it is not missing.
#[test]
fn a_pool_that_changes_refuses_nobody() {
    for nr in [0, 2] {
        shuffled(1000, move || {
            let vm = vm(2, NR_FRAMES, Tunables::default());
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
            vm.set_nr_overcommit_hugepages(Order::PMD, 4).unwrap();
            let object = Ask::Pool(2).object(vm);
            let resize = move || assert_eq!(vm.set_nr_hugepages(Order::PMD, nr), Ok(nr));
            run(2, vec![Box::new(move || object.reserve(0..1024).unwrap()), Box::new(resize)]);
            assert_eq!(free(vm), (2, 2, 2));
            object.set_size_bytes(0);
            assert_eq!(free(vm), (nr, nr, 0));
            vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        });
    }
}

/// The page of the pool is put back while a reservation brings another one: one of them goes.
#[test]
fn a_page_comes_back_while_a_surplus_page_comes() {
    shuffled(1000, || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let [used, other] = [(); 2].map(|()| Ask::Pool(1).object(vm));
        used.write(0, b"x").unwrap();
        vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        let reserve = move || assert_eq!(other.reserve(0..512), Ok(()));
        run(2, vec![Box::new(reserve), Box::new(move || used.discard(0..512))]);
        assert_eq!(free(vm), (1, 1, 1), "a page that nobody needs stays");
        other.set_size_bytes(0);
        assert_eq!(free(vm), (1, 1, 0));
        vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
}

/// The limit of surplus pages falls while a reservation brings one: it is granted both pages, or it has claimed none of them.
#[test]
fn a_limit_that_falls_leaves_no_claim() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(1000, move || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        let object = Ask::Pool(2).object(vm);
        let is_granted = Arc::new(AtomicU64::new(0));
        let granted = Arc::clone(&is_granted);
        let reserve = move || granted.store(Ask::Pool(2).of(object).into(), Relaxed);
        // At any step of the reservation.
        let fall = move || {
            (0..shuttle::rand::thread_rng().gen_range(0..200)).for_each(|_| shuttle::thread::yield_now());
            vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
        };
        run(2, vec![Box::new(reserve), Box::new(fall)]);
        let is_granted = is_granted.load(Relaxed);
        told[is_granted as usize].fetch_add(1, Relaxed);
        assert_eq!(free(vm), if is_granted == 1 { (2, 2, 2) } else { (1, 1, 0) });
        object.set_size_bytes(0);
        assert_eq!(free(vm), (1, 1, 0));
        vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}
