//! Fills and writes of one `Vm` in calls of another one: no byte is touched, and the values come back.

use super::*;
use common::objects::Object;
use common::storage::{Writes, storage_of};
use softfault::policy::folio::FolioOrders;
use softfault::{BytesRefused, FileFill, FileWrite, Filling, ForeignFill, ForeignWrite, Writing};
use softfault_host::{HostFile, HostFill};
use std::sync::{Arc, Mutex};

/// Runs `f` on CPU 0 of the machine, on a thread of its own.
pub fn on<T: Send>(vm: &Vm<Hosted>, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| {
        let thread = threads.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            f()
        });
        thread.join().unwrap()
    })
}

/// A fill for each free frame of the machine.
fn fills_of_all_frames(object: &Object<'_>) -> Vec<FileFill> {
    (0..).map_while(|page| object.begin_install(page..page + 1).ok()).collect()
}

#[test]
fn a_fill_names_frames_of_its_own_vm() {
    let (a, b) = (Setup::PLAIN.vm(1, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let _cpu = a.machine().bind(CpuId(0)).unwrap();
    let object = a.new_explicit_object(4096 * PAGE, FolioOrders::BASE).unwrap();
    let mut fills = fills_of_all_frames(&object);
    assert!(fills.len() > 1000, "most of its frames: {}", fills.len());
    let mut fills = on(&b, || {
        let space = b.new_space().unwrap();
        space.mmap(BASE, 500 * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..500).for_each(|page| space.write(BASE + page * PAGE, &[7; PAGE as usize]).unwrap());
        let refused = |mut fill: FileFill| {
            assert_eq!(b.write_fill(&mut fill, 0, &[0xff; PAGE as usize]), Err(BytesRefused::OtherVm));
            let mut bytes = [1; 8];
            assert_eq!((b.read_fill(&fill, 0, &mut bytes), bytes), (Err(BytesRefused::OtherVm), [1; 8]));
            let ForeignFill(fill) = b.filled(fill, Ok(())).unwrap_err();
            fill
        };
        // On a thread that is no CPU.
        let fills: Vec<_> =
            thread::scope(|threads| threads.spawn(|| fills.drain(..).map(refused).collect()).join().unwrap());
        let mut bytes = [0; PAGE as usize];
        let is_whole = |page| space.read(BASE + page * PAGE, &mut bytes).is_ok() && bytes == [7; PAGE as usize];
        assert!((0..500).all(is_whole));
        check(&b, &[&space]);
        fills
    });
    for (page, fill) in fills.iter_mut().enumerate() {
        let mut bytes = [1; 8];
        assert_eq!((a.read_fill(fill, PAGE - 8, &mut bytes), bytes), (Ok(()), [0; 8]), "nobody has stored to it");
        for offset in [1, PAGE, u64::MAX, u64::MAX - 4, 1 << 63] {
            assert_eq!(a.write_fill(fill, offset, &[9; PAGE as usize]), Err(BytesRefused::Beyond), "{page}");
            assert_eq!(a.read_fill(fill, offset, &mut [0; PAGE as usize]), Err(BytesRefused::Beyond), "{page}");
        }
        assert_eq!(a.write_fill(fill, u64::MAX, &[]), Err(BytesRefused::Beyond));
        a.write_fill(fill, PAGE - 3, &[page as u8; 3]).unwrap();
    }
    fills.into_iter().for_each(|fill| a.filled(fill, Ok(())).unwrap());
    let mut bytes = [0; 4];
    assert_eq!((object.read(9 * PAGE - 4, &mut bytes), bytes), (4, [0, 8, 8, 8]));
    check(&a, &[]);
}

/// A write of a page of threes that stays under way; the page has left its object.
fn write_under_way(a: &Vm<Hosted>) -> FileWrite {
    let (storage, object) = storage_of(a, PAGE, FolioOrders::BASE);
    object.write(0, &[3; PAGE as usize]).unwrap();
    storage.set(Writes::Stay);
    thread::scope(|threads| {
        threads.spawn(|| {
            let _cpu = a.machine().bind(CpuId(1)).unwrap();
            object.write_back(0..1).unwrap();
        });
        wait_until(|| storage.nr_kept() == 1);
        object.discard(0..1);
    });
    storage.take()
}

#[test]
fn a_write_names_frames_of_its_own_vm() {
    let (a, b) = (Setup::PLAIN.vm(2, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let _cpu = a.machine().bind(CpuId(0)).unwrap();
    let nr_free = a.vmstat().nr_free_pages;
    let write = write_under_way(&a);
    let mut bytes = [1; 8];
    assert_eq!((b.read_write(&write, 0, &mut bytes), bytes), (Err(BytesRefused::OtherVm), [1; 8]));
    let ForeignWrite(write) = b.written(write, Ok(())).unwrap_err();
    on(&b, || check(&b, &[]));
    for offset in [1, PAGE, u64::MAX, u64::MAX - 4] {
        assert_eq!(a.read_write(&write, offset, &mut [0; PAGE as usize]), Err(BytesRefused::Beyond));
    }
    let mut byte = [0];
    assert_eq!((a.read_write(&write, 0, &mut byte), byte), (Ok(()), [3]));
    a.written(write, Ok(())).unwrap();
    check(&a, &[]);
    assert_eq!(a.vmstat().nr_free_pages, nr_free);
}

/// A file that keeps what it is asked for, and answers with something else.
struct Mixed {
    kept: Mutex<(Option<FileFill>, Option<FileWrite>)>,
    others: Mutex<(Option<FileFill>, Option<FileWrite>)>,
}

impl HostFile for Mixed {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        self.kept.lock().unwrap().0 = Some(fill.keep());
        self.others.lock().unwrap().0.take().map_or(Filling::UnderWay, |other| Filling::Ended(other, Ok(())))
    }
    fn write_back(&self, write: FileWrite, _: &[u8]) -> Writing {
        self.kept.lock().unwrap().1 = Some(write);
        self.others.lock().unwrap().1.take().map_or(Writing::UnderWay, |other| Writing::Ended(other, Ok(())))
    }
}

#[test]
fn an_answer_of_another_vm_ends_nothing() {
    let (a, b) = (Setup::PLAIN.vm(2, 8 << 20), Setup::PLAIN.vm(2, 8 << 20));
    let others = on(&a, || {
        let object = a.new_explicit_object(PAGE, FolioOrders::BASE).unwrap();
        (object.begin_install(0..1).ok(), Some(write_under_way(&a)))
    });
    let file = Arc::new(Mixed { kept: Mutex::default(), others: Mutex::new(others) });
    let id = b.machine().add_file(file.clone());
    on(&b, || {
        let object = b.new_file_object(PAGE, FolioOrders::BASE, id).unwrap();
        let run = |call: &(dyn Fn() + Sync), end: &dyn Fn() -> bool| {
            thread::scope(|threads| {
                threads.spawn(|| {
                    let _cpu = b.machine().bind(CpuId(1)).unwrap();
                    call();
                });
                wait_until(end);
            });
        };
        let filled = || file.kept.lock().unwrap().0.take().is_some_and(|fill| b.filled(fill, Ok(())).is_ok());
        run(&|| object.write(0, &[5]).unwrap(), &filled);
        let written = || file.kept.lock().unwrap().1.take().is_some_and(|write| b.written(write, Ok(())).is_ok());
        run(&|| object.write_back(0..1).unwrap(), &written);
        check(&b, &[]);
    });
    let others = file.others.lock().unwrap();
    assert!(others.0.is_none() && others.1.is_none(), "they were answers");
}

/// The machine serves another `Vm`, whose frames have the same numbers.
#[test]
fn a_fill_of_a_vm_that_has_ended_names_nothing() {
    let a = Setup::PLAIN.vm(2, 8 << 20);
    let (mut fill, write) = on(&a, || {
        let object = a.new_explicit_object(PAGE, FolioOrders::BASE).unwrap();
        (object.begin_install(0..1).unwrap(), write_under_way(&a))
    });
    let b = Vm::new(a.into_machine(), Tunables::default()).unwrap();
    on(&b, || {
        assert_eq!(b.write_fill(&mut fill, 0, &[1]), Err(BytesRefused::OtherVm));
        assert_eq!(b.read_fill(&fill, 0, &mut [1]), Err(BytesRefused::OtherVm));
        assert_eq!(b.read_write(&write, 0, &mut [1]), Err(BytesRefused::OtherVm));
        assert!(b.filled(fill, Ok(())).is_err() && b.written(write, Ok(())).is_err());
        check(&b, &[]);
    });
}
