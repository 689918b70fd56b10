//! Two CPUs of which one runs at a time. The turn passes where the core lets
//! others run ([`Hosted::on_wait`](softfault_host::Hosted::on_wait)), so that a
//! test can name the moment at which the second CPU begins.

use super::{Hosted, Running, Setup, Space, check};
use softfault::{CpuId, Vm};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

std::thread_local! {
    /// Which of the two CPUs the thread is, while turns are taken.
    static CPU: Cell<Option<usize>> = const { Cell::new(None) };
}

/// More waits than an operation alone has: it waits for ever.
const WAITS_ALONE_MAX: u64 = 100_000;

#[derive(Default)]
struct State {
    turn: usize,
    done: [bool; 2],
    /// Waits of one CPU after the other one's part has ended.
    nr_waits_alone: u64,
    /// A CPU's part has panicked: the other one must not wait for what it owns.
    failed: bool,
    /// Waits of CPU 0 so far, and the one at which CPU 1 begins.
    nr_waits: u64,
    begin: u64,
}

#[derive(Default)]
struct Turns {
    state: Mutex<State>,
    passed: Condvar,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits for the first turn. CPU 1 has it before, until it gets here.
    fn begin(&self, cpu: usize) {
        CPU.set(Some(cpu));
        let mut state = self.lock();
        if cpu == 1 {
            state.turn = 0;
            self.passed.notify_all();
        }
        drop(self.passed.wait_while(state, |state| state.turn != cpu).unwrap());
    }

    fn wait_for_end_of(&self, cpu: usize) {
        drop(self.passed.wait_while(self.lock(), |state| !state.done[cpu]).unwrap());
    }

    /// The calling CPU waits for something: the other one's turn.
    fn pass(&self) {
        let Some(cpu) = CPU.get() else { return };
        let mut state = self.lock();
        state.nr_waits += u64::from(cpu == 0);
        let other_may_run = !state.done[1 - cpu] && (cpu == 1 || state.nr_waits > state.begin);
        if other_may_run {
            state.turn = 1 - cpu;
            self.passed.notify_all();
            state = self.passed.wait_while(state, |state| state.turn != cpu).unwrap();
        }
        let failed = state.failed;
        state.nr_waits_alone += u64::from(state.done[1 - cpu]);
        let is_stuck = state.nr_waits_alone > WAITS_ALONE_MAX;
        drop(state);
        assert!(!is_stuck, "CPU {cpu} waits for something that nobody ends");
        assert!(!failed, "the other CPU has failed");
    }
}

/// Passes the turn on for the last time, also when the CPU's part panics.
struct End<'a>(&'a Turns, usize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        CPU.set(None);
        let mut state = self.0.lock();
        state.done[self.1] = true;
        state.failed |= thread::panicking();
        state.turn = 1 - self.1;
        self.0.passed.notify_all();
    }
}

/// A machine of two CPUs that take turns.
pub struct TwoCpus {
    pub vm: Vm<Hosted>,
    turns: Arc<Turns>,
}

impl TwoCpus {
    pub fn new(arena_bytes: u64) -> TwoCpus {
        TwoCpus::over(Setup::PLAIN.vm(2, arena_bytes))
    }

    pub fn over(vm: Vm<Hosted>) -> TwoCpus {
        let turns = Arc::<Turns>::default();
        let hook = turns.clone();
        assert!(vm.machine().on_wait(Box::new(move || hook.pass())).is_ok(), "a machine has one hook");
        TwoCpus { vm, turns }
    }

    /// Runs `prepare` alone, then `first` on CPU 0 and `second` on CPU 1, which
    /// begins at wait `begin` of the first, or after it; then `look` alone. Says
    /// whether the second began while the first was at work.
    pub fn play<A, B: Send>(
        &self,
        begin: u64,
        prepare: impl FnOnce(&Space<'_>),
        first: impl FnOnce(&Space<'_>) -> A,
        second: impl FnOnce(&Space<'_>) -> B + Send,
        look: impl FnOnce(&Space<'_>, A, B),
    ) -> bool {
        self.play_running(
            begin,
            |running| prepare(running.space()),
            |running| first(running.space()),
            |running| second(running.space()),
            |running, a, b| look(running.space(), a, b),
        )
    }

    /// The same for what uses translations, too.
    pub fn play_running<A, B: Send>(
        &self,
        begin: u64,
        prepare: impl FnOnce(&Running<'_>),
        first: impl FnOnce(&Running<'_>) -> A,
        second: impl FnOnce(&Running<'_>) -> B + Send,
        look: impl FnOnce(&Running<'_>, A, B),
    ) -> bool {
        let cpu = self.vm.machine().bind(CpuId(0)).unwrap();
        // Not ended where a part fails, since that would wait for what it owns.
        let kept = ManuallyDrop::new(self.vm.new_space().unwrap());
        let space = &*kept;
        let running = cpu.enter(space).unwrap();
        prepare(&running);
        *self.turns.lock() = State { turn: 1, begin, ..State::default() };
        let (a, b) = thread::scope(|scope| {
            let play_second = || {
                let cpu = self.vm.machine().bind(CpuId(1)).unwrap();
                let running = cpu.enter(space).unwrap();
                self.turns.begin(1);
                let end = End(&self.turns, 1);
                let result = second(&running);
                drop(end);
                // Until then it is one of the CPUs that the first has to wait for.
                self.turns.wait_for_end_of(0);
                drop(running);
                result
            };
            let playing = scope.spawn(play_second);
            self.turns.begin(0);
            let end = End(&self.turns, 0);
            let a = first(&running);
            drop(end);
            (a, playing.join().unwrap())
        });
        let overlapped = self.turns.lock().nr_waits > begin;
        check(&self.vm, &[space]);
        look(&running, a, b);
        check(&self.vm, &[space]);
        drop(running);
        drop(ManuallyDrop::into_inner(kept));
        overlapped
    }
}
