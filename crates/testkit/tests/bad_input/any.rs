//! Calls with any arguments: each returns, and the invariants hold.

use super::*;

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

/// One call with any arguments. Its answer is not looked at here.
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
            if let Err(broken) = softfault_testkit::at_rest::check(&vm, &all, &mut counts) {
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
