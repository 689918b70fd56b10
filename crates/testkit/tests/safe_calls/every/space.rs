//! Calls on an address space.

use super::*;
use softfault::{MlockFlags, MlockallFlags, MsyncFlags, VmaFlags};

#[test]
fn mappings() {
    with_others(|w| {
        let space = w.space;
        pairs("AddressSpace::mmap", |addr, len| {
            for flags in [PRIVATE, SHARED, PRIVATE | FIXED, PRIVATE | GROWSDOWN, MapFlags::from_linux(u64::MAX)] {
                _ = space.mmap(addr, len, RWX, flags).map(|at| space.munmap(at, len));
            }
        });
        pairs("AddressSpace::mmap_zero", |addr, len| {
            for offset in NUMBERS {
                _ = space.mmap_zero(addr, len, RW, MapFlags::PRIVATE, offset).map(|at| space.munmap(at, len));
            }
        });
        let own = w.vm.new_shared_object(4 * PAGE).unwrap();
        pairs("AddressSpace::mmap_object", |addr, len| {
            let part = |object| ObjectPart::new(object).with_offset_bytes(addr).with_grows(len == PAGE);
            let of_other = space.mmap_object(addr, len, RW, MapFlags::SHARED, part(&w.others.object));
            assert_eq!(of_other, Err(softfault::MmapError::OtherVm));
            for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
                _ = space.mmap_object(addr, len, RW, flags, part(&own)).map(|at| space.munmap(at, len));
            }
        });
        pairs("AddressSpace::mprotect", |addr, len| _ = (space.mprotect(addr, len, NONE), w.anew()));
        pairs("AddressSpace::munmap", |addr, len| _ = (space.munmap(addr, len), w.anew()));
        pairs("AddressSpace::mremap", |old, old_len| {
            for (new_len, new) in
                [(0, 0), (PAGE, BASE), (1 << 46, 0), (u64::MAX, u64::MAX), (PAGE, u64::MAX - PAGE + 1)]
            {
                for flags in [MremapFlags::empty(), MAYMOVE, MAYMOVE | MREMAP_FIXED, MAYMOVE | DONTUNMAP] {
                    _ = space.mremap(old, old_len, new_len, flags, new);
                }
            }
            w.anew();
        });
        pairs("AddressSpace::madvise", |addr, len| {
            Advice::ALL.iter().for_each(|advice| _ = space.madvise(addr, len, *advice));
            w.anew();
        });
        each("AddressSpace::set_brk", |start| {
            space.set_brk(start);
            each("AddressSpace::brk", |addr| _ = space.brk(addr));
            w.anew();
        });
        let forked = call("AddressSpace::fork", || space.fork().unwrap());
        check(w.vm, &[space, &forked]);
    });
}

#[test]
fn locks_and_reports() {
    with_others(|w| {
        let space = w.space;
        pairs("AddressSpace::mlock", |addr, len| {
            _ = (space.mlock(addr, len, MlockFlags::ONFAULT), space.mlock(addr, len, MlockFlags::from_linux(u64::MAX)));
        });
        pairs("AddressSpace::munlock", |addr, len| _ = space.munlock(addr, len));
        each("AddressSpace::mlockall", |flags| _ = space.mlockall(MlockallFlags::from_linux(flags)));
        call("AddressSpace::munlockall", || space.munlockall().unwrap());
        pairs("AddressSpace::msync", |addr, len| _ = space.msync(addr, len, MsyncFlags::from_linux(4)));
        pairs("AddressSpace::mincore", |addr, len| {
            _ = space.mincore(addr, len, &mut |_, _| {});
        });
        call("AddressSpace::maps", || space.maps(&mut |_| {}));
        call("AddressSpace::smaps", || space.smaps(&mut |_| {}));
        each("AddressSpace::next_vma", |addr| _ = space.next_vma(addr));
        each("AddressSpace::next_mapping", |addr| _ = space.next_mapping(addr));
        each("AddressSpace::next_smaps", |addr| _ = space.next_smaps(addr));
        pairs("AddressSpace::pagemap", |addr, len| space.pagemap(addr, len, &mut |_| {}));
        each("AddressSpace::vma", |addr| _ = space.vma(addr));
        each("AddressSpace::page_state", |addr| _ = space.page_state(addr));
        call("AddressSpace::rss_pages", || space.rss_pages());
        call("AddressSpace::hugetlb_rss_pages", || space.hugetlb_rss_pages());
        call("AddressSpace::nr_mapped_pages", || space.nr_mapped_pages());
        call("AddressSpace::nr_locked_pages", || space.nr_locked_pages());
        call("AddressSpace::nr_data_pages", || space.nr_data_pages());
        call("AddressSpace::nr_vmas", || space.nr_vmas());
        each("AddressSpace::set_limit_as", |limit| space.set_limit_as(Some(limit)));
        each("AddressSpace::set_limit_data", |limit| space.set_limit_data(Some(limit)));
        each("AddressSpace::set_limit_memlock", |limit| space.set_limit_memlock(Some(limit)));
        each("AddressSpace::set_limit_stack", |limit| space.set_limit_stack(Some(limit)));
        call("AddressSpace::set_thp_disable", || space.set_thp_disable(true));
        call("AddressSpace::thp_disable", || assert!(space.thp_disable()));
        each("AddressSpace::huge_orders", |bits| _ = space.huge_orders(VmaFlags::from_bits_truncate(bits)));
        each("AddressSpace::collapse_orders", |bits| _ = space.collapse_orders(VmaFlags::from_bits_truncate(bits)));
        call("AddressSpace::tag", || assert!(space.tag().id > 0));
        call("AddressSpace::vm", || assert!(std::ptr::eq(space.vm(), w.vm)));
        pairs("AddressSpace::age_pages", |from, nr| _ = space.age_pages(from, nr));
        pairs("AddressSpace::khugepaged_scan", |from, nr| _ = space.khugepaged_scan(from, nr));
        each("AddressSpace::collapse", |addr| _ = space.collapse(addr));
        pairs("AddressSpace::test_young", |addr, len| _ = space.test_young(addr, len));
        pairs("AddressSpace::test_and_clear_young", |addr, len| _ = space.test_and_clear_young(addr, len));
    });
}

#[test]
fn bytes() {
    with_others(|w| {
        let (space, mut bytes) = (w.space, [0; 3 * PAGE as usize]);
        each("AddressSpace::read", |addr| _ = space.read(addr, &mut bytes));
        each("AddressSpace::fetch", |addr| _ = space.fetch(addr, &mut bytes));
        each("AddressSpace::read_forced", |addr| _ = space.read_forced(addr, &mut bytes));
        each("AddressSpace::write", |addr| _ = space.write(addr, &bytes));
        each("AddressSpace::write_forced", |addr| _ = space.write_forced(addr, &bytes));
        each("AddressSpace::update_u32", |addr| _ = space.update_u32(addr, &mut |old| Some(!old)));
        each("AddressSpace::handle_fault", |addr| {
            [Access::Read, Access::Write, Access::Exec]
                .into_iter()
                .for_each(|access| _ = space.handle_fault(addr, access));
        });
    });
}
