//! Steps on the address space of the running program: calls, and accesses through the emulated TLB.

use super::bytes::{BASE, Bytes, HUGE, NR_HUGE};
use super::world::World;
use crate::op::PAGE;
use softfault::{Access, Advice, MapFlags, MlockFlags, MlockallFlags, MremapFlags, MsyncFlags, Prot, Term};

const RW: Prot = Prot::READ.union(Prot::WRITE);
const RIGHTS: [Prot; 8] =
    [RW, RW, RW, Prot::READ, RW, Prot::NONE, Prot::READ.union(Prot::EXEC), RW.union(Prot::GROWSDOWN)];

fn rights(bytes: &mut Bytes<'_>) -> Prot {
    bytes.pick(&RIGHTS)
}

/// Flags of a mapping at a given place, mostly.
pub(super) fn flags(bytes: &mut Bytes<'_>) -> MapFlags {
    let byte = bytes.byte();
    let kind = if byte & 1 != 0 { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let place = if byte & 0xc0 == 0xc0 { MapFlags::FIXED_NOREPLACE } else { MapFlags::FIXED };
    let has = |bit: u8, flag| if byte & bit != 0 { flag } else { MapFlags::empty() };
    kind | if byte & 0xf0 == 0x80 { MapFlags::empty() } else { place }
        | if byte & 0x0e == 0x0e { MapFlags::POPULATE } else { MapFlags::empty() }
        | has(0x10, MapFlags::NORESERVE)
        | if byte & 0x2e == 0x2c { MapFlags::GROWSDOWN } else { MapFlags::empty() }
        | if byte & 0x2e == 0x2a { MapFlags::LOCKED } else { MapFlags::empty() }
}

pub(super) fn map(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, prot, flags) = (bytes.any_place(), bytes.length(), rights(bytes), flags(bytes));
    _ = world.space().mmap(at, len, prot, flags | MapFlags::ANONYMOUS);
}

pub(super) fn map_huge(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, prot, flags) = (bytes.huge_place(), bytes.length(), rights(bytes), flags(bytes));
    _ = world.space().mmap(at, len, prot, flags | MapFlags::ANONYMOUS | MapFlags::HUGETLB);
}

pub(super) fn unmap(world: &World<'_>, bytes: &mut Bytes<'_>) {
    _ = world.space().munmap(bytes.any_place(), bytes.length());
}

pub(super) fn protect(world: &World<'_>, bytes: &mut Bytes<'_>) {
    _ = world.space().mprotect(bytes.any_place(), bytes.length(), rights(bytes));
}

pub(super) fn remap(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (old, old_len) = (bytes.any_place(), bytes.length());
    let byte = bytes.byte();
    let new_len = if byte & 8 != 0 { old_len } else { bytes.length() };
    let place = if byte & 16 != 0 { bytes.huge_place() } else { bytes.any_place() };
    _ = world.space().mremap(old, old_len, new_len, MremapFlags::from_linux(u64::from(byte & 7)), place);
}

pub(super) fn advise(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, advice) = (bytes.any_place(), bytes.length(), bytes.pick(Advice::ALL));
    _ = world.space().madvise(at, len, advice);
}

/// Accesses to several pages, in a stride: the loads and stores of a program, with their faults.
pub(super) fn touch(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, how) = (bytes.any_place(), bytes.byte());
    let nr = [1, 1, 2, 7, 40, 3][usize::from(how >> 3) % 6];
    let stride = [PAGE, PAGE, 5 * PAGE, HUGE, 0u64.wrapping_sub(PAGE)][usize::from(how >> 5) % 5];
    let Ok(running) = world.cpu.enter(world.space()) else { return };
    for i in 0..nr {
        let at = at.wrapping_add(stride.wrapping_mul(i));
        match how & 7 {
            0..3 => _ = running.store(at, &[how]),
            3..5 => {
                let (mut byte, mut other) = ([0], [0]);
                if running.load(at, &mut byte).is_ok() && world.space().read(at, &mut other).is_ok() {
                    assert_eq!(byte, other, "the TLB and the tables differ at {at:#x}");
                }
            }
            5 => _ = running.fetch(at),
            6 => _ = world.space().handle_fault(at, [Access::Read, Access::Write, Access::Exec][(i % 3) as usize]),
            _ => _ = running.add_u64(at & !7, 1),
        }
    }
}

/// Copies of a kernel, from and to a program's memory.
pub(super) fn copy(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, how) = (bytes.any_place(), bytes.byte());
    let mut buffer = [how; 9000];
    let part = &mut buffer[..[1, 8, 4096, 5000, 9000][usize::from(how >> 3) % 5]];
    let space = world.space();
    _ = match how & 7 {
        0 | 1 => space.write(at, part),
        2 | 3 => space.read(at, part),
        4 => space.fetch(at, part),
        5 => space.write_forced(at, part),
        _ => space.update_u32(at & !3, &mut |word| Some(word.wrapping_add(1))).map(drop),
    };
}

pub(super) fn pin(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    let (at, how) = (bytes.any_place(), bytes.byte());
    let term = if how & 1 != 0 { Term::Long } else { Term::Short };
    let nr = 1 + usize::from(how >> 2) % 3;
    if how & 2 != 0 {
        let mut pins = [const { None }; 3];
        if world.space().pin_range_mut(at, term, &mut pins[..nr]).is_ok() {
            world.pins_mut.extend(pins.into_iter().flatten());
        }
    } else {
        let mut pins = [const { None }; 3];
        if world.space().pin_range(at, term, &mut pins[..nr]).is_ok() {
            world.pins.extend(pins.into_iter().flatten());
        }
    }
}

/// Uses a pin, or ends it.
pub(super) fn unpin(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    let how = bytes.byte();
    let any = usize::from(how >> 2);
    let World { pins, pins_mut, .. } = world;
    match how & 3 {
        0 if !pins.is_empty() => drop(pins.swap_remove(any % pins.len())),
        1 if !pins_mut.is_empty() => drop(pins_mut.swap_remove(any % pins_mut.len())),
        2 if !pins_mut.is_empty() => {
            let pin = pins_mut.swap_remove(any % pins_mut.len());
            pin.write(any, &[how]);
            pins.push(pin.into());
        }
        _ => pins.iter().for_each(|pin| pin.read(any, &mut [0])),
    }
}

pub(super) fn lock(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, how) = (bytes.any_place(), bytes.length(), bytes.byte());
    let space = world.space();
    let on_fault = if how & 4 != 0 { MlockFlags::ONFAULT } else { MlockFlags::empty() };
    _ = match how & 3 {
        0 => space.mlock(at, len, on_fault),
        1 => space.munlock(at, len),
        2 => space.mlockall(MlockallFlags::from_linux(u64::from(how >> 3 & 7))),
        _ => space.munlockall(),
    };
}

pub(super) fn sync(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len) = (bytes.any_place(), bytes.length());
    _ = world.space().msync(at, len, MsyncFlags::from_linux([4, 4, 4, 6, 1, 5][bytes.below(6) as usize]));
}

pub(super) fn heap(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, sets) = (bytes.any_place(), bytes.byte().is_multiple_of(4));
    if sets { world.space().set_brk(at) } else { _ = world.space().brk(at) }
}

/// Begins or ends a subscription, or looks a page up.
pub(super) fn subscribe(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    let (at, how) = (bytes.any_place(), bytes.byte());
    match (how & 3, world.subscriptions.pop()) {
        (0, last) => {
            world.subscriptions.extend(last);
            let new = world.space().subscribe();
            world.subscriptions.push(new);
        }
        // One to another program's space is given back.
        (1, Some(last)) => world.subscriptions.extend(world.space().unsubscribe(last).err()),
        (_, Some(last)) => {
            let current = last.lookup(world.space(), at).map(|found| last.is_current(world.space(), &found));
            assert_ne!(current, Ok(false), "nothing has changed since the look-up");
            world.subscriptions.push(last);
        }
        (_, None) => {}
    }
}

pub(super) fn report(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, space) = (bytes.any_place(), bytes.length(), world.space());
    match bytes.below(4) {
        0 => {
            let mut nr = 0;
            if space.mincore(at, len.min(NR_HUGE * HUGE), &mut |nr_pages, _| nr += nr_pages).is_ok() {
                assert_eq!(nr, len.min(NR_HUGE * HUGE).div_ceil(PAGE));
            }
        }
        1 => space.smaps(&mut |entry| assert!(entry.rss_pages <= entry.vma.range.nr_pages())),
        2 => {
            _ = (space.vma(at), space.page_state(at), space.next_vma(at), space.next_mapping(at), space.next_smaps(at));
            _ = (space.rss_pages(), space.hugetlb_rss_pages(), space.nr_mapped_pages(), space.nr_locked_pages());
        }
        _ => {
            let mut end = 0;
            space.maps(&mut |vma| {
                assert!(vma.range.start.addr() >= end, "VMAs in order");
                end = vma.range.end.addr();
            });
        }
    }
}

pub(super) fn age(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (at, len, space) = (bytes.any_place(), bytes.length(), world.space());
    match bytes.below(3) {
        0 => _ = space.test_young(at, len),
        1 => _ = space.test_and_clear_young(at, len),
        // A walk of holes is as long as it is asked to be.
        _ => _ = space.age_pages(at, len / PAGE % 4096),
    }
}

pub(super) fn limit(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let space = world.space();
    let what = bytes.byte();
    let limit = if what & 8 != 0 { None } else { Some(bytes.length()) };
    match what & 7 {
        0 => space.set_limit_as(limit),
        1 => space.set_limit_data(limit),
        2 => space.set_limit_memlock(limit),
        3 => space.set_limit_stack(limit),
        4 => world.vm.set_max_map_count(limit.map_or(65_530, |bytes| bytes / PAGE % 32)),
        5 => space.set_thp_disable(limit.is_some()),
        6 => _ = space.collapse(BASE + u64::from(what >> 4) % NR_HUGE * HUGE),
        _ => _ = space.khugepaged_scan(BASE, 4096),
    }
}
