//! The errno of each call and argument that is refused.

use super::*;

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

// Answers of Linux 6.18 on x86-64 to these very calls.

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
