//! Every call of the core that a subscriber could make, and whether it may (M1).

use super::stage::{AT, FRESH, Stage};
use super::{BASE, FIXED, PAGE, PRIVATE, RW, SHARED};
use softfault::clear::ClearTable;
use softfault::policy::compact::CompactBudget;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, Event, FileId, FrameRange, HugeKnobs, MlockFlags, MlockallFlags, MremapFlags, MsyncFlags, ObjectPart,
    Order, Pfn, Prot, SubpoolLimits, Term, VmaFlags,
};

/// The result of a call in a notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum May {
    /// It works.
    Yes,
    /// It panics before it has done anything.
    No,
    /// It works if the page allows it, else it panics.
    Either,
}

pub struct Call {
    /// Type and function, and what is special about the case.
    pub name: &'static str,
    pub may: May,
    pub make: fn(&'static Stage),
}

macro_rules! calls {
    ($($may:ident $name:literal: $make:expr;)+) => {
        pub const CALLS: &[Call] = &[$(Call { name: $name, may: May::$may, make: $make },)+];
    };
}

calls! {
    Yes "Vm::machine": |s| _ = s.vm.machine();
    Yes "Vm::tunables": |s| _ = s.vm.tunables();
    Yes "Vm::vmstat": |s| _ = s.vm.vmstat();
    Yes "Vm::event": |s| _ = s.vm.event(Event::Fault);
    Yes "Vm::huge_stat": |s| _ = s.vm.huge_stat(Order::PMD);
    Yes "Vm::nr_reserve_pages": |s| _ = s.vm.nr_reserve_pages();
    No "Vm::spend_reserve": |s| _ = s.vm.spend_reserve(1);
    Yes "Vm::watermarks": |s| _ = s.vm.watermarks();
    Yes "Vm::node_of": |s| _ = s.vm.node_of(softfault::Pfn(1));
    Yes "Vm::nr_frames": |s| _ = s.vm.nr_frames();
    Yes "Vm::nr_dirty_by_word": |s| _ = s.vm.nr_dirty_by_word();
    Yes "Vm::fragmentation": |s| _ = s.vm.fragmentation(Order::PMD);
    Yes "Vm::describe": |s| _ = s.vm.describe(4096);
    Yes "Vm::clear_order": |s| _ = s.vm.clear_order(Order::PMD);
    Yes "Vm::set_clear_orders": |s| s.vm.set_clear_orders(&ClearTable::default());
    Yes "Vm::set_zeroing": |s| s.vm.set_zeroing(&ClearTable::default());
    Yes "Vm::fail_allocation": |s| s.vm.fail_allocation(None);
    Yes "Vm::fail_runs": |s| s.vm.fail_runs(None);
    Yes "Vm::poll_compaction_request": |s| _ = s.vm.poll_compaction_request();
    Yes "Vm::nr_blocks_emptied": |s| _ = s.vm.nr_blocks_emptied();
    Yes "Vm::huge_orders": |s| _ = s.vm.huge_orders(VmaFlags::empty());
    Yes "Vm::mid_orders_any": |s| _ = s.vm.mid_orders_any();
    Yes "Vm::khugepaged_wanted": |s| _ = s.vm.khugepaged_wanted();
    Yes "Vm::huge_off": |s| _ = s.vm.huge_off();
    Yes "Vm::max_map_count": |s| _ = s.vm.max_map_count();
    Yes "Vm::fault_around": |s| _ = s.vm.fault_around();
    Yes "Vm::set_fault_around": |s| s.vm.set_fault_around(s.vm.fault_around());
    Yes "Vm::set_max_map_count": |s| s.vm.set_max_map_count(s.vm.max_map_count());
    Yes "Vm::generation": |s| _ = s.vm.generation();
    Yes "Vm::idle_pages": |s| _ = s.vm.idle_pages(0);
    No "Vm::advance_generation": |s| _ = s.vm.advance_generation(0);
    No "Vm::add_memory": |s| _ = s.vm.add_memory(FrameRange { first: Pfn(0), nr_frames: 0 });
    No "Vm::add_foreign_memory": |s| _ = s.vm.add_foreign_memory(FrameRange { first: Pfn(0), nr_frames: 0 });
    No "Vm::remove_foreign_memory": |s| _ = s.vm.remove_foreign_memory(FrameRange { first: Pfn(0), nr_frames: 0 });
    No "Vm::new_foreign_object": |s| drop(s.vm.new_foreign_object(FrameRange { first: Pfn(0), nr_frames: 0 }));
    No "Vm::initialise_section": |s| _ = s.vm.initialise_section();
    No "Vm::remove_memory": |s| _ = s.vm.remove_memory(FrameRange { first: Pfn(0), nr_frames: 0 });
    No "Vm::check": |s| _ = softfault_testkit::at_rest::check(s.vm, &[], &mut vec![0; s.vm.nr_frames() as usize]);
    No "Vm::new_space": |s| drop(s.vm.new_space());
    No "Vm::new_shared_object": |s| drop(s.vm.new_shared_object(PAGE));
    No "Vm::new_shared_object_of": |s| drop(s.vm.new_shared_object_of(PAGE, FolioOrders::BASE));
    No "Vm::new_file_object": |s| drop(s.vm.new_file_object(PAGE, FolioOrders::BASE, FileId(0)));
    No "Vm::new_explicit_object": |s| drop(s.vm.new_explicit_object(PAGE, FolioOrders::BASE));
    No "Vm::new_hugetlb_object": |s| drop(s.vm.new_hugetlb_object(0, Order::PMD));
    No "Vm::new_hugetlb_subpool": |s| drop(s.vm.new_hugetlb_subpool(Order::PMD, SubpoolLimits::default()));
    No "Vm::set_nr_hugepages": |s| _ = s.vm.set_nr_hugepages(Order::PMD, 0);
    No "Vm::set_nr_overcommit_hugepages": |s| _ = s.vm.set_nr_overcommit_hugepages(Order::PMD, 0);
    No "Vm::demote_hugepages": |s| _ = s.vm.demote_hugepages(1);
    No "Vm::hugetlb_counts": |s| _ = s.vm.hugetlb_counts(Order::PMD);
    Yes "Vm::hugetlb_counts_as_they_are": |s| _ = s.vm.hugetlb_counts_as_they_are(Order::PMD);
    Yes "Vm::lies_free_in_pool": |s| _ = s.vm.lies_free_in_pool(Pfn(0));
    Yes "Vm::hugetlb_lock_stat": |s| _ = s.vm.hugetlb_lock_stat();
    No "Vm::huge_knobs": |s| _ = s.vm.huge_knobs();
    No "Vm::set_huge_knobs": |s| _ = s.vm.set_huge_knobs(&HugeKnobs::DEFAULT);
    No "Vm::change_huge_knobs": |s| _ = s.vm.change_huge_knobs(&mut |_| Ok(()));
    No "Vm::drop_clean": |s| _ = s.vm.drop_clean(1);
    No "Vm::split_folio": |s| s.vm.split_folio(s.other_huge());
    No "Vm::rmap_anon": |s| _ = s.vm.rmap_anon(s.other_huge(), &mut []);
    No "Vm::migrate_frame": |s| _ = s.vm.migrate_frame(s.other.translate_at_rest(BASE).unwrap().pfn);
    No "Vm::offline_memory": |s| _ = s.vm.offline_memory(FrameRange { first: Pfn(0), nr_frames: 0 });
    No "Vm::soft_offline_frame": |s| _ = s.vm.soft_offline_frame(Pfn(0));
    No "Vm::poison_frame": |s| _ = s.vm.poison_frame(Pfn(0));
    No "Vm::swap_out_frame": |s| _ = s.vm.swap_out_frame(Pfn(0));
    No "Vm::free_and_overwrite_tail_descs": |s| s.vm.free_and_overwrite_tail_descs(Pfn(0), Pfn(1));
    No "Vm::drop_clean_folio": |s| _ = s.vm.drop_clean_folio(Pfn(0));
    No "Vm::drop_clean_folio_unless_used": |s| _ = s.vm.drop_clean_folio_unless_used(Pfn(0));
    No "Vm::look_at_clean_folio": |s| s.vm.look_at_clean_folio(Pfn(0));
    No "Vm::compact_step": |s| _ = s.vm.compact_step(&CompactBudget::BACKGROUND);
    No "Vm::shrink_underused": |s| _ = s.vm.shrink_underused(u64::MAX);
    No "Vm::zero_ahead": |s| _ = s.vm.zero_ahead(u64::MAX);
    No "Vm::age": |s| _ = s.vm.age(64, 1);
    No "Vm::hold_one_in_each_block": |s| _ = s.vm.hold_one_in_each_block(0, 1);

    Yes "AddressSpace::vm": |s| _ = s.space.vm();
    Yes "AddressSpace::tag": |s| _ = s.space.tag();
    Yes "AddressSpace::rss_pages": |s| _ = s.space.rss_pages();
    Yes "AddressSpace::nr_mapped_pages": |s| _ = s.space.nr_mapped_pages();
    Yes "AddressSpace::page_state": |s| _ = s.space.page_state(BASE);
    Yes "AddressSpace::translate_at_rest": |s| _ = s.space.translate_at_rest(BASE);
    Yes "AddressSpace::frame_at_rest": |s| _ = s.space.frame_at_rest(BASE);
    Yes "AddressSpace::thp_disable": |s| _ = s.space.thp_disable();
    Yes "AddressSpace::set_thp_disable": |s| s.space.set_thp_disable(false);
    Yes "AddressSpace::set_limit_as": |s| s.space.set_limit_as(None);
    Yes "AddressSpace::set_limit_data": |s| s.space.set_limit_data(None);
    Yes "AddressSpace::set_limit_memlock": |s| s.space.set_limit_memlock(None);
    Yes "AddressSpace::set_limit_stack": |s| s.space.set_limit_stack(None);
    Yes "AddressSpace::nr_data_pages": |s| _ = s.space.nr_data_pages();
    Yes "AddressSpace::huge_orders": |s| _ = s.space.huge_orders(VmaFlags::empty());
    Yes "AddressSpace::collapse_orders": |s| _ = s.space.collapse_orders(VmaFlags::empty());
    Either "AddressSpace::handle_fault, of a page that is changed": |s| _ = s.space.handle_fault(BASE, Access::Write);
    Either "AddressSpace::handle_fault, of a stretch that is changed": |s| _ = s.space.handle_fault(AT, Access::Write);
    Yes "AddressSpace::handle_fault, with nothing to do": |s| _ = s.other.handle_fault(BASE + PAGE, Access::Write);
    No "AddressSpace::handle_fault, with a refusal": |s| _ = s.other.handle_fault(BASE, Access::Exec);
    No "AddressSpace::handle_fault, with a copy": |s| _ = s.other.handle_fault(BASE, Access::Write);
    No "AddressSpace::handle_fault, with a split": |s| _ = s.other.handle_fault(AT, Access::Write);
    No "AddressSpace::handle_fault, with a new page": |s| _ = s.other.handle_fault(BASE + 2 * PAGE, Access::Write);
    No "AddressSpace::read": |s| _ = s.other.read(BASE, &mut [0]);
    No "AddressSpace::fetch": |s| _ = s.other.fetch(BASE, &mut [0]);
    No "AddressSpace::read_forced": |s| _ = s.other.read_forced(BASE, &mut [0]);
    No "AddressSpace::write": |s| _ = s.other.write(BASE, &[1]);
    No "AddressSpace::write_forced": |s| _ = s.other.write_forced(BASE, &[1]);
    No "AddressSpace::update_u32": |s| _ = s.other.update_u32(BASE, &mut |_| None);
    No "AddressSpace::pin_page": |s| drop(s.other.pin_page(BASE, Term::Short));
    No "AddressSpace::pin_page_mut": |s| drop(s.other.pin_page_mut(BASE, Term::Short));
    No "AddressSpace::pin_range": |s| _ = s.other.pin_range(BASE, Term::Short, &mut [None, None]);
    No "AddressSpace::pin_range_mut": |s| _ = s.other.pin_range_mut(BASE, Term::Short, &mut [None, None]);
    No "AddressSpace::vma": |s| _ = s.space.vma(BASE);
    No "AddressSpace::hugetlb_rss_pages": |s| _ = s.space.hugetlb_rss_pages();
    No "AddressSpace::nr_vmas": |s| _ = s.space.nr_vmas();
    No "AddressSpace::nr_locked_pages": |s| _ = s.space.nr_locked_pages();
    No "AddressSpace::maps": |s| s.space.maps(&mut |_| ());
    No "AddressSpace::smaps": |s| s.space.smaps(&mut |_| ());
    No "AddressSpace::next_mapping": |s| _ = s.space.next_mapping(BASE);
    No "AddressSpace::next_vma": |s| _ = s.space.next_vma(BASE);
    No "AddressSpace::next_smaps": |s| _ = s.space.next_smaps(BASE);
    No "AddressSpace::pagemap": |s| s.space.pagemap(BASE, PAGE, &mut |_| ());
    No "AddressSpace::mincore": |s| _ = s.space.mincore(BASE, PAGE, &mut |_, _| ());
    No "AddressSpace::test_young": |s| _ = s.space.test_young(BASE, PAGE);
    No "AddressSpace::test_and_clear_young": |s| _ = s.space.test_and_clear_young(BASE, PAGE);
    No "AddressSpace::age_pages": |s| _ = s.space.age_pages(BASE, 1);
    No "AddressSpace::subscribe": |s| drop(s.space.subscribe());
    No "AddressSpace::unsubscribe": |s| _ = s.space.unsubscribe(s.take_subscription());
    No "AddressSpace::activate": |s| drop(s.space.activate());
    No "AddressSpace::khugepaged_scan": |s| _ = s.space.khugepaged_scan(0, 4096);
    No "AddressSpace::collapse": |s| _ = s.other.collapse(AT);
    No "AddressSpace::fork": |s| drop(s.space.fork());
    No "AddressSpace::fork, of another space": |s| drop(s.other.fork());
    No "AddressSpace::mmap": |s| _ = s.space.mmap(FRESH, PAGE, RW, PRIVATE | FIXED);
    No "AddressSpace::mmap_zero": |s| _ = s.space.mmap_zero(FRESH, PAGE, RW, PRIVATE | FIXED, 0);
    No "AddressSpace::mmap_object": |s| {
        let part = ObjectPart::new(&s.object);
        _ = s.other.mmap_object(FRESH, PAGE, RW, SHARED | FIXED, part);
    };
    No "AddressSpace::munmap": |s| _ = s.space.munmap(FRESH, PAGE);
    No "AddressSpace::munmap, of another space": |s| _ = s.other.munmap(BASE, PAGE);
    No "AddressSpace::mremap": |s| _ = s.other.mremap(BASE, PAGE, 2 * PAGE, MremapFlags::MAYMOVE, 0);
    No "AddressSpace::mprotect": |s| _ = s.other.mprotect(BASE, PAGE, Prot::READ);
    No "AddressSpace::madvise": |s| _ = s.other.madvise(BASE, PAGE, super::DONTNEED);
    No "AddressSpace::mlock": |s| _ = s.other.mlock(BASE, PAGE, MlockFlags::empty());
    No "AddressSpace::msync": |s| _ = s.other.msync(BASE, PAGE, MsyncFlags::SYNC);
    No "AddressSpace::munlock": |s| _ = s.other.munlock(BASE, PAGE);
    No "AddressSpace::mlockall": |s| _ = s.other.mlockall(MlockallFlags::CURRENT);
    No "AddressSpace::munlockall": |s| _ = s.other.munlockall();
    No "AddressSpace::set_brk": |s| s.other.set_brk(FRESH);
    No "AddressSpace::brk": |s| _ = s.other.brk(0);

    Yes "Subscription::lookup": |s| _ = s.subscription.lookup(s.space, FRESH);
    Yes "Subscription::is_current": |s| _ = s.subscription.lookup(s.space, FRESH)
        .map(|found| s.subscription.is_current(s.space, &found));
    Yes "Pin::pfn": |s| s.with_pin(|pin| _ = pin.pfn());
    Yes "Pin::order": |s| s.with_pin(|pin| _ = pin.order());
    Yes "Pin::term": |s| s.with_pin(|pin| _ = pin.term());
    Yes "Pin::read": |s| s.with_pin(|pin| pin.read(0, &mut [0]));
    Yes "PinMut::write": |s| s.with_pin(|pin| pin.write(0, &[7]));
    Yes "Pin::drop": |s| s.drop_pin();
    Yes "SharedObject::id": |s| _ = s.object.id();
    Yes "SharedObject::size_bytes": |s| _ = s.object.size_bytes();
    Yes "SharedObject::is_mapped": |s| _ = s.object.is_mapped();
    Yes "SharedObject::nr_mapped_pages": |s| _ = s.object.nr_mapped_pages();
    Yes "SharedObject::nr_writable_pages": |s| _ = s.object.nr_writable_pages();
    Yes "SharedObject::object_page_state": |s| _ = s.object.object_page_state(0);
    Yes "SharedObject::object_page_in_transit": |s| _ = s.object.object_page_in_transit(0);
    Yes "SharedObject::nr_late_calls": |s| _ = s.object.nr_late_calls();
    No "SharedObject::set_size_bytes": |s| s.object.set_size_bytes(PAGE);
    No "SharedObject::discard": |s| s.object.discard(0..1);
    No "HugetlbSubpool::new_object": |s| drop(s.subpool.new_object(0));
    Yes "HugetlbSubpool::order": |s| _ = s.subpool.order();
    Yes "HugetlbSubpool::limits": |s| _ = s.subpool.limits();
    Yes "HugetlbSubpool::nr_used": |s| _ = s.subpool.nr_used();
    No "SharedObject::mark_untouched": |s| s.object.mark_untouched();
    No "SharedObject::touched": |s| s.object.touched(0..9, &mut |_| ());
    No "SharedObject::free_tail_descs": |s| _ = s.object.free_tail_descs(0);
    No "SharedObject::restore_tail_descs": |s| _ = s.object.restore_tail_descs(0);
    No "SharedObject::allocate": |s| _ = s.object.allocate(0..3);
    No "SharedObject::extend": |s| _ = s.object.extend(0..3);
    No "SharedObject::reserve": |s| _ = s.object.reserve(0..3);
    No "SharedObject::zero": |s| _ = s.object.zero(5..3 * PAGE + 5);
    No "SharedObject::make_hole": |s| _ = s.object.make_hole(5..3 * PAGE + 5);
    No "SharedObject::nr_swapped_pages": |s| _ = s.object.nr_swapped_pages();
    No "SharedObject::nr_resident_pages": |s| _ = s.object.nr_resident_pages();
    No "SharedObject::next_resident": |s| _ = s.object.next_resident(0..9);
    No "SharedObject::next_poisoned": |s| _ = s.object.next_poisoned(0..9);
    No "SharedObject::read": |s| _ = s.object.read(0, &mut [0]);
    No "SharedObject::write": |s| _ = s.object.write(0, &[3]);
    No "SharedObject::begin_install": |s| _ = s.object.begin_install(0..1);
    No "SharedObject::install": |s| _ = s.object.install(0, &[3]);
    No "SharedObject::begin_evict": |s| _ = s.object.begin_evict(0);
    No "SharedObject::evict": |s| _ = s.object.evict(0..1);
    No "SharedObject::write_back": |s| _ = s.object.write_back(0..9);
    No "SharedObject::drop": |s| s.drop_object();
    No "AddressSpace::drop": |s| s.drop_space();
}

/// Functions that no subscriber can call, or that it has no business with, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("Vm::new", "there is no machine to be told by yet"),
    ("Vm::into_machine", "the spaces borrow it"),
    ("Vm::filled", "takes a fill, which only a machine has"),
    ("Vm::written", "takes a write, which only a machine has"),
    ("Vm::write_fill", "takes a fill, which only a machine has"),
    ("Vm::read_fill", "takes a fill, which only a machine has"),
    ("Vm::read_write", "takes a write, which only a machine has"),
    ("Vm::is_clean_page_of_file", "reads one word, at rest"),
    ("Vm::check_free_is_zero", "reads all free memory and waits for nobody"),
    ("Vm::check_in_test", "no function of the core that ships: `Vm::check`"),
    ("Vm::check_free_in_test", "the same"),
    ("Vm::pretend_mappings", "unsafe; for tests"),
    ("Active::walker", "stays on the thread of its CPU, as all that a walker does; walker.rs calls from there"),
    ("AddressSpace::activate_raw", "unsafe; as activate"),
    ("AddressSpace::deactivate_raw", "unsafe; as activate"),
    ("Vm::nr_blocks", "sets memory's state, at rest"),
    ("Vm::home_blocks", "sets memory's state, at rest"),
    ("Vm::free_bits", "sets memory's state, at rest"),
    ("Vm::take_bits", "sets memory's state, at rest"),
    ("Vm::give_bits", "sets memory's state, at rest"),
    ("Vm::soil_free", "sets memory's state, at rest"),
    ("Vm::fix_block", "sets memory's state, at rest"),
    ("Vm::has_pages_only", "sets memory's state, at rest"),
    ("Vm::block_class", "sets memory's state, at rest"),
    ("Vm::take_all", "sets memory's state, at rest"),
    ("Vm::empty_caches", "sets memory's state, at rest"),
    ("Vm::check_summaries_at_rest", "sets memory's state, at rest"),
    ("Vm::nr_reserve_pages_in", "reads the reserve, at rest"),
];
