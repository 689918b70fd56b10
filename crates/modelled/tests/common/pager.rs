//! The same worlds beside a pager: one more actor, which swaps a page of the world's space out, or whose
//! page's memory fails, at a moment that the model chooses.
//!
//! The actor makes one call, and no thread is preempted: others go on where it waits, in each shootdown and
//! around each write. A program that touches a page that has failed is killed by that, and so is an actor
//! that unwraps such a fault. What a model knows of contents and counts afterwards need not hold of a page
//! that has failed; the core's checker has to agree in any case.
//!
//! `every_model.rs` sees that each file of models has one or says why not.

use super::{World, be};
use softfault_modelled::Access;
use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::thread;

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pager {
    SwapsOut,
    Fails,
}

std::thread_local! {
    static PAGER: Cell<Option<Pager>> = const { Cell::new(None) };
    static WORLD: Cell<Option<World>> = const { Cell::new(None) };
    static NR_DONE: Cell<u64> = const { Cell::new(0) };
    /// In this execution: the page that has gone, and whether the core's checker objects.
    static GONE: Cell<Option<u64>> = const { Cell::new(None) };
    static IS_BROKEN: Cell<bool> = const { Cell::new(false) };
}

/// Its CPU, which has nothing to do while the actors run.
pub const CPU: u16 = 0;
/// Schedules of one model: where two actors and the pager wait for each other there are many.
pub(super) const MOST_SCHEDULES: usize = 200;
/// Pages of the toy format's spaces.
const NR_PAGES: u64 = 16;

/// What the pager of this thread does, if it has one.
pub fn here() -> Option<Pager> {
    PAGER.get()
}

/// The world whose pages it may take.
pub(super) fn set_world(world: World) {
    WORLD.set(Some(world));
}

/// Plays these models beside a pager, each in a thread of its own. In at least one schedule of one of them a
/// page has to go.
pub fn beside_a_pager(pager: Pager, models: &[(&str, fn())]) {
    silence();
    let play = move |model: fn()| {
        PAGER.set(Some(pager));
        if pager == Pager::SwapsOut {
            super::use_swap(false);
        }
        model();
        NR_DONE.get()
    };
    let (mut nr_done, mut wrong) = (0, Vec::new());
    for &(name, model) in models {
        match thread::spawn(move || play(model)).join() {
            Ok(nr) => nr_done += nr,
            Err(payload) => wrong.push(format!("{name}: {}", text_of(&*payload))),
        }
    }
    assert!(wrong.is_empty(), "{pager:?}: {}", wrong.join("\n"));
    assert!(nr_done > 0, "{pager:?}: no page has gone");
}

/// The names of models, with them.
#[macro_export]
macro_rules! models {
    ($($model:ident),+ $(,)?) => { &[$((stringify!($model), $model as fn())),+] };
}

/// The core's checker objects.
pub(super) fn is_broken() {
    IS_BROKEN.set(true);
}

/// The pager's turn: the last page that can go.
pub(super) fn act() {
    be(CPU);
    let (Some(pager), Some(w)) = (PAGER.get(), WORLD.get()) else { return };
    let can_go = |page: &u64| {
        let Some(there) = w.space.translate_at_rest(page * 4096) else { return false };
        match pager {
            Pager::SwapsOut => w.vm.swap_out_frame(there.pfn).is_ok(),
            Pager::Fails => w.vm.poison_frame(there.pfn).is_ok(),
        }
    };
    GONE.set((0..NR_PAGES).rev().find(can_go));
    NR_DONE.set(NR_DONE.get() + u64::from(GONE.get().is_some()));
}

/// After the actors: what is out comes back, wherever it is by now, so that the model finds what it knows.
pub(super) fn bring_back() {
    let (Some(w), Some(page), Some(Pager::SwapsOut)) = (WORLD.get(), GONE.get(), PAGER.get()) else { return };
    for page in [page].into_iter().chain(0..NR_PAGES) {
        let is_out = || w.space.rss_pages().swap > 0 && w.space.page_state(page * 4096).is_none();
        if w.space.vma(page * 4096).is_some() && is_out() {
            _ = w.space.handle_fault(page * 4096, Access::Read);
        }
    }
}

/// One execution of a model.
pub(super) fn as_model(model: impl FnOnce()) {
    GONE.set(None);
    IS_BROKEN.set(false);
    let ended = catch_unwind(AssertUnwindSafe(model));
    let has_failed = PAGER.get() == Some(Pager::Fails) && GONE.get().is_some();
    if let Err(payload) = ended
        && (IS_BROKEN.get() || !has_failed)
    {
        resume_unwind(payload);
    }
}

/// Runs what a program does; one that touches a page that has failed ends there.
pub(super) fn as_program(program: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(program))
        && !is_killed(&*payload)
    {
        // What is wrong with an actor is wrong whatever has failed.
        IS_BROKEN.set(true);
        resume_unwind(payload);
    }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Whether a fault was unwrapped that says that memory failed.
fn is_killed(payload: &(dyn Any + Send)) -> bool {
    let text = text_of(payload);
    PAGER.get() == Some(Pager::Fails) && (text.contains("Poisoned") || text.contains("the memory of the page failed"))
}

/// Nobody wants to read of each program that was killed; the first that is wrong is told of by name.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if PAGER.get().is_none() {
                loud(info);
            }
        }));
    });
}
