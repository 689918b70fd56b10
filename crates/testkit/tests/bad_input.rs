//! Any 64-bit address, length, flags to every call: no panic, no endless loop, all
//! invariants afterwards; and the errno that Linux gives.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::{Access, Advice, CpuId, Errno, MapFlags, MremapFlags, Pin, Prot, Term, Vm};
use softfault_host::Hosted;
use softfault_testkit::random::Random;

/// First address past the user part.
const TOP: u64 = (1 << 47) - PAGE;
const MAX: u64 = u64::MAX;

// Numbers, as a program gives them.
const NONE: u64 = common::NONE.to_linux();
const READ: u64 = common::READ.to_linux();
const RW: u64 = common::RW.to_linux();
const RWX: u64 = common::RWX.to_linux();
const SHARED: u64 = common::SHARED.to_linux();
const PRIVATE: u64 = common::PRIVATE.to_linux();
const FIXED: u64 = common::FIXED.to_linux();
const GROWSDOWN: u64 = common::GROWSDOWN.to_linux();
const DONTNEED: u64 = common::DONTNEED.to_linux();
const FREE: u64 = common::FREE.to_linux();
const DONTFORK: u64 = common::DONTFORK.to_linux();
const WIPEONFORK: u64 = common::WIPEONFORK.to_linux();
const POPULATE_READ: u64 = common::POPULATE_READ.to_linux();
const POPULATE_WRITE: u64 = common::POPULATE_WRITE.to_linux();
const GUARD_INSTALL: u64 = common::GUARD_INSTALL.to_linux();
const GUARD_REMOVE: u64 = common::GUARD_REMOVE.to_linux();

fn mmap(space: &Space<'_>, addr: u64, len: u64, prot: u64, flags: u64) -> Result<u64, Errno> {
    space.mmap(addr, len, Prot::from_linux(prot), MapFlags::from_linux(flags)).map_err(|e| e.errno())
}

fn mprotect(space: &Space<'_>, addr: u64, len: u64, prot: u64) -> Result<(), Errno> {
    space.mprotect(addr, len, Prot::from_linux(prot)).map_err(|e| e.errno())
}

fn mremap(space: &Space<'_>, old: u64, old_len: u64, new_len: u64, flags: u64, new: u64) -> Result<u64, Errno> {
    space.mremap(old, old_len, new_len, MremapFlags::from_linux(flags), new).map_err(|e| e.errno())
}

fn madvise(space: &Space<'_>, addr: u64, len: u64, advice: u64) -> Result<(), Errno> {
    let advice = Advice::from_linux(advice).map_err(|e| e.errno())?;
    space.madvise(addr, len, advice).map_err(|e| e.errno())
}

fn machine() -> Vm<Hosted> {
    Setup::PLAIN.vm(1, 6 << 20)
}

/// The smaller half are addresses and sizes that mean something; the rest anything.
fn number(random: &mut Random) -> u64 {
    let near = BASE + random.below(64) * PAGE;
    let edge = random.pick(&[0, 1, PAGE, 1 << 16, 1 << 21, 1 << 39, TOP, 1 << 47, 1 << 48, 1 << 57, 1 << 63, MAX]);
    match random.below(10) {
        0 => random.number(),
        1 => random.number() >> random.below(64),
        2 => random.number() >> random.below(64) << 12,
        3 => edge,
        4 => edge.wrapping_add(random.below(3) * PAGE).wrapping_sub(PAGE),
        5 => edge.wrapping_sub(near),
        6 => near + random.below(PAGE),
        7 => random.below(20) * PAGE,
        _ => near,
    }
}

fn bits(random: &mut Random, usual: &[u64]) -> u64 {
    match random.below(8) {
        0 => random.number(),
        1 => random.pick(usual) | 1 << random.below(64),
        _ => random.pick(usual),
    }
}

type Held<'vm> = Pin<'vm, Hosted>;

/// One call with any arguments. What it answers is not looked at here.
fn call<'vm>(space: &Space<'vm>, random: &mut Random, pins: &mut Vec<Held<'vm>>) -> Option<Space<'vm>> {
    let [a, b, c] = [(); 3].map(|()| number(random));
    let access = random.pick(&[Access::Read, Access::Write, Access::Exec]);
    let mut bytes = [random.number() as u8; 9000];
    let part = &mut bytes[..random.below(9000) as usize];
    match random.below(23) {
        0..3 => {
            let flags = bits(random, &[PRIVATE, SHARED, PRIVATE | FIXED, SHARED | FIXED, PRIVATE | GROWSDOWN | FIXED]);
            _ = mmap(space, a, b, bits(random, &[NONE, READ, RW, RWX]), flags);
        }
        3 => _ = space.munmap(a, b),
        4..6 => _ = mprotect(space, a, b, bits(random, &[NONE, READ, RW, RWX, 8, 1 << 24])),
        6..9 => _ = mremap(space, a, b, c, bits(random, &[0, 1, 3, 5, 7]), number(random)),
        9..12 => {
            let advice = [0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 102, 103];
            _ = madvise(space, a, b, bits(random, &advice));
        }
        12 => _ = space.mincore(a, b, &mut |_, _| ()),
        13 => _ = space.brk(a),
        14 => space.set_brk(a),
        15 => _ = space.handle_fault(a, access),
        16 => _ = space.read(a, part),
        17 => _ = space.write(a, part),
        18 if random.chance(50) => _ = space.write_forced(a, part),
        18 => _ = space.update_u32(a, &mut |n| Some(n ^ 1)),
        19 => {
            let term = random.pick(&[Term::Short, Term::Long]);
            let (mut read, mut write) = ([const { None }; 3], [const { None }; 3]);
            if access == Access::Write && space.pin_range_mut(a, term, &mut write).is_ok() {
                pins.extend(write.into_iter().flatten().map(Held::from));
            } else if space.pin_range(a, term, &mut read).is_ok() {
                pins.extend(read.into_iter().flatten());
            }
            // From any space, in any order.
            pins.retain(|_| !random.chance(20));
        }
        20 => {
            // Sometimes it is forgotten, and stays in force.
            let subscription = space.subscribe();
            let found = subscription.lookup(space, a);
            _ = found.map(|found| subscription.is_current(space, &found));
            if random.chance(80) {
                space.unsubscribe(subscription).unwrap();
            }
        }
        21 if random.chance(50) => _ = space.test_young(a, b),
        21 if random.chance(50) => _ = space.test_and_clear_young(a, b),
        // Not all of a large range: a walk of holes is as long as it is asked to be.
        21 => _ = space.age_pages(a, b & 0xfff),
        _ if random.chance(25) => return space.fork().ok(),
        _ => _ = (space.page_state(a), space.vma(a)),
    }
    None
}

/// The limit on the address space keeps calls that walk over all pages of a
/// mapping short; what is above it is refused by the same arithmetic.
fn fuzz(seeds: std::ops::Range<u64>, nr_calls: u64, limit: Option<u64>) {
    for seed in seeds {
        let mut random = Random::new(seed);
        let vm = machine();
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let nr_free = vm.vmstat().nr_free_pages;
        let mut spaces = vec![vm.new_space().unwrap()];
        let mut pins = Vec::new();
        for i in 0..nr_calls {
            let which = random.below(spaces.len() as u64) as usize;
            let space = &spaces[which];
            space.set_limit_as(limit);
            if random.chance(30) {
                _ = mmap(space, BASE, 40 * PAGE, RW, random.pick(&[PRIVATE, SHARED]) | FIXED);
            }
            // On a CPU that runs the space, or from outside.
            let before = random.clone();
            let running = random.chance(80).then(|| cpu.enter(space).unwrap());
            let child = call(space, &mut random, &mut pins);
            if let Some(running) = &running {
                _ = running.write_u64(number(&mut random), 1);
                _ = running.read_u64(number(&mut random));
            }
            drop(running);
            let all: Vec<_> = spaces.iter().chain(&child).collect();
            let mut counts = vec![0; vm.nr_frames() as usize];
            if let Err(broken) = vm.check(&all, &mut counts) {
                panic!("seed {seed}, call {i}, {before:?}: {broken}");
            }
            spaces.extend(child);
            if spaces.len() > 4 {
                spaces.swap_remove(random.below(4) as usize);
            }
        }
        drop(spaces);
        check(&vm, &[]);
        drop(pins);
        check(&vm, &[]);
        assert_eq!(vm.vmstat().nr_free_pages, nr_free, "seed {seed}: frames are lost");
    }
}

#[test]
fn any_numbers() {
    fuzz(0..24, 250, Some(16 << 20));
}

/// So little memory that most calls that need a frame find none.
#[test]
fn any_numbers_and_hardly_any_memory() {
    for seed in 100..112 {
        let vm = Setup::PLAIN.vm(1, 512 << 10);
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let nr_free = vm.vmstat().nr_free_pages;
        let mut random = Random::new(seed);
        let space = vm.new_space().unwrap();
        space.set_limit_as(Some(16 << 20));
        let running = cpu.enter(&space).unwrap();
        let mut pins = Vec::new();
        for _ in 0..400 {
            if random.chance(30) {
                _ = mmap(&space, BASE, 200 * PAGE, RW, PRIVATE | FIXED);
            }
            let child = call(&space, &mut random, &mut pins);
            check(&vm, &std::iter::once(&space).chain(&child).collect::<Vec<_>>());
        }
        drop(running);
        drop((space, pins));
        check(&vm, &[]);
        assert_eq!(vm.vmstat().nr_free_pages, nr_free, "seed {seed}: frames are lost");
    }
}

/// Without a limit: mappings as large as the address space. Only calls whose time
/// does not depend on the number of pages.
#[test]
fn huge_mappings() {
    for seed in 0..16 {
        let vm = machine();
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let [a, b, c, d] = [(); 4].map(|()| number(&mut random));
            match random.below(7) {
                0 | 1 => _ = mmap(&space, a, b, RW, random.pick(&[PRIVATE, SHARED, PRIVATE | FIXED, SHARED | FIXED])),
                2 => _ = space.munmap(a, b),
                3 => _ = mprotect(&space, a, b, READ),
                4 => _ = mremap(&space, a, b, c, random.pick(&[0, 1, 3, 5]), d),
                5 => _ = madvise(&space, a, b, random.pick(&[DONTNEED, FREE, DONTFORK, WIPEONFORK, GUARD_REMOVE])),
                _ => {
                    // The far ends of what is mapped.
                    let mut ends = Vec::new();
                    space.maps(&mut |vma| ends.extend([vma.range.start.addr(), vma.range.end.addr() - 1]));
                    ends.iter().for_each(|addr| _ = space.handle_fault(*addr, Access::Write));
                    drop(space.fork());
                }
            }
            check(&vm, &[&space]);
        }
    }
}

const EBADF: i32 = Errno::EBADF.0;
const ENOMEM: i32 = Errno::ENOMEM.0;
const EFAULT: i32 = Errno::EFAULT.0;
const EEXIST: i32 = Errno::EEXIST.0;
const EINVAL: i32 = Errno::EINVAL.0;

/// Pages `P` to `P + 8` are mapped, as two mappings that are one; then nothing.
const P: u64 = 0x100_0000_0000;

/// Each case on a fresh space, so that each has the same one; a failure changes
/// nothing.
fn each_case<const N: usize>(cases: &[([u64; N], i32)], call: impl Fn(&Space<'_>, [u64; N]) -> Result<(), Errno>) {
    for (args, expected) in cases {
        let vm = machine();
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        for half in [P, P + 4 * PAGE] {
            mmap(&space, half, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        }
        let maps = || {
            let mut maps = Vec::new();
            space.maps(&mut |vma| maps.push(*vma));
            maps
        };
        let before = maps();
        let answer = call(&space, *args).map_or_else(|errno| errno.0, |()| 0);
        assert_eq!(answer, *expected, "{args:x?}");
        // Linux changes what comes before a hole, and says so.
        if answer != 0 && answer != ENOMEM {
            assert_eq!(maps(), before, "{args:x?}");
        }
        check(&vm, &[&space]);
    }
}

// What Linux 6.18 answers on x86-64 to these very calls.

#[test]
fn errno_of_mmap() {
    const NOREPLACE: u64 = 0x10_0000;
    let cases = [
        ([0, 0, RW, PRIVATE], EINVAL),
        ([0, PAGE, RW, 0x20], EINVAL),
        ([0, PAGE, RW, 0x23], EINVAL),
        ([0, PAGE, RW, SHARED | GROWSDOWN], EINVAL),
        ([0, MAX, RW, PRIVATE], ENOMEM),
        ([0, 1 << 47, RW, PRIVATE], ENOMEM),
        ([0, TOP, RW, PRIVATE], ENOMEM),
        ([1, PAGE, RW, PRIVATE | FIXED], EINVAL),
        ([TOP, PAGE, RW, PRIVATE | FIXED], ENOMEM),
        ([TOP - PAGE, 2 * PAGE, RW, PRIVATE | FIXED], ENOMEM),
        ([1 << 63, PAGE, RW, PRIVATE | FIXED], ENOMEM),
        ([1 << 63, PAGE, RW, PRIVATE], 0),
        ([P, PAGE, RW, PRIVATE | NOREPLACE], EEXIST),
        ([P + 8 * PAGE, PAGE, RW, PRIVATE | NOREPLACE], 0),
        ([P + 1, PAGE, RW, PRIVATE | NOREPLACE], EINVAL),
        ([0, PAGE, 0xff, PRIVATE], 0),
        ([0, PAGE, RW, 2], EBADF),
        ([0, PAGE, RW, PRIVATE | 0x4_0000], ENOMEM),
    ];
    each_case(&cases, |space, [a, b, c, d]| mmap(space, a, b, c, d).map(drop));
}

#[test]
fn errno_of_munmap() {
    let cases = [
        ([P + 1, PAGE], EINVAL),
        ([P, 0], EINVAL),
        ([P + 8 * PAGE, PAGE], 0),
        ([TOP, PAGE], EINVAL),
        ([TOP - PAGE, PAGE], 0),
        ([P, MAX], EINVAL),
        ([1 << 63, PAGE], EINVAL),
        ([P, MAX - PAGE + 1], EINVAL),
    ];
    each_case(&cases, |space, [a, b]| space.munmap(a, b).map_err(|e| e.errno()));
}

#[test]
fn errno_of_mprotect() {
    const GROWS_DOWN: u64 = 1 << 24;
    const GROWS_UP: u64 = 1 << 25;
    let cases = [
        ([P + 1, PAGE, READ], EINVAL),
        ([P, 0, READ], 0),
        ([P, 0, 0x100], 0),
        ([P, PAGE, 0x10], EINVAL),
        ([P, PAGE, READ | 0x10], EINVAL),
        ([P, PAGE, 1 << 32], EINVAL),
        ([P, PAGE, 8], 0),
        ([P, MAX, READ], ENOMEM),
        ([P, MAX - PAGE + 1, READ], ENOMEM),
        ([P + 8 * PAGE, PAGE, READ], ENOMEM),
        ([P + 4 * PAGE, 8 * PAGE, READ], ENOMEM),
        ([P, PAGE, READ | GROWS_DOWN], EINVAL),
        ([P, PAGE, GROWS_DOWN | GROWS_UP], EINVAL),
        ([MAX - PAGE + 1, PAGE, READ], ENOMEM),
        ([1 << 63, PAGE, READ], ENOMEM),
    ];
    each_case(&cases, |space, [a, b, c]| mprotect(space, a, b, c));
}

#[test]
fn errno_of_mremap() {
    let cases = [
        ([P + 1, PAGE, 2 * PAGE, 1, 0], EINVAL),
        ([P, PAGE, 0, 1, 0], EINVAL),
        ([P, 0, PAGE, 1, 0], EINVAL),
        ([P, PAGE, 2 * PAGE, 0, 0], ENOMEM),
        ([P, PAGE, 2 * PAGE, 8, 0], EINVAL),
        ([P, PAGE, 2 * PAGE, 2, P], EINVAL),
        ([P, PAGE, PAGE, 3, P], EINVAL),
        ([P, PAGE, PAGE, 3, P + 1], EINVAL),
        ([P, PAGE, PAGE, 3, TOP], EINVAL),
        ([P, PAGE, PAGE, 3, 1 << 63], EINVAL),
        ([P, PAGE, PAGE, 4, 0], EINVAL),
        ([P, PAGE, 2 * PAGE, 5, 0], EINVAL),
        ([P + 8 * PAGE, PAGE, 2 * PAGE, 1, 0], EFAULT),
        ([P, 5 * PAGE, 6 * PAGE, 1, 0], 0),
        ([P, PAGE, 1 << 47, 1, 0], EINVAL),
        ([P, PAGE, MAX, 1, 0], EINVAL),
        ([P, PAGE, MAX - PAGE + 1, 1, 0], EINVAL),
        // Shrinking by more than there is of the address space.
        ([P, 1 << 48, PAGE, 0, 0], EINVAL),
        ([P, TOP - P + PAGE, PAGE, 0, 0], EINVAL),
        ([P, MAX - PAGE + 1, PAGE, 0, 0], EINVAL),
        ([P, 1 << 63, PAGE, 1, 0], EINVAL),
        ([P + 7 * PAGE, PAGE, 2 * PAGE, 0, 0], 0),
    ];
    each_case(&cases, |space, [a, b, c, d, e]| mremap(space, a, b, c, d, e).map(drop));
}

#[test]
fn errno_of_madvise() {
    let cases = [
        ([P + 1, PAGE, DONTNEED], EINVAL),
        ([P, PAGE, 5], EINVAL),
        ([P, PAGE, 1 << 32 | DONTNEED], 0),
        ([P, PAGE, MAX], EINVAL),
        ([P, 0, DONTNEED], 0),
        ([P, 0, 99], EINVAL),
        ([P, MAX, DONTNEED], EINVAL),
        ([P, MAX - PAGE + 1, DONTNEED], EINVAL),
        ([P + 8 * PAGE, PAGE, DONTNEED], ENOMEM),
        ([P + 6 * PAGE, 4 * PAGE, DONTNEED], ENOMEM),
        ([P + 8 * PAGE, PAGE, POPULATE_READ], ENOMEM),
        ([P + 8 * PAGE, PAGE, POPULATE_WRITE], ENOMEM),
        ([P + 8 * PAGE, PAGE, GUARD_INSTALL], ENOMEM),
        ([P + 8 * PAGE, PAGE, 3], ENOMEM),
        ([1 << 63, PAGE, DONTNEED], ENOMEM),
        ([P, 1 << 63, POPULATE_READ], ENOMEM),
        ([P, PAGE, 9], EINVAL),
    ];
    each_case(&cases, |space, [a, b, c]| madvise(space, a, b, c));
}

#[test]
fn errno_of_mincore_and_of_accesses() {
    let cases = [
        ([P + 1, PAGE], EINVAL),
        ([P, 0], 0),
        ([P, 8 * PAGE], 0),
        ([P, 9 * PAGE], ENOMEM),
        ([TOP, PAGE], ENOMEM),
        ([P, MAX], ENOMEM),
        ([1 << 63, PAGE], ENOMEM),
    ];
    each_case(&cases, |space, [a, b]| space.mincore(a, b, &mut |_, _| ()).map_err(|e| e.errno()));
    let places = [
        ([P], 0),
        ([P + 8 * PAGE - 4], EFAULT),
        ([P - 8], EFAULT),
        ([TOP], EFAULT),
        ([TOP - 4], EFAULT),
        ([1 << 63], EFAULT),
        ([MAX - 3], EFAULT),
        ([0], EFAULT),
    ];
    each_case(&places, |space, [a]| space.read(a, &mut [0; 8]).map_err(|e| e.errno()));
    each_case(&places, |space, [a]| space.write(a, &[1; 8]).map_err(|e| e.errno()));
    each_case(&places, |space, [a]| space.write_forced(a, &[1; 8]).map_err(|e| e.errno()));
}

/// brk(2) has no errno at this level: it answers where the end is.
#[test]
fn brk_stays_where_it_cannot_move() {
    let vm = machine();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    assert_eq!(space.brk(P), 0, "there is no heap yet");
    space.set_brk(P + 5);
    mmap(&space, P + 16 * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
    for addr in [0, P, P + 4, P + 16 * PAGE, P + 15 * PAGE + 1, TOP, TOP + 1, 1 << 63, MAX] {
        assert_eq!(space.brk(addr), P + 5, "{addr:#x}");
        check(&vm, &[&space]);
    }
    for addr in [P + 6, P + 15 * PAGE, P + 2 * PAGE - 1, P + 5] {
        assert_eq!(space.brk(addr), addr);
        check(&vm, &[&space]);
    }
}
