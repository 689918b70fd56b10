//! Several CPUs make, split, share, move, pin and collapse huge pages at once in several
//! spaces. The test knows the content of each page at any time.
//!
//! Each space has ranges of 2 MiB that are divided into chunks. The holder of a chunk's
//! lock may change its pages and knows their content, so CPUs work in the same huge pages
//! at once. Without a lock a CPU may read anywhere, collapse, and change the knobs. Each
//! page has a stamp: its space, its address, and a unique number. A reader without a lock
//! must find zero or a stamp of that address.
//!
//! Memory fails under all of them: no more pages than there were entries of the frames that failed, and each
//! until it is replaced.
//!
//! At rest points the core's checker looks at everything; at the end each frame has
//! to be back. `chunk.rs` and `whole.rs` have the steps under locks,
//! `background.rs` what changes no content, `child.rs` forks.

mod background;
mod child;
mod chunk;
mod touch;
mod whole;

use crate::daemons::Daemon;
use crate::fatal::as_one_of_several;
use crate::formats::Tested;
use crate::hosted::{HugeCounts, nr_free_pages};
use crate::judge::{READ_EVERY, check, check_after_exit};
use crate::op::{Call, Op, PAGE};
use crate::random::Random;
use child::Child;
use chunk::{Chunk, Loose};
use softfault::table::format::Format;
use softfault::{AddressSpace, Advice, CpuId, FaultLocking, NewVmError, Tunables, Vm};
use softfault_host::{CpuGuard, Hosted, HostedError, Mode, Running};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// Where the stretches of a space begin.
const BASE: u64 = 0x10_0000_0000;
/// Pages of a huge page.
const HUGE_PAGES: u64 = 512;
/// Pages of a chunk.
const CHUNK_PAGES: u64 = 64;
const NR_CHUNKS: u64 = HUGE_PAGES / CHUNK_PAGES;
/// Stretches of a space.
const NR_STRETCHES: u64 = 4;
const NR_SPACES: u64 = 3;
/// Children alive at once.
const MAX_CHILDREN: usize = 6;

const HUGEPAGE: u64 = Advice::HugePage.to_linux();

/// How long a round is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// CPUs.
    pub nr_cpus: usize,
    /// Times that all CPUs come to rest.
    pub nr_phases: u64,
    /// Steps of each CPU between two rests.
    pub nr_steps: u64,
}

impl Size {
    /// Of a round that is one of many.
    pub const USUAL: Size = Size::of(4);

    /// The same for so many CPUs, with as many steps of each. A rest, which reads all
    /// free frames (I20), follows 1,000 steps of all CPUs.
    pub const fn of(nr_cpus: usize) -> Size {
        let nr_phases = nr_cpus as u64;
        Size { nr_cpus, nr_phases, nr_steps: READ_EVERY as u64 / nr_phases }
    }
}

/// Runs the round of `seed`.
///
/// # Errors
///
/// The first defect.
pub fn run<F: Tested>(seed: u64, size: Size) -> Result<HugeCounts, String> {
    let vm = machine::<F>(seed, size.nr_cpus)?;
    let (before, world) = {
        let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        if seed.is_multiple_of(5) {
            // No block is whole: what wants a huge page falls back.
            vm.age(56, seed);
        }
        (nr_free_pages(&vm), World::new(&vm)?)
    };
    let played = (0..size.nr_phases).try_for_each(|phase| world.play(seed, phase, size).and_then(|()| world.rest()));
    if played.is_err() {
        // A broken space may not survive its removal.
        core::mem::forget(world);
        return played.map(|()| HugeCounts::default());
    }
    let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
    drop(world);
    if let Some(text) = check_after_exit(&vm) {
        return Err(text);
    }
    let after = nr_free_pages(&vm);
    if after != before {
        return Err(format!("{before} frames were free before and {after} after"));
    }
    if let (nr @ 1.., first) = vm.machine().violations() {
        return Err(format!("{nr} violations of break before make: {}", first.unwrap_or_default()));
    }
    let mut counts = HugeCounts::default();
    counts.add(&vm);
    Ok(counts)
}

fn machine<F: Tested>(seed: u64, nr_cpus: usize) -> Result<Vm<Hosted<F>>, String> {
    let mode = [Mode::Interrupt, Mode::Broadcast][seed as usize % 2];
    // Mostly the fault-locking mode that has all sizes; the others have locks of their own.
    let fault_locking = if seed % 4 < 2 { FaultLocking::Lockfree } else { FaultLocking::ALL[seed as usize / 4 % 4] };
    let strict_bbm = !seed.is_multiple_of(3);
    let config = F::config()
        .with_nr_cpus(nr_cpus)
        .with_mode(mode)
        .with_arena_bytes(256 << 20)
        .with_swap_bytes(64 << 20)
        .with_strict_bbm(strict_bbm)
        .with_tlb_entries(64);
    let hosted = Hosted::with_format(config).map_err(|e: HostedError| e.to_string())?;
    let tunables = Tunables::default().with_fault_locking(fault_locking);
    Vm::new(hosted, tunables).map_err(|e: NewVmError| e.to_string())
}

/// A space with its chunks.
struct Root<'vm, F: Format> {
    space: AddressSpace<'vm, Hosted<F>>,
    chunks: Vec<Mutex<Chunk<'vm, F>>>,
}

struct World<'vm, F: Format> {
    vm: &'vm Vm<Hosted<F>>,
    roots: Vec<Root<'vm, F>>,
    children: Mutex<Vec<Child<'vm, F>>>,
    /// Pins whose page has gone, for any CPU to release.
    loose: Mutex<Vec<Loose<'vm, F>>>,
    /// Numbers for stamps and children.
    numbers: AtomicU64,
    /// Entries of frames whose memory has failed, and pages of which somebody was told so.
    nr_failed: AtomicU64,
    nr_found: AtomicU64,
}

/// One CPU at work.
struct Worker<'a, 'vm, F: Format> {
    world: &'a World<'vm, F>,
    random: Random,
}

type Done = Result<(), String>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` where another CPU has it: nobody waits for a second lock.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl<'vm, F: Format> World<'vm, F> {
    fn new(vm: &'vm Vm<Hosted<F>>) -> Result<World<'vm, F>, String> {
        let roots = (0..NR_SPACES).map(|i| {
            let space = vm.new_space().map_err(|e| e.to_string())?;
            let chunks = (0..NR_STRETCHES * NR_CHUNKS)
                .map(|chunk| Mutex::new(Chunk::new(i + 1, BASE + chunk * CHUNK_PAGES * PAGE)))
                .collect();
            Ok(Root { space, chunks })
        });
        Ok(World {
            vm,
            roots: roots.collect::<Result<_, String>>()?,
            children: Mutex::default(),
            loose: Mutex::default(),
            numbers: AtomicU64::new(1),
            nr_failed: AtomicU64::default(),
            nr_found: AtomicU64::default(),
        })
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Somebody was told for the first time that the memory of his page has failed.
    fn found_failed(&self) {
        self.nr_found.fetch_add(1, Relaxed);
    }

    /// All CPUs at once, until each has done its steps or one has failed.
    fn play(&self, seed: u64, phase: u64, size: Size) -> Done {
        let stop = AtomicBool::new(false);
        let play = |i: usize| -> Done {
            let cpu = self.vm.machine().bind(CpuId(i as u16)).map_err(|e| e.to_string())?;
            let random = Random::new(seed << 20 | phase << 10 | i as u64);
            let done = Worker { world: self, random }.work(&cpu, size.nr_steps, &stop);
            if done.is_err() {
                stop.store(true, Relaxed);
            }
            done.map_err(|what| format!("phase {phase}, CPU {i}: {what}"))
        };
        thread::scope(|scope| {
            let play = &play;
            let threads: Vec<_> =
                (0..size.nr_cpus).map(|i| scope.spawn(move || as_one_of_several(|| play(i)))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a CPU's thread panicked".into())))
                .fold(Ok(()), Result::and)
        })
    }

    /// Every invariant, and every page of every chunk.
    fn rest(&self) -> Done {
        let cpu = self.vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        let children = lock(&self.children);
        let spaces = self.roots.iter().map(|root| &root.space).chain(children.iter().map(|child| &child.space));
        if let Some(text) = check(self.vm, spaces) {
            return Err(text);
        }
        for root in &self.roots {
            let running = cpu.enter(&root.space).map_err(|e| e.to_string())?;
            root.chunks.iter().try_for_each(|chunk| lock(chunk).look_at_all(self, &running))?;
        }
        let [nr_failed, nr_found] = [&self.nr_failed, &self.nr_found].map(|nr| nr.load(Relaxed));
        if nr_found > nr_failed {
            return Err(format!("{nr_failed} pages have failed, and {nr_found} were found"));
        }
        Ok(())
    }
}

impl<'a, 'vm, F: Format> Worker<'a, 'vm, F> {
    fn work(&mut self, cpu: &CpuGuard<'_, F>, nr_steps: u64, stop: &AtomicBool) -> Done {
        let mut nr_left = nr_steps;
        while nr_left > 0 && !stop.load(Relaxed) {
            if self.random.chance(12) {
                nr_left -= 1;
                self.with_child(cpu)?;
                continue;
            }
            let root = &self.world.roots[self.random.below(NR_SPACES) as usize];
            let running = cpu.enter(&root.space).map_err(|e| e.to_string())?;
            for _ in 0..nr_left.min(1 + self.random.below(20)) {
                nr_left -= 1;
                self.step(root, &running)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, root: &'a Root<'vm, F>, running: &Running<'_, F>) -> Done {
        match self.random.below(100) {
            0..50 => {
                let i = self.random.below(root.chunks.len() as u64) as usize;
                let Some(mut chunk) = try_lock(&root.chunks[i]) else { return Ok(()) };
                for _ in 0..1 + self.random.below(6) {
                    chunk.step(self.world, &root.space, running, &mut self.random)?;
                }
                Ok(())
            }
            50..60 => self.whole(root, running),
            60..64 => self.shift(root, running),
            64..72 => {
                self.collapse(running);
                Ok(())
            }
            72..88 => self.peek(root, running),
            88..90 => {
                Daemon::any(&mut self.random).run(self.world.vm);
                Ok(())
            }
            90..94 => self.fork(root, running),
            94..96 => self.release_loose(),
            97 => {
                self.compact();
                Ok(())
            }
            98 => {
                self.fail_one(root);
                Ok(())
            }
            96 => {
                self.turn_knobs();
                Ok(())
            }
            _ => {
                Worker::walk_about(running);
                Ok(())
            }
        }
    }

    /// Any place, without a lock: zero, or a stamp of that place, or a fault.
    fn peek(&mut self, root: &Root<'vm, F>, running: &Running<'_, F>) -> Done {
        for _ in 0..8 {
            let page = self.random.below(NR_STRETCHES * HUGE_PAGES);
            let addr = BASE + page * PAGE + self.random.pick(&[0, 4088]);
            match running.read_u64(addr) {
                Ok(0) | Err(_) => {}
                Ok(seen) if touch::is_stamp(seen, self.space_tag(root), page % CHUNK_PAGES) => {}
                Ok(seen) => return Err(format!("{addr:#x} of space {} shows {seen:#x}", self.space_tag(root))),
            }
        }
        Ok(())
    }

    fn space_tag(&self, root: &Root<'vm, F>) -> u64 {
        let same = |other: &Root<'vm, F>| core::ptr::eq(other, root);
        self.world.roots.iter().position(same).map_or(0, |i| i as u64 + 1)
    }

    /// Releases a pin whose page has gone, on this CPU.
    fn release_loose(&mut self) -> Done {
        let loose = lock(&self.world.loose).pop();
        loose.map_or(Ok(()), Loose::release)
    }
}

/// The step that a text shows.
fn text_of(call: Call, args: &[u64]) -> String {
    Op::new(0, call, args).to_string()
}
