//! The hosted machine as a whole.

use crate::arena::Arena;
use crate::barrier::Barrier;
use crate::bbm::Violations;
use crate::config::{HostedConfig, HostedError, Mode};
use crate::copies::Copies;
use crate::counts::TlbStats;
use crate::cpu::{CPU_BITS, CpuState, CpuStats, as_no_cpu, bound};
use crate::file::Files;
use crate::locks::HeldLocks;
use crate::park::Parking;
use crate::swap::Swap;
use crate::ticks;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use softfault::addr::Pfn;
use softfault::machine::{CpuId, SpaceTag};
use softfault::table::format::{Format, X86_64};
use softfault::{Notice, PAGE_SIZE};
use std::sync::OnceLock;
use std::time::Instant;

/// Receives the notices of all spaces: see [`Hosted::on_notice`].
pub type Subscriber = Box<dyn Fn(SpaceTag, &Notice) -> bool + Send + Sync>;

/// Called where the core waits: see [`Hosted::on_wait`].
pub type WaitHook = Box<dyn Fn() + Send + Sync>;

/// A machine in this process; any number of them may exist.
pub struct Hosted<F: Format = X86_64> {
    pub(crate) arena: Arena,
    /// Whether the machine reports to the next `Vm` that all frames are zero.
    pub(crate) are_zero: bool,
    /// The machine's number shifted past the CPU: what a bound thread's cell
    /// begins with (E3).
    pub(crate) tag: u64,
    pub(crate) mode: Mode,
    pub(crate) software_ad_bits: bool,
    pub(crate) top_leaf: u8,
    pub(crate) barrier: Barrier,
    pub(crate) cpus: Box<[CpuState]>,
    pub(crate) parking: Parking,
    pub(crate) violations: Option<Violations>,
    pub(crate) subscriber: OnceLock<Subscriber>,
    pub(crate) notices_lost: AtomicU64,
    pub(crate) wait_hook: OnceLock<WaitHook>,
    pub(crate) swap: Swap,
    pub(crate) copies: Copies,
    pub(crate) files: Files,
    pub(crate) started: Instant,
    format: PhantomData<fn() -> F>,
}

impl Hosted<X86_64> {
    /// Creates a machine with x86-64's four-level page tables.
    pub fn new(config: HostedConfig) -> Result<Hosted<X86_64>, HostedError> {
        Hosted::with_format(config)
    }
}

impl<F: Format> Hosted<F> {
    /// Creates a machine with page tables of format `F`.
    pub fn with_format(config: HostedConfig) -> Result<Hosted<F>, HostedError> {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        config.check()?;
        let barrier = config.barrier.choose().ok_or(HostedError::Barrier)?;
        let arena = Arena::new(config.arena_bytes, config.spare_bytes, config.huge)
            .map_err(|errno| HostedError::Map(config.arena_bytes, errno))?;
        let cpu = |i: usize| CpuState::new(config.tlb_entries, config.seed.wrapping_add((i as u64) << 32));
        Ok(Hosted {
            arena,
            are_zero: config.zeroed,
            tag: (LAST_NUMBER.fetch_add(1, Relaxed) + 1) << CPU_BITS,
            mode: config.mode,
            software_ad_bits: config.software_ad_bits,
            top_leaf: config.top_leaf.min(F::TOP_LEAF),
            barrier,
            cpus: (0..config.nr_cpus).map(cpu).collect(),
            parking: Parking::default(),
            violations: config.strict_bbm.then(Violations::default),
            subscriber: OnceLock::new(),
            notices_lost: AtomicU64::new(0),
            wait_hook: OnceLock::new(),
            swap: Swap::new((config.swap_bytes / PAGE_SIZE) as u32),
            copies: Copies::new(),
            files: Files::default(),
            started: Instant::now(),
            format: PhantomData,
        })
    }

    /// Zeroes all memory, and reports that to the next [`Vm`](softfault::Vm).
    pub fn zero(&mut self) {
        self.arena.zero();
        self.are_zero = true;
    }

    /// Stores `word` at the start of every frame, so that no frame is zero for the next
    /// [`Vm`](softfault::Vm).
    pub fn soil(&mut self, word: u64) {
        self.are_zero = false;
        for frame in 0..self.arena.nr_frames() {
            self.arena.word(Pfn(frame as u32), 0).store(word, Relaxed);
        }
    }

    /// Makes writes to the swap area fail, or reads from it, until the next call. A page
    /// whose write has failed cannot be read.
    pub fn fail_swap(&self, writes: bool, reads: bool) {
        self.swap.fail(writes, reads);
    }

    /// Lets the memory of a frame fail that the core copies: after `nr_left` more copies the next one fails, and all later ones
    /// of the same frame. With `None` no copy fails from now on.
    pub fn fail_copy(&self, nr_left: Option<u64>) {
        self.copies.fail_after(nr_left);
    }

    /// The frame that has failed since the last call of [`fail_copy`](Self::fail_copy).
    pub fn failed_copy(&self) -> Option<Pfn> {
        self.copies.failed()
    }

    /// Passes all notices of spaces with a subscription to `subscriber`, which cannot be
    /// removed. Returns it as an error if the machine already has one.
    /// [`Machine::notify`](softfault::Machine::notify) says what it may do. A panic of the
    /// subscriber counts as the answer `false`: see [`notices_lost`](Self::notices_lost).
    pub fn on_notice(&self, subscriber: Subscriber) -> Result<(), Subscriber> {
        self.subscriber.set(subscriber)
    }

    /// Number of panics of the subscriber, including those of calls that
    /// [`Machine::notify`](softfault::Machine::notify) forbids. The operation that sent the
    /// notice continues, since half an operation would leave the space broken.
    pub fn notices_lost(&self) -> u64 {
        self.notices_lost.load(Relaxed)
    }

    /// Calls `hook` wherever the core lets others run: in each turn of a wait, instead of
    /// parking, and before barriers and shootdowns. It is for tests that schedule threads.
    /// The thread is unbound meanwhile: a hook that calls the core panics. Returns the hook
    /// as an error if the machine already has one.
    ///
    /// A hook may panic to fail its test; a port may not (M8). The panic unwinds through the
    /// core in the middle of an operation: locks stay held, entries stay owned, and TLBs may
    /// still translate to free frames. After that the machine is unusable: call nothing that
    /// takes its spaces, pins or guards, run no program on it, and leak its spaces
    /// ([`ManuallyDrop`](core::mem::ManuallyDrop)), since dropping one calls the core. The
    /// machine itself may be dropped after its last thread has ended.
    pub fn on_wait(&self, hook: WaitHook) -> Result<(), WaitHook> {
        self.wait_hook.set(hook)
    }

    /// Answers other CPUs. Returns whether a hook was called.
    pub(crate) fn waits(&self) -> bool {
        ticks::answered();
        if cfg!(debug_assertions) {
            self.assert_outside();
        }
        self.wait_hook.get().inspect(|hook| as_no_cpu(hook)).is_some()
    }

    /// Panics if the calling CPU is in a section of the core. A CPU that waits for the end
    /// of the section would take the answer for the end, or wait for ever (I8, M3).
    fn assert_outside(&self) {
        let Some((frame, offset)) = ticks::section() else { return };
        let is_outside = self.arena.word(frame, offset).load(Relaxed).is_multiple_of(2);
        assert!(is_outside, "I8: the core waits in a section");
    }

    /// The locks that the calling CPU has. A thread that builds a `Vm` may be no CPU.
    pub(crate) fn locks(&self) -> Option<&HeldLocks> {
        self.cpus.get((bound() ^ self.tag) as usize).map(|cpu| &cpu.locks)
    }

    /// How invalidations reach other CPUs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The implementation of the heavy barrier; never [`Barrier::Auto`].
    pub fn barrier(&self) -> Barrier {
        self.barrier
    }

    /// Counts of `cpu`; `None` if there is no such CPU.
    pub fn stats(&self, cpu: CpuId) -> Option<CpuStats> {
        let state = self.cpus.get(cpu.0 as usize)?;
        let (served, overflows) = state.mailbox.counts();
        Some(CpuStats { walks: state.own.counters.walks(), served, overflows })
    }

    /// Counts of the TLB of `cpu` since the last reset; `None` if there is no such CPU.
    /// While the CPU runs, the counts may be of different moments.
    pub fn tlb_stats(&self, cpu: CpuId) -> Option<TlbStats> {
        let state = self.cpus.get(cpu.0 as usize)?;
        Some(state.baseline.stats::<F>(&state.own.counters))
    }

    /// Resets the counts of the TLB of `cpu`. Its translations stay, so a second pass over
    /// the same memory can be counted separately. `false` if there is no such CPU.
    pub fn reset_tlb_stats(&self, cpu: CpuId) -> bool {
        let state = self.cpus.get(cpu.0 as usize);
        state.inspect(|state| state.baseline.reset(&state.own.counters)).is_some()
    }

    /// With `strict_bbm`: the number of TLB fills while a contradicting translation of the
    /// same page was live, and a description of the first. Otherwise `(0, None)`.
    pub fn violations(&self) -> (u64, Option<String>) {
        self.violations.as_ref().map_or((0, None), Violations::report)
    }
}
