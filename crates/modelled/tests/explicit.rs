//! I52 for explicit objects: the embedder installs and takes out pages, against faults and removals.
//!
//! Ways to fail: two threads that find a page missing both install it; somebody sleeps for a page that the embedder has
//! given back; a store is in no saved page, and in no page; what was discarded comes back from the embedder.

use common::files::{bytes_of, write};
use common::{Modelled, RW, World, be, beside_pagers, explore, let_parks_block, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{
    AccessError, AddressSpace, EvictError, FaultError, FaultLocking, FillError, InstallError, MapFlags, ObjectPart,
    Order, SharedObject,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;

std::thread_local! {
    /// Bytes that the embedder has saved.
    static SAVED: Cell<Option<[u8; 2]>> = const { Cell::new(None) };
}

/// A folio of that order, which may be cut, mapped; full of ones, or missing.
fn world(order: u8, is_there: bool) -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    SAVED.set(None);
    let (orders, nr_pages) = (FolioOrders::new(Order(0), Order(order)).unwrap(), 1 << order);
    let object: &Object = Box::leak(Box::new(w.vm.new_explicit_object(nr_pages * PAGE, orders).unwrap()));
    let shared = MapFlags::SHARED.union(MapFlags::FIXED);
    w.space.mmap_object(AT * PAGE, nr_pages * PAGE, RW, shared, ObjectPart::new(object)).unwrap();
    install(&w, object).unwrap();
    assert_eq!(read(w.space, 0), Ok(1));
    if !is_there {
        object.discard(0..nr_pages);
    }
    be(0);
    (w, object)
}

fn install(w: &World, object: &Object) -> Result<(), InstallError> {
    let fill = object.begin_install(0..2)?;
    loom::thread::yield_now();
    write(&fill, 1);
    w.vm.filled(fill, Ok(())).unwrap();
    Ok(())
}

fn read(space: &Space, page: u64) -> Result<u8, AccessError> {
    let mut byte = [0];
    space.read((AT + page) * PAGE, &mut byte).map(|()| byte[0])
}

fn is_missing(error: &AccessError) -> bool {
    matches!(error.fault, FaultError::Missing)
}

/// Each thread installs what it finds missing. One of them does, the other sleeps, or finds it done.
#[test]
fn two_faults_on_a_missing_folio() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(0, false);
        let threads = [0, 1].map(|_| {
            let access = move || {
                loop {
                    match read(w.space, 0) {
                        Ok(byte) => return assert_eq!(byte, 1),
                        Err(error) => assert!(is_missing(&error), "{error}"),
                    }
                    match install(&w, object) {
                        Ok(()) | Err(InstallError::AlreadyThere) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            Box::new(access) as Box<dyn FnOnce() + Send>
        });
        run(threads.into());
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 1);
    });
}

/// Takes the folio out and saves it, or gives it back.
fn take_out(w: &World, object: &Object, keeps: bool) {
    match object.begin_evict(0) {
        Ok(fill) => {
            let before = bytes_of::<2>(&fill);
            loom::thread::yield_now();
            assert_eq!(bytes_of::<2>(&fill), before, "stored meanwhile");
            assert!(fill.is_dirty() || before == [1, 1], "a store was missed");
            if !keeps {
                SAVED.set(Some(before));
            }
            w.vm.filled(fill, if keeps { Ok(()) } else { Err(FillError) }).unwrap();
        }
        Err(EvictError::Busy | EvictError::Missing | EvictError::Poisoned) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A store is in the page that the embedder saves, or it is refused as missing, or in the page that is there.
#[test]
fn a_store_against_an_eviction() {
    let_parks_block();
    for keeps in [false, true] {
        explore(1, move || {
            let (w, object) = world(1, true);
            let store = move || match w.space.write((AT + 1) * PAGE, &[2]) {
                Ok(()) => {
                    let saved = SAVED.get().map(|saved| saved[1]);
                    let there = object.nr_resident_pages();
                    assert!(saved == Some(2) || there > 0 || saved.is_none(), "the store is lost: {saved:?}");
                }
                Err(error) => assert!(!keeps && is_missing(&error), "{error}"),
            };
            run(vec![Box::new(store), Box::new(move || take_out(&w, object, keeps))]);
            w.check(&[]);
            let is_there = object.nr_resident_pages() > 0;
            assert!(is_there != SAVED.get().is_some());
            assert!(!is_there || !keeps || read(w.space, 1) == Ok(2));
        });
    }
}

/// A page that is discarded while the embedder has it does not come back, no matter which of the two is first.
#[test]
fn an_eviction_against_a_discard() {
    let_parks_block();
    for page in [0, 1] {
        explore(1, move || {
            let (w, object) = world(1, true);
            run(vec![Box::new(move || take_out(&w, object, true)), Box::new(move || object.discard(page..page + 1))]);
            w.check(&[]);
            assert!(object.nr_resident_pages() < 2 && read(w.space, page).is_err_and(|e| is_missing(&e)));
        });
    }
}

/// An installation begins while the object becomes smaller: the embedder gets a fill with bytes to write, or is refused.
#[test]
fn an_installation_against_a_smaller_size() {
    let_parks_block();
    static NR_BEGUN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    explore(1, || {
        let (w, object) = world(0, false);
        let install = move || match object.begin_install(0..1) {
            Ok(fill) => {
                assert!(fill.len_bytes() > 0, "there is nothing to write");
                NR_BEGUN[1].fetch_add(1, Relaxed);
                w.vm.filled(fill, Ok(())).unwrap();
            }
            Err(InstallError::BeyondObject) => _ = NR_BEGUN[0].fetch_add(1, Relaxed),
            Err(error) => panic!("{error}"),
        };
        run(vec![Box::new(install), Box::new(move || object.set_size_bytes(0))]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
    assert!(NR_BEGUN.iter().all(|nr| nr.load(Relaxed) > 0), "{NR_BEGUN:?}");
}

beside_pagers![two_faults_on_a_missing_folio, an_eviction_against_a_discard];
