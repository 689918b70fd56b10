//! I2: the CPU of a call changes in each `relax` and `park`.
//!
//! One thread is the CPU. At each wait it becomes the next one. State of one CPU
//! (its words, its lines of resident counts) may change only while the thread is that
//! CPU: on a real machine another thread would be writing them with plain stores. The
//! hook compares them with what they were at the last wait.

use super::Vm;
use crate::addr::{BlockId, PAGE_SIZE};
use crate::cpu::CpuData;
use crate::fault::FaultError;
use crate::linux::{Advice, MapFlags, MlockFlags, MremapFlags, Prot};
use crate::machine::{CpuId, Machine};
use crate::pin::Term;
use crate::policy::compact::CompactBudget;
use crate::policy::huge::{CowHuge, Enabled};
use crate::space::AddressSpace;
use crate::space::ops::ObjectPart;
use crate::testing::{self, FIXED_PRIVATE, Plain, RW, be};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

const NR_CPUS: u16 = 3;
/// 24 MiB: some blocks, and few enough to use all of them up.
const NR_FRAMES: u64 = 6144;
const HUGE: u64 = 2 << 20;
const AT: u64 = 0x10_0000_0000;
const ELSEWHERE: u64 = 0x10_4000_0000;
const SHARED_FIXED: MapFlags = MapFlags::SHARED.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);
const DONTNEED: Advice = Advice::DontNeed;
const FREE: Advice = Advice::Free;
const COLLAPSE: Advice = Advice::Collapse;
const GUARD_INSTALL: Advice = Advice::GuardInstall;
const GUARD_REMOVE: Advice = Advice::GuardRemove;
const MREMAP_TO: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
const DONTUNMAP: MremapFlags = MremapFlags::DONTUNMAP;

type Space = AddressSpace<'static, Plain>;

/// The words that only this CPU writes. Frame caches are a thief's, too, while `attention` is
/// raised (I10); a thief leaves them empty.
fn own_words(vm: &Vm<Plain>, space: &Space, id: u16) -> Vec<(&'static str, u64)> {
    let cpu = vm.cpu(CpuId(id));
    let CpuData {
        slot,
        active,
        hint,
        guarded,
        block,
        search,
        word,
        huge_search,
        fixed_block,
        batch_block,
        shared_block,
        ..
    } = cpu;
    let mut words = vec![
        ("slot", slot.get()),
        ("active", active.get()),
        ("guarded", guarded.get()),
        ("block", block.get()),
        ("search", search.get()),
        ("word", word.get()),
        ("huge_search", huge_search.get()),
        ("fixed_block", fixed_block.get()),
        ("batch_block", batch_block.get()),
        ("shared_block", shared_block.get()),
        ("hint.space", hint.space.get()),
        ("hint.generation", hint.generation.get()),
        ("hint.start", hint.start.get()),
        ("hint.stretch", hint.stretch.get()),
    ];
    words.extend(cpu.events.iter().map(|event| ("events", event.get())));
    words.extend(cpu.sizes.iter().flatten().map(|size| ("sizes", size.get())));
    words.extend(space.rss_line(CpuId(id)).counts.iter().map(|count| ("rss", count.get())));
    words
}

fn caches(vm: &Vm<Plain>, id: u16) -> [u64; 5] {
    let cpu = vm.cpu(CpuId(id));
    cpu.frame_caches().map(|cache| cache.mask.get())
}

/// The words when the thread became another CPU for the last time.
struct Watch {
    vm: &'static Vm<Plain>,
    space: &'static Space,
    me: u16,
    words: Vec<Vec<(&'static str, u64)>>,
    caches: Vec<[u64; 5]>,
}

impl Watch {
    fn new(vm: &'static Vm<Plain>, space: &'static Space) -> Watch {
        let mut watch = Watch { vm, space, me: 0, words: Vec::new(), caches: Vec::new() };
        watch.look();
        watch
    }

    fn look(&mut self) {
        self.words = (0..NR_CPUS).map(|id| own_words(self.vm, self.space, id)).collect();
        self.caches = (0..NR_CPUS).map(|id| caches(self.vm, id)).collect();
    }

    /// The thread stops being the CPU that it is and becomes the next one.
    fn go_on(&mut self) {
        for id in (0..NR_CPUS).filter(|id| *id != self.me) {
            let now = own_words(self.vm, self.space, id);
            let before = &self.words[usize::from(id)];
            let changed = now.iter().zip(before).find(|(now, before)| now != before);
            assert_eq!(changed, None, "CPU {} wrote what is CPU {id}'s", self.me);
            for (now, before) in caches(self.vm, id).into_iter().zip(self.caches[usize::from(id)]) {
                assert!(now == before || now == 0, "CPU {} used the frames of CPU {id}", self.me);
            }
        }
        self.look();
        self.me = (self.me + 1) % NR_CPUS;
        be(self.me);
    }
}

/// A space on a machine whose threads change the CPU at each wait.
struct Bench {
    vm: &'static Vm<Plain>,
    space: &'static Space,
}

impl Bench {
    fn new(thp: HugeKnobs) -> Bench {
        Bench::with_frames(NR_FRAMES, thp)
    }

    fn with_frames(nr_frames: u64, thp: HugeKnobs) -> Bench {
        be(0);
        let tunables = Tunables { thp, zero_ahead_blocks: 8, ..Tunables::default() };
        let vm: &'static Vm<Plain> = Box::leak(Box::new(testing::vm_of(NR_CPUS.into(), nr_frames, tunables).unwrap()));
        let space = Box::leak(Box::new(vm.new_space().unwrap()));
        let mut watch = Watch::new(vm, space);
        testing::on_relax(move || watch.go_on());
        Bench { vm, space }
    }

    /// Runs one operation; afterwards everything has to be right.
    fn step(&self, what: &str, op: impl FnOnce()) {
        op();
        // Whatever it wrote since its last wait.
        self.vm.machine.relax();
        self.check(what, &[self.space]);
    }

    /// The same for an operation that waits, so that it ends on another CPU.
    fn long_step(&self, what: &str, op: impl FnOnce()) {
        let before = self.vm.machine.nr_relaxed.get();
        op();
        assert!(self.vm.machine.nr_relaxed.get() > before, "{what} stayed on its CPU");
        self.step(what, || ());
    }

    fn check(&self, what: &str, spaces: &[&Space]) {
        let mut counts = vec![0; self.vm.nr_frames() as usize];
        assert_eq!(self.vm.check_in_test(spaces, &mut counts), Ok(()), "{what}");
        assert_eq!(self.vm.check_free_in_test(), Ok(()), "{what}");
        for id in 0..NR_CPUS {
            // I28: a holder ends on the word on which it began, whatever CPU it is on.
            assert_eq!(self.vm.cpu(CpuId(id)).held.get() & 0xffff, 0, "{what}: CPU {id} counts a holder");
        }
    }

    fn map(&self, at: u64, len: u64) {
        assert_eq!(self.space.mmap(at, len, RW, FIXED_PRIVATE), Ok(at));
    }

    /// Stores into every page, from several CPUs.
    fn fill(&self, at: u64, len: u64) {
        for (i, page) in (at..at + len).step_by(PAGE_SIZE as usize).enumerate() {
            self.space.write(page, &page.to_ne_bytes()).unwrap();
            if i % 37 == 36 {
                self.vm.machine.relax();
            }
        }
    }

    fn show(&self, at: u64, page: u64) {
        let mut bytes = [0; 8];
        self.space.read(at, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), page);
    }

    fn memory(&self) {
        let (vm, space) = (self.vm, self.space);
        self.step("mmap", || self.map(AT, 2 * HUGE));
        self.long_step("faults", || self.fill(AT, 2 * HUGE));
        self.step("mprotect", || {
            space.mprotect(AT, 2 * HUGE, Prot::READ).unwrap();
            space.mprotect(AT, 2 * HUGE, RW).unwrap();
        });
        self.step("madvise(MADV_FREE)", || space.madvise(AT + HUGE, HUGE, FREE).unwrap());
        self.step("madvise(MADV_COLLAPSE)", || space.madvise(AT, HUGE, COLLAPSE).unwrap());
        self.step("mlock", || {
            space.mlock(AT + 5 * PAGE_SIZE, HUGE, MlockFlags::empty()).unwrap();
            space.munlock(AT, 2 * HUGE).unwrap();
        });
        self.step("mremap", || {
            assert_eq!(space.mremap(AT, 2 * HUGE, 2 * HUGE, MREMAP_TO, ELSEWHERE), Ok(ELSEWHERE));
        });
        self.step("mremap of what is no huge page there", || {
            space.mremap(ELSEWHERE, HUGE, HUGE, MREMAP_TO, AT + 3 * PAGE_SIZE).unwrap();
            space.mremap(AT + 3 * PAGE_SIZE, HUGE, HUGE, MREMAP_TO | DONTUNMAP, ELSEWHERE).unwrap();
            space.munmap(AT + 3 * PAGE_SIZE, HUGE).unwrap();
        });
        self.show(ELSEWHERE + 7 * PAGE_SIZE, AT + 7 * PAGE_SIZE);
        self.step("guards", || {
            space.madvise(ELSEWHERE, HUGE, GUARD_INSTALL).unwrap();
            space.madvise(ELSEWHERE, HUGE, GUARD_REMOVE).unwrap();
        });
        self.step("madvise(MADV_DONTNEED)", || space.madvise(ELSEWHERE, 2 * HUGE, DONTNEED).unwrap());
        self.long_step("faults again", || self.fill(ELSEWHERE, HUGE));
        self.step("pins", || {
            let mut pins = [const { None }; 64];
            space.pin_range_mut(ELSEWHERE, Term::Long, &mut pins).unwrap();
            pins[3].as_ref().unwrap().write(0, &[1, 2, 3]);
            space.madvise(ELSEWHERE, HUGE / 2, DONTNEED).unwrap();
        });
        self.step("khugepaged_scan", || _ = space.khugepaged_scan(0, 4096));
        self.step("split_folio", || {
            let there = space.translate_at_rest(ELSEWHERE + HUGE - PAGE_SIZE).unwrap();
            vm.split_folio(there.pfn);
        });
        self.step("compact_step", || {
            let _ = vm.compact_step(&CompactBudget::BACKGROUND);
        });
        self.step("migrate_frame", || {
            let there = space.translate_at_rest(ELSEWHERE + HUGE - PAGE_SIZE).unwrap();
            let _ = vm.migrate_frame(there.pfn);
        });
        self.step("shrink_underused", || _ = vm.shrink_underused(u64::MAX));
        self.step("maps and smaps", || {
            space.maps(&mut |_| ());
            space.smaps(&mut |_| ());
        });
        self.step("munmap", || space.munmap(ELSEWHERE, 2 * HUGE).unwrap());
        assert_eq!(space.nr_vmas(), 0);
    }

    fn forks(&self) {
        self.map(AT, HUGE);
        self.long_step("faults", || self.fill(AT, HUGE));
        let before = self.vm.vmstat().nr_free_pages;
        let mut child = None;
        self.step("fork", || {
            child = Some(self.space.fork().unwrap());
            self.check("fork", &[self.space, child.as_ref().unwrap()]);
            // A write to a shared huge page copies it, or splits it.
            self.space.write(AT + 9 * PAGE_SIZE, &[1]).unwrap();
            self.check("copy", &[self.space, child.as_ref().unwrap()]);
            child.as_ref().unwrap().write(AT + 10 * PAGE_SIZE, &[1]).unwrap();
            self.check("copy", &[self.space, child.as_ref().unwrap()]);
            drop(child.take());
        });
        self.step("exit", || self.space.munmap(AT, HUGE).unwrap());
        assert!(self.vm.vmstat().nr_free_pages >= before);
    }

    fn objects(&self) {
        let object = self.vm.new_shared_object(HUGE).unwrap();
        let part = ObjectPart::new(&object);
        self.step("mmap of an object", || _ = self.space.mmap_object(AT, HUGE, RW, SHARED_FIXED, part).unwrap());
        self.long_step("faults of an object", || self.fill(AT, HUGE));
        self.step("discard", || object.discard(100..300));
        self.step("zero", || object.zero(0..HUGE / 2).unwrap());
        self.long_step("write of an object", || object.write(0, &vec![7; HUGE as usize / 2]).unwrap());
        self.step("truncation", || object.set_size_bytes(PAGE_SIZE));
        self.step("munmap of an object", || self.space.munmap(AT, HUGE).unwrap());
        drop(object);
        self.step("the end of an object", || ());
    }

    fn zeroing_ahead(&self) {
        // Among the home blocks of some CPU there is a free block that is not zero.
        let zero_ahead = || {
            self.vm.machine.relax();
            self.vm.zero_ahead(2) > 0
        };
        self.long_step("zero_ahead", || assert!((0..NR_CPUS).any(|_| zero_ahead())));
    }

    /// Faults until one is refused, and a fork that is.
    fn exhaustion(&self) {
        let len = NR_FRAMES * PAGE_SIZE;
        self.map(AT, len);
        self.long_step("faults to the last frame", || {
            let mut pages = (AT..AT + len).step_by(PAGE_SIZE as usize);
            let refused = pages.find_map(|page| self.space.write(page, &[1]).err()).unwrap();
            assert_eq!(refused.fault, FaultError::OutOfFrames);
        });
        assert!(self.vm.vmstat().nr_free_pages < 2, "a fault was refused with frames free");
        self.step("fork without frames", || assert!(self.space.fork().is_err()));
        self.long_step("munmap", || self.space.munmap(AT, len).unwrap());
    }
}

/// Everything, with the CPU's bit set in the space or not.
fn all_operations(thp: HugeKnobs) {
    let bench = Bench::new(thp);
    bench.step("nothing", || ());
    let before = bench.vm.vmstat().nr_free_pages;
    for _ in 0..2 {
        bench.memory();
        bench.forks();
        bench.objects();
        bench.exhaustion();
        bench.zeroing_ahead();
    }
    let nr_moves = bench.vm.machine.nr_relaxed.get();
    assert!(nr_moves > 1000, "the thread became another CPU {nr_moves} times");
    // Tree nodes stay with the space, and the huge zero frame for ever.
    let kept = before - bench.vm.vmstat().nr_free_pages;
    assert!(kept < 8, "{kept} frames were lost");
}

/// No frame, or none of the size that is wanted, is in the blocks at which a search looks
/// first. The CPU may be another one in the middle of whatever answers.
#[test]
fn a_search_far_away_ends_on_any_cpu() {
    let bench = Bench::with_frames(512 * 300, HugeKnobs { enabled: Enabled::Always, ..HugeKnobs::DEFAULT });
    // Each CPU believes that it has blocks of zeroes.
    (0..NR_CPUS).for_each(|_| bench.step("zeroing ahead", || _ = bench.vm.zero_ahead(1)));
    let huge = bench.vm.claim_whole(BlockId(250)).unwrap();
    bench.vm.hold_one_in_each_block(100, 7);
    bench.vm.give_back_huge(huge.first, huge.content);
    for _ in 0..NR_CPUS {
        bench.step("a huge frame in one block of 300", || {
            let found = bench.vm.obtain_huge().unwrap();
            assert_eq!(found.first, huge.first);
            bench.vm.give_back_huge(found.first, found.content);
        });
    }
    bench.vm.hold_one_in_each_block(100, 8);
    bench.step("mmap", || bench.map(AT, 4 * HUGE));
    bench.step("a fault without a free block", || bench.space.write(AT, &[1]).unwrap());
    bench.vm.age(1, 7);
    bench.step("faults in aged memory", || bench.fill(AT + HUGE, HUGE));
    bench.step("zeroing ahead", || _ = bench.vm.zero_ahead(1));
    let cpus = (0..NR_CPUS).map(|id| bench.vm.cpu(CpuId(id)));
    let blocks: Vec<u64> = cpus.map(|cpu| cpu.block.get()).filter(|block| *block != 0).collect();
    let nr_reserved = bench.vm.frames.blocks.iter().filter(|block| block.owner() != 0).count();
    assert_eq!(blocks.len(), nr_reserved, "a block is reserved for a CPU that has another: {blocks:?}");
    // Few frames are free, and they may be anywhere.
    bench.vm.age(0, 7);
    bench.step("a refusal", || assert!(bench.space.write(AT + 2 * HUGE, &[1; 2 << 20]).is_err()));
}

#[test]
fn a_call_goes_on_on_another_cpu_with_small_pages() {
    all_operations(HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT });
}

#[test]
fn a_call_goes_on_on_another_cpu_with_huge_pages() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        all_operations(HugeKnobs { enabled: Enabled::Always, cow, use_zero_page: false, ..HugeKnobs::DEFAULT });
    }
}
