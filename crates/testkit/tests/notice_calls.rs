//! M1: a subscriber may call the core back. Each call works, or panics before it has
//! done anything; nothing waits for ever.
#![forbid(unsafe_code)]

#[path = "notice_calls/calls.rs"]
mod calls;
mod common;
#[path = "notice_calls/stage.rs"]
mod stage;

use calls::{CALLS, Call, LEFT_OUT, May};
use common::*;
use softfault::{CpuId, Notice};
use softfault_host::CpuGuard;
use stage::{Moment, Stage};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const REFUSAL: &str = "I8: called back from Machine::notify";

/// The calls that the subscriber is to make, and their results.
#[derive(Default)]
struct Script {
    at: Option<Moment>,
    calls: Vec<&'static Call>,
    nr_refused: usize,
    nr_free: u64,
    failure: Option<String>,
}

/// The present step, for those who wait for it: the round, the call, since when.
#[derive(Clone)]
struct Step(Arc<Mutex<(String, &'static str, Instant)>>);

impl Step {
    fn is(&self, round: String, call: &'static str) {
        *self.0.lock().unwrap() = (round, call, Instant::now());
    }
    fn calls(&self, call: &'static str) {
        let mut step = self.0.lock().unwrap();
        (step.1, step.2) = (call, Instant::now());
    }
}

/// One machine with its subscriber; the calling thread is its CPU 0.
struct Play {
    stage: &'static Stage,
    script: Arc<Mutex<Script>>,
    step: Step,
    _cpu: CpuGuard<'static>,
}

impl Play {
    fn new(step: Step) -> Play {
        let vm = stage::machine();
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let stage = Stage::new(vm);
        let script = Arc::<Mutex<Script>>::default();
        let (theirs, seen) = (script.clone(), step.clone());
        let told = move |_, notice: &Notice| {
            let calls = calls_at(&theirs, Moment::of(notice), stage);
            let panics: Vec<_> = calls.into_iter().filter_map(|call| obey(call, stage, &theirs, &seen)).collect();
            panics.into_iter().next().is_some_and(|panic| resume_unwind(panic))
        };
        assert!(vm.machine().on_notice(Box::new(told)).is_ok());
        Play { stage, script, step, _cpu: cpu }
    }

    /// One notice in which the calls are made.
    fn round(&self, moment: Moment, is_full: bool, calls: &[&'static Call]) {
        let context = format!("{moment:?}, memory full: {is_full}, {} calls", calls.len());
        self.step.is(context.clone(), "what comes before");
        self.stage.prepare(moment, is_full);
        let lost_before = self.stage.vm.machine().notices_lost();
        *self.script.lock().unwrap() = Script { at: Some(moment), calls: calls.to_vec(), ..Script::default() };
        self.stage.tell(moment);
        let script = std::mem::take(&mut *self.script.lock().unwrap());
        let context = format!("{context} to {}", calls[calls.len() - 1].name);
        assert!(script.at.is_none(), "{context}: nothing was told");
        assert_eq!(script.failure, None, "{context}");
        // At the end what was taken away is free.
        let is_early = !matches!(moment, Moment::End(_));
        assert!(!is_early || (script.nr_free == 0) == is_full, "{context}: {} frames are free", script.nr_free);
        let nr_lost = self.stage.vm.machine().notices_lost() - lost_before;
        assert_eq!(nr_lost, u64::from(script.nr_refused > 0), "{context}");
        self.step.is(context, "what comes afterwards");
        self.stage.everything_works(moment);
    }
}

/// The calls to make, the first time that the moment has come.
fn calls_at(script: &Mutex<Script>, moment: Moment, stage: &Stage) -> Vec<&'static Call> {
    let mut script = script.lock().unwrap();
    if script.at != Some(moment) {
        return Vec::new();
    }
    script.at = None;
    script.nr_free = stage.vm.vmstat().nr_free_pages;
    std::mem::take(&mut script.calls)
}

/// Makes one call; gives its panic.
fn obey(call: &Call, stage: &'static Stage, script: &Mutex<Script>, step: &Step) -> Option<Box<dyn Any + Send>> {
    step.calls(call.name);
    let panic = catch_unwind(AssertUnwindSafe(|| (call.make)(stage))).err();
    step.calls("the operation that told");
    let text = panic.as_ref().map(|panic| match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().copied().unwrap_or_default(),
    });
    let is_right = match text {
        None => call.may != May::No,
        Some(text) => call.may != May::Yes && text.contains(REFUSAL),
    };
    let mut script = script.lock().unwrap();
    script.nr_refused += usize::from(text.is_some());
    if !is_right {
        script.failure = Some(format!("{}: may it be called? {:?}. It panicked with {text:?}", call.name, call.may));
    }
    panic
}

/// Runs a play, and fails where a step of it does not end.
fn watched(play: impl FnOnce(&Play) + Send + 'static) {
    let step = Step(Arc::new(Mutex::new((String::new(), "the beginning", Instant::now()))));
    let theirs = step.clone();
    let thread = thread::spawn(move || play(&Play::new(theirs)));
    while !thread.is_finished() {
        thread::sleep(Duration::from_millis(5));
        let (round, call, began) = step.0.lock().unwrap().clone();
        assert!(began.elapsed() < PATIENCE, "{round}: {call} does not end");
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// Every call in each kind of notice.
fn all_calls(is_full: bool) {
    watched(move |play| {
        // Of a space whose end was stopped nobody can say whether it is whole.
        let calls: Vec<&Call> = CALLS.iter().filter(|call| call.name != "AddressSpace::drop").collect();
        for moment in Moment::all() {
            play.round(moment, is_full, &calls);
            play.stage.check();
        }
    });
}

#[test]
fn every_call_in_each_notice() {
    all_calls(false);
}

#[test]
fn every_call_in_each_notice_while_memory_is_full() {
    all_calls(true);
}

/// Each call alone, so that what one leaves behind is not mended by another.
fn each_call(is_full: bool) {
    watched(move |play| {
        for moment in Moment::all() {
            CALLS.iter().for_each(|call| play.round(moment, is_full, &[call]));
        }
    });
}

#[test]
fn each_call_alone() {
    each_call(false);
}

#[test]
fn each_call_alone_while_memory_is_full() {
    each_call(true);
}

/// `impl` blocks of these have functions that a subscriber could call.
const TYPES: [&str; 8] =
    ["Vm<", "AddressSpace<", "SharedObject<", "HugetlbSubpool<", "Subscription<", "Pin<", "PinMut<", "Active<"];
/// The components of a `Vm`: their functions are called on it.
const COMPONENTS: [&str; 3] = ["Base<", "Memory<", "Links<"];

fn functions(path: &std::path::Path, found: &mut Vec<String>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        return entries.for_each(|entry| functions(&entry.unwrap().path(), found));
    }
    let mut of = None;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if line.starts_with("impl") {
            let head = line.split_once("> ").map_or("", |(_, head)| head);
            let is_component = COMPONENTS.iter().any(|name| head.starts_with(name));
            let head = if is_component { "Vm<" } else { head };
            of = TYPES.iter().find(|name| head.starts_with(**name)).map(|name| name.trim_end_matches('<'));
        }
        let function = line.strip_prefix("    pub fn ").or(line.strip_prefix("    pub unsafe fn "));
        if let (Some(of), Some(function)) = (of, function) {
            found.push(format!("{of}::{}", function.split(['(', '<']).next().unwrap()));
        }
    }
}

/// A function that is new to the core needs a call here.
#[test]
fn each_function_of_the_core_is_called() {
    let mut found = Vec::new();
    functions(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../softfault/src"), &mut found);
    assert!(found.len() > 90, "{found:?}");
    for function in &found {
        let is_out = LEFT_OUT.iter().any(|(name, _)| name == function);
        let is_called = CALLS.iter().any(|call| call.name.split(',').next() == Some(function));
        assert!(is_called != is_out, "{function}: should be called or left out with a reason");
    }
    for (name, _) in LEFT_OUT {
        assert!(found.iter().any(|function| function == name), "{name} is left out, and is no function");
    }
}
