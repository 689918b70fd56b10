//! Room in the storage of a file that holes give back, and that the storage keeps for what stays.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, content, map, orders, touch};
use common::storage::fill_from;
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, Advice, CpuId, FaultError, FileWrite, Filling, HoleRefused, StoreRefused, WriteError, Writing,
};
use softfault_host::{HostFile, HostFill};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

const NR_PAGES: u64 = 8;
const ALL: Range<u64> = 0..u64::MAX;

/// A sparse file: a page needs room before it is written.
#[derive(Default)]
struct Sparse {
    bytes: Mutex<Vec<u8>>,
    /// The pages that have room, and the most there can be.
    rooms: Mutex<BTreeSet<u64>>,
    most: AtomicU64,
    nr_asked: AtomicU64,
    /// Called once after room was found, before the answer.
    after_room: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE..bytes.end.div_ceil(PAGE)
}

impl HostFile for Sparse {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        fill_from(&self.bytes, fill)
    }

    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        let range = write.offset_bytes()..write.offset_bytes() + write.len_bytes();
        let rooms = self.rooms.lock().unwrap();
        if !pages_of(&range).all(|page| rooms.contains(&page)) {
            return Writing::Ended(write, Err(WriteError));
        }
        self.bytes.lock().unwrap()[range.start as usize..range.end as usize].copy_from_slice(bytes);
        Writing::Ended(write, Ok(()))
    }

    fn may_store(&self, pages: Range<u64>) -> Result<(), StoreRefused> {
        self.nr_asked.fetch_add(1, SeqCst);
        let mut rooms = self.rooms.lock().unwrap();
        let nr_more = pages.clone().filter(|page| !rooms.contains(page)).count();
        if (rooms.len() + nr_more) as u64 > self.most.load(SeqCst) {
            return Err(StoreRefused);
        }
        rooms.extend(pages);
        drop(rooms);
        let after = self.after_room.lock().unwrap().take();
        if let Some(after) = after {
            after();
        }
        Ok(())
    }

    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        self.bytes.lock().unwrap()[bytes.start as usize..bytes.end as usize].fill(0);
        Ok(())
    }

    fn end_hole(&self, _: Range<u64>, gone: Range<u64>) {
        self.rooms.lock().unwrap().retain(|page| !pages_of(&gone).contains(page));
    }
}

/// A file of eight pages of 1, mapped, in folios of at least so many pages.
fn sparse<'vm>(w: &World<'vm>, least: u8, most: u64, size_bytes: u64) -> (Arc<Sparse>, Object<'vm>) {
    let bytes = Mutex::new(vec![1; (NR_PAGES * PAGE) as usize]);
    let storage = Arc::new(Sparse { bytes, most: AtomicU64::new(most), ..Sparse::default() });
    let orders = if least == 0 { FolioOrders::BASE } else { orders(least, least) };
    let object = w.vm.new_file_object(size_bytes, orders, w.vm.machine().add_file(storage.clone())).unwrap();
    map(w.space, BASE, NR_PAGES, &object, 0);
    (storage, object)
}

fn store(w: &World<'_>, page: u64, byte: u8) {
    w.space.write(BASE + page * PAGE, &[byte]).unwrap();
}

/// A store to the hole is not asked for, as its folio is dirty. The room of what has left is another page's.
#[test]
fn a_hole_keeps_the_room_of_what_stays() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = sparse(w, 2, 4, NR_PAGES * PAGE);
        store(w, 0, 2);
        w.space.madvise(BASE + PAGE, 2 * PAGE, Advice::Remove).unwrap();
        let before = storage.nr_asked.load(SeqCst);
        store(w, 1, 3);
        assert_eq!(storage.nr_asked.load(SeqCst), before, "the folio is dirty");
        assert_eq!(touch(w.space, BASE + 4 * PAGE), Err(FaultError::NoRoom));
        assert_eq!(object.write_back(ALL), Ok(()));
        assert_eq!([0, 1, 2, 3].map(|page| storage.bytes.lock().unwrap()[(page * PAGE) as usize]), [2, 3, 0, 1]);
        w.space.madvise(BASE, 4 * PAGE, Advice::Remove).unwrap();
        store(w, 4, 4);
        assert_eq!(object.write_back(ALL), Ok(()));
        w.space.munmap(BASE, NR_PAGES * PAGE).unwrap();
    });
}

/// Nothing behind the end was in the storage. So the folio need not be written, for which there may be no room; what a program has
/// stored there is zero all the same.
#[test]
fn a_clean_folio_stays_clean_when_its_file_grows() {
    in_each_setup(1, 16 << 20, |w| {
        for least in [0, 1] {
            let (storage, object) = sparse(w, least, 1, 100);
            w.space.write(BASE + 50, &[2; 100]).unwrap();
            assert_eq!(object.write_back(ALL), Ok(()));
            storage.bytes.lock().unwrap()[100..].fill(0);
            object.set_size_bytes(2 * PAGE);
            assert!(!object.object_page_state(0).unwrap().dirty);
            assert_eq!(content::<3>(&object, 98), [2, 2, 0]);
            assert_eq!(content::<1>(&object, PAGE), [0]);
            assert_eq!(touch(w.space, BASE).is_ok(), least == 0, "the folio has one page more");
            storage.most.store(2, SeqCst);
            store(w, 1, 3);
            assert_eq!((object.write_back(ALL), storage.bytes.lock().unwrap()[PAGE as usize]), (Ok(()), 3));
            w.space.munmap(BASE, NR_PAGES * PAGE).unwrap();
        }
    });
}

/// Another store to the page is asked for before the first one has made it dirty, and there is room for one page.
#[test]
fn two_questions_are_for_the_same_room() {
    in_setup(Setup::PLAIN, 2, 16 << 20, |w| {
        let (storage, object) = sparse(w, 0, 1, NR_PAGES * PAGE);
        w.space.handle_fault(BASE, Access::Read).unwrap();
        thread::scope(|scope| {
            let (found, may_answer) =
                (&*Box::leak(Box::new(AtomicU64::new(0))), &*Box::leak(Box::new(AtomicU64::new(0))));
            *storage.after_room.lock().unwrap() = Some(Box::new(|| {
                found.store(1, SeqCst);
                wait_until(|| may_answer.load(SeqCst) == 1);
            }));
            let first = scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                w.space.write(BASE, &[2]).unwrap();
            });
            wait_until(|| found.load(SeqCst) == 1);
            let second = touch(w.space, BASE);
            may_answer.store(1, SeqCst);
            first.join().unwrap();
            assert!(second.is_ok(), "{second:?}");
        });
        assert_eq!((object.write_back(ALL), storage.bytes.lock().unwrap()[0]), (Ok(()), 2));
        assert_eq!(storage.nr_asked.load(SeqCst), 2);
    });
}
