//! Calls on a `Vm` and its components.

use super::*;
use softfault::check::Broken;
use softfault::clear::{BatchPlan, ClearOrder, Scratch, Zeroing, calibrate};
use softfault::policy::around::FaultAround;
use softfault::policy::compact::CompactBudget;
use softfault::{Event, FileId, FrameRange, Machine, SubpoolLimits};

/// Frame numbers: of the metadata, of memory, of none.
fn frames(name: &str, vm: &Vm<Hosted>, mut f: impl FnMut(Pfn)) {
    call(name, || {
        (0..vm.nr_frames() as u32).step_by(37).chain([1 << 20, u32::MAX - 1, u32::MAX]).for_each(|pfn| f(Pfn(pfn)))
    });
}

/// Ranges with ends of each kind.
fn ranges(name: &str, mut f: impl FnMut(FrameRange)) {
    let firsts = [0, 1, 511, 4096, 1 << 15, 1 << 16, 1 << 20, u32::MAX];
    let lengths = [0, 1, 512, 1 << 15, 1 << 16, 1 << 32, u64::MAX - 1, u64::MAX];
    call(name, || {
        firsts
            .into_iter()
            .for_each(|first| lengths.into_iter().for_each(|nr| f(FrameRange { first: Pfn(first), nr_frames: nr })));
    });
}

/// All orders.
fn orders(name: &str, f: impl FnMut(Order)) {
    call(name, || (0..=u8::MAX).map(Order).for_each(f));
}

#[test]
fn memory() {
    with_others(|w| {
        let vm = w.vm;
        ranges("Memory::add_memory", |range| _ = vm.add_memory(range));
        ranges("Vm::remove_memory", |range| _ = vm.remove_memory(range));
        ranges("Vm::offline_memory", |range| _ = vm.offline_memory(range));
        ranges("Memory::add_foreign_memory", |range| _ = vm.add_foreign_memory(range));
        ranges("Vm::new_foreign_object", |range| drop(vm.new_foreign_object(range)));
        ranges("Memory::remove_foreign_memory", |range| _ = vm.remove_foreign_memory(range));
        frames("Vm::migrate_frame", vm, |pfn| _ = vm.migrate_frame(pfn));
        frames("Vm::swap_out_frame", vm, |pfn| _ = vm.swap_out_frame(pfn));
        frames("Memory::node_of", vm, |pfn| _ = vm.node_of(pfn));
        each("Memory::idle_pages", |age| _ = vm.idle_pages(age as u32));
        each("Memory::advance_generation", |nr| _ = vm.advance_generation(nr));
        each("Memory::zero_ahead", |nr| _ = vm.zero_ahead(nr));
        orders("Memory::fragmentation", |order| _ = vm.fragmentation(order));
        call("Memory::event", || Event::ALL.iter().for_each(|event| _ = vm.event(*event)));
        call("Memory::generation", || vm.generation());
        call("Memory::initialise_section", || vm.initialise_section());
        call("Memory::nr_blocks_emptied", || vm.nr_blocks_emptied());
        call("Memory::nr_frames", || assert!(vm.nr_frames() >= 4096));
        call("Memory::nr_reserve_pages", || vm.nr_reserve_pages());
        call("Memory::vmstat", || vm.vmstat());
        call("Memory::watermarks", || vm.watermarks());
        each("Vm::shrink_underused", |nr| _ = vm.shrink_underused(nr));
        each("Vm::compact_step", |nr| {
            let budget = CompactBudget::FAULT.with_nr_blocks(nr).with_nr_scanned(nr).with_nr_migrated(nr);
            _ = vm.compact_step(&budget.with_nr_steps(nr).with_nr_mappings(nr));
        });
        call("Vm::poll_compaction_request", || vm.poll_compaction_request());
        frames("Vm::soft_offline_frame", vm, |pfn| _ = pfn.0 > 4000 && vm.soft_offline_frame(pfn).is_ok());
        frames("Vm::poison_frame", vm, |pfn| _ = pfn.0 > 4000 && vm.poison_frame(pfn).is_ok());
        // Not safe to call, and it refuses what it can see.
        let mut counts = vec![0; vm.nr_frames() as usize + 16];
        let mut check = |spaces: &[_]| softfault_testkit::at_rest::check(vm, spaces, &mut counts);
        assert!(matches!(check(&[w.space, &w.others.space]), Err(Broken::BadCall(_))), "a space of another Vm");
        assert!(check(&[w.space, w.space]).is_err(), "one twice");
        assert!(softfault_testkit::at_rest::check(vm, &[w.space], &mut []).is_err());
    });
}

#[test]
fn objects_and_settings() {
    with_others(|w| {
        let vm = w.vm;
        each("Vm::new_shared_object", |size| drop(vm.new_shared_object(size)));
        let of = FolioOrders::new(Order(0), Order(9)).unwrap();
        each("Vm::new_shared_object_of", |size| drop(vm.new_shared_object_of(size, of)));
        pairs("Vm::new_file_object", |size, file| drop(vm.new_file_object(size, of, FileId(file))));
        each("Vm::new_explicit_object", |size| drop(vm.new_explicit_object(size, of)));
        orders("Vm::new_hugetlb_object", |order| {
            NUMBERS.iter().for_each(|size| drop(vm.new_hugetlb_object(*size, order)))
        });
        orders("Vm::new_hugetlb_subpool", |order| {
            for nr in NUMBERS {
                drop(vm.new_hugetlb_subpool(order, SubpoolLimits::default().with_least(nr)));
                drop(vm.new_hugetlb_subpool(order, SubpoolLimits::default().with_most(Some(nr))));
            }
        });
        orders("Vm::set_nr_hugepages", |order| NUMBERS.iter().for_each(|nr| _ = vm.set_nr_hugepages(order, *nr)));
        each("Vm::demote_hugepages", |nr| _ = vm.demote_hugepages(nr));
        orders("Vm::set_nr_overcommit_hugepages", |order| {
            NUMBERS.iter().for_each(|nr| _ = vm.set_nr_overcommit_hugepages(order, *nr));
        });
        orders("Vm::hugetlb_counts", |order| _ = vm.hugetlb_counts(order));
        vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
        vm.set_nr_hugepages(Order::PMD, 0).unwrap();
        each("Vm::set_max_map_count", |nr| vm.set_max_map_count(nr));
        call("Vm::max_map_count", || assert_eq!(vm.max_map_count(), u64::MAX));
        call("Vm::new_space", || drop(vm.new_space().unwrap()));
        call("Base::machine", || assert!(std::ptr::eq(vm.machine(), w.cpu.machine())));
        orders("Base::clear_order", |order| _ = vm.clear_order(order));
        orders("Base::huge_stat", |order| _ = vm.huge_stat(order));
        each("Base::huge_orders", |flags| _ = vm.huge_orders(softfault::VmaFlags::from_bits_truncate(flags)));
        each("Base::set_fault_around", |bytes| _ = FaultAround::from_bytes(bytes).map(|to| vm.set_fault_around(to)));
        call("Base::fault_around", || vm.fault_around());
        call("Base::set_huge_knobs", || vm.set_huge_knobs(&HugeKnobs::DEFAULT).unwrap());
        call("Base::change_huge_knobs", || {
            _ = vm.change_huge_knobs(&mut |knobs| {
                knobs.khugepaged.max_ptes_none = u32::MAX;
                Ok(())
            });
        });
        call("Base::huge_knobs", || vm.huge_knobs());
        call("Base::huge_off", || vm.huge_off());
        call("Base::khugepaged_wanted", || vm.khugepaged_wanted());
        call("Base::mid_orders_any", || vm.mid_orders_any());
        call("Base::hugetlb_lock_stat", || vm.hugetlb_lock_stat());
        call("Base::tunables", || _ = vm.tunables());
    });
}

/// Frames of a machine that has no `Vm`, and what was measured there in another machine's `Vm`.
#[test]
fn scratches() {
    let mut machine = vm().into_machine();
    ranges("Scratch::new", |range| {
        let is_there = Scratch::new(&mut machine, range).is_some();
        assert_eq!(is_there, u64::from(range.first.0).saturating_add(range.nr_frames) <= 4096, "{range:?}");
    });
    let mut scratch = Scratch::new(&mut machine, FrameRange { first: Pfn(64), nr_frames: 1024 }).unwrap();
    call("Scratch::machine", || scratch.machine());
    call("Scratch::ways", || scratch.ways());
    call("Scratch::range", || assert_eq!(scratch.range().nr_frames, 1024));
    call("Scratch::set_large", || scratch.set_large((Zeroing::Clzero, Zeroing::Vector)));
    let plan = BatchPlan::all(Zeroing::Vector);
    call("Scratch::zero", || scratch.zero(1023, 1, plan));
    call("Scratch::clear", || scratch.clear(0, Order(9), Some(u64::MAX), ClearOrder::ALL[0]));
    call("Scratch::copy", || {
        scratch.copy(512, 0, Order(9), Some(u64::MAX), ClearOrder::ALL[0], &mut |_| Ok(())).unwrap()
    });
    for at in [1024, u64::MAX - 1, u64::MAX] {
        assert!(panics(|| scratch.zero(at, 1, plan)).contains("at frame"));
        assert!(panics(|| scratch.clear(at, Order(0), None, ClearOrder::ALL[0])).contains("at frame"));
        let copy = |scratch: &mut Scratch<'_, Hosted>, to, from| {
            _ = scratch.copy(to, from, Order(0), None, ClearOrder::ALL[0], &mut |_| Ok(()));
        };
        assert!(panics(|| copy(&mut scratch, at, 0)).contains("at frame"));
        assert!(panics(|| copy(&mut scratch, 0, at)).contains("at frame"));
    }
    let (mut one, other) = call("Scratch::split_at", || scratch.split_at(512));
    assert!(panics(|| _ = other.split_at(u64::MAX)).contains("should be at most"));
    let table = call("clear::calibrate", || calibrate(&mut one));
    let vm = call("Vm::new", || Vm::new(machine, Tunables::default()).unwrap());
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    call("Base::set_zeroing", || vm.set_zeroing(&table));
    call("Base::set_clear_orders", || vm.set_clear_orders(&table));
    drop(_cpu);
    call("Vm::into_machine", || assert_eq!(vm.into_machine().frames()[0].nr_frames, 4096));
}
