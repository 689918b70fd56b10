//! Calls on objects, subpools, fills and writes.

use super::*;
use softfault::{BytesRefused, SubpoolLimits};

/// Pages from each of the numbers to each.
fn ranges(name: &str, mut f: impl FnMut(std::ops::Range<u64>)) {
    pairs(name, |start, end| f(start..end));
}

fn call_each(w: &Here<'_, '_>, object: &Object<'_>) {
    let mut bytes = [3; 2 * PAGE as usize];
    call("SharedObject::id", || assert!(object.id() != softfault::ObjectId::NONE));
    call("SharedObject::size_bytes", || object.size_bytes());
    each("SharedObject::read", |offset| _ = object.read(offset, &mut bytes));
    each("SharedObject::write", |offset| _ = object.write(offset, &bytes));
    each("SharedObject::install", |page| _ = object.install(page, &bytes));
    ranges("SharedObject::begin_install", |pages| {
        _ = object.begin_install(pages).map(|fill| w.vm.filled(fill, Ok(())).unwrap());
    });
    each("SharedObject::begin_evict", |page| {
        _ = object.begin_evict(page).map(|fill| w.vm.filled(fill, Ok(())).unwrap());
    });
    ranges("SharedObject::evict", |pages| _ = object.evict(pages));
    ranges("SharedObject::zero", |bytes| _ = object.zero(bytes));
    ranges("SharedObject::next_resident", |pages| _ = object.next_resident(pages));
    ranges("SharedObject::next_poisoned", |pages| _ = object.next_poisoned(pages));
    call("SharedObject::mark_untouched", || object.mark_untouched());
    ranges("SharedObject::touched", |pages| object.touched(pages, &mut |_| {}));
    ranges("SharedObject::write_back", |pages| _ = object.write_back(pages));
    ranges("SharedObject::allocate", |pages| _ = object.allocate(pages));
    ranges("SharedObject::reserve", |pages| _ = object.reserve(pages));
    ranges("SharedObject::extend", |pages| _ = object.extend(pages));
    each("SharedObject::free_tail_descs", |page| _ = object.free_tail_descs(page));
    each("SharedObject::restore_tail_descs", |page| _ = object.restore_tail_descs(page));
    call("SharedObject::is_mapped", || object.is_mapped());
    call("SharedObject::nr_mapped_pages", || object.nr_mapped_pages());
    call("SharedObject::nr_writable_pages", || object.nr_writable_pages());
    call("SharedObject::nr_resident_pages", || object.nr_resident_pages());
    call("SharedObject::nr_swapped_pages", || object.nr_swapped_pages());
    ranges("SharedObject::discard", |pages| object.discard(pages));
    ranges("SharedObject::make_hole", |bytes| _ = object.make_hole(bytes));
    each("SharedObject::set_size_bytes", |size| object.set_size_bytes(size));
}

#[test]
fn objects() {
    with_others(|w| {
        let file = w.vm.machine().add_file(std::sync::Arc::new(vec![9; 3 * PAGE as usize]));
        let orders = FolioOrders::new(Order(0), Order(9)).unwrap();
        call_each(w, &w.vm.new_shared_object(8 * PAGE).unwrap());
        call_each(w, &w.vm.new_shared_object_of(8 * PAGE, orders).unwrap());
        call_each(w, &w.vm.new_file_object(3 * PAGE, FolioOrders::BASE, file).unwrap());
        call_each(w, &w.vm.new_explicit_object(8 * PAGE, FolioOrders::new(Order(1), Order(2)).unwrap()).unwrap());
        w.vm.set_nr_hugepages(Order::PMD, 2).unwrap();
        call_each(w, &w.vm.new_hugetlb_object(2 << 21, Order::PMD).unwrap());
        let limits = SubpoolLimits::default().with_most(Some(1));
        let subpool = w.vm.new_hugetlb_subpool(Order::PMD, limits).unwrap();
        each("HugetlbSubpool::new_object", |size| _ = subpool.new_object(size));
        call_each(w, &subpool.new_object(2 << 21).unwrap());
        call("HugetlbSubpool::order", || assert_eq!(subpool.order(), Order::PMD));
        call("HugetlbSubpool::limits", || assert_eq!(subpool.limits(), limits));
        call("HugetlbSubpool::nr_used", || subpool.nr_used());
        drop(subpool);
        w.vm.set_nr_hugepages(Order::PMD, 0).unwrap();
    });
}

/// A file that keeps one write.
#[derive(Default)]
struct Keeps(std::sync::Mutex<Option<softfault::FileWrite>>);

impl softfault_host::HostFile for Keeps {
    fn fill(&self, mut fill: softfault_host::HostFill<'_>) -> softfault::Filling {
        call("HostFill::bytes", || fill.bytes().fill(1));
        call("HostFill::end", || fill.end(Ok(())))
    }
    fn write_back(&self, write: softfault::FileWrite, _: &[u8]) -> softfault::Writing {
        *self.0.lock().unwrap() = Some(write);
        softfault::Writing::UnderWay
    }
}

#[test]
fn fills_and_writes() {
    with_others(|w| {
        let mut fill = w.others.fill.take().unwrap();
        each("Vm::write_fill", |at| assert_eq!(w.vm.write_fill(&mut fill, at, &[1]), Err(BytesRefused::OtherVm)));
        each("Vm::read_fill", |at| assert_eq!(w.vm.read_fill(&fill, at, &mut [1]), Err(BytesRefused::OtherVm)));
        let softfault::ForeignFill(fill) = call("Vm::filled", || w.vm.filled(fill, Ok(())).unwrap_err());
        call("FileFill::object", || assert_eq!(fill.object(), w.others.object.id()));
        call("FileFill::file", || fill.file());
        call("FileFill::offset_bytes", || assert_eq!(fill.offset_bytes(), 0));
        call("FileFill::len_bytes", || assert_eq!(fill.len_bytes(), PAGE));
        call("FileFill::first_frame", || fill.first_frame());
        call("FileFill::nr_frames", || assert_eq!(fill.nr_frames(), 1));
        call("FileFill::is_dirty", || assert!(!fill.is_dirty()));
        w.others.fill = Some(fill);
        let file = std::sync::Arc::new(Keeps::default());
        let id = w.vm.machine().add_file(file.clone());
        let object = w.vm.new_file_object(PAGE, FolioOrders::BASE, id).unwrap();
        object.write(0, &[1]).unwrap();
        thread::scope(|threads| {
            threads.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                object.write_back(0..1).unwrap();
            });
            wait_until(|| file.0.lock().unwrap().is_some());
            let write = file.0.lock().unwrap().take().unwrap();
            each("Vm::read_write", |at| _ = w.vm.read_write(&write, at, &mut [0; 9]));
            call("FileWrite::file", || assert_eq!(write.file(), id));
            call("FileWrite::offset_bytes", || assert_eq!(write.offset_bytes(), 0));
            call("FileWrite::len_bytes", || assert_eq!(write.len_bytes(), PAGE));
            call("FileWrite::first_frame", || write.first_frame());
            call("FileWrite::nr_frames", || assert_eq!(write.nr_frames(), 1));
            call("Vm::written", || w.vm.written(write, Ok(())).unwrap());
        });
    });
}
