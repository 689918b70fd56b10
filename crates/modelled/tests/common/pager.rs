//! The same worlds beside a pager: one more actor, which swaps a page of the world's space out, or whose
//! page's memory fails, at a moment that the model chooses.
//!
//! The actor makes one call, and no thread is preempted: others go on where it waits, in each shootdown and
//! around each write. A program that touches a page that has failed is killed by that, and so is an actor
//! that unwraps such a fault. A model's assertions about contents and counts afterwards must hold unless an actor
//! was killed, or the model itself touches the page: [`nr_lost`], [`has_lost`] and [`has_failed`] say what is
//! lost. The core's checker has to agree in any case.
//!
//! `every_model.rs` sees that each file of models has one or says why not.

use super::{Modelled, World, be};
use softfault_modelled::{Access, SharedObject};
use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::thread;

/// Its call.
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
    /// In this execution: an actor was killed, so that nobody knows how far it came.
    static IS_KILLED: Cell<bool> = const { Cell::new(false) };
    /// Executions in which a page has gone, and all that the model knows holds.
    static NR_HELD: Cell<u64> = const { Cell::new(0) };
    /// The highest page that may go.
    static HIGHEST: Cell<u64> = const { Cell::new(NR_PAGES - 1) };
}

/// Its CPU, which has nothing to do while the actors run.
pub const CPU: u16 = 0;
/// Schedules of one model: where two actors and the pager wait for each other there are many.
pub(super) const MOST_SCHEDULES: usize = 200;
/// Pages of the toy format's spaces.
const NR_PAGES: u64 = 16;

/// The call of this thread's pager, if it has one.
pub fn here() -> Option<Pager> {
    PAGER.get()
}

/// The world whose pages it may take.
pub(super) fn set_world(world: World) {
    WORLD.set(Some(world));
}

/// Plays these models beside a pager. In at least one schedule of one of them a page has to go, and all that the
/// model knows has to hold.
pub fn beside_a_pager(pager: Pager, models: &[(&str, fn())]) {
    assert!(play(pager, models) > 0, "{pager:?}: each model has ended early");
}

/// Plays them, each in a thread of its own. In at least one schedule a page has to go; gives the number of those in
/// which what the model knows was found to hold.
pub fn play(pager: Pager, models: &[(&str, fn())]) -> u64 {
    silence();
    let play = move |model: fn()| {
        PAGER.set(Some(pager));
        if pager == Pager::SwapsOut {
            super::use_swap(false);
        }
        model();
        (NR_DONE.get(), NR_HELD.get())
    };
    let (mut nr_done, mut nr_held, mut wrong) = (0, 0, Vec::new());
    for &(name, model) in models {
        match thread::spawn(move || play(model)).join() {
            Ok((done, held)) => {
                nr_done += done;
                nr_held += held;
            }
            Err(payload) => wrong.push(format!("{name}: {}", text_of(&*payload))),
        }
    }
    assert!(wrong.is_empty(), "{pager:?}: {}", wrong.join("\n"));
    assert!(nr_done > 0, "{pager:?}: no page has gone");
    nr_held
}

/// From now on worlds of this test lose no page above this one.
pub fn take_up_to(page: u64) {
    HIGHEST.set(page);
}

/// Pages of the world's space whose memory has failed.
pub fn nr_lost() -> u64 {
    u64::from(PAGER.get() == Some(Pager::Fails) && GONE.get().is_some())
}

/// Whether it was that page.
pub fn has_lost(page: u64) -> bool {
    nr_lost() > 0 && GONE.get() == Some(page)
}

/// Whether the memory of that page of an object has failed.
pub fn has_failed(object: &SharedObject<'static, Modelled>, page: u64) -> bool {
    object.next_poisoned(page..page + 1).is_some()
}

/// Pages of an object that are in memory, or were before their memory failed.
pub fn nr_had(object: &SharedObject<'static, Modelled>, nr_pages: u64) -> u64 {
    object.nr_resident_pages() + (0..nr_pages).filter(|page| has_failed(object, *page)).count() as u64
}

/// Two tests, of the file's models that have pages of the world's space: beside each pager.
#[macro_export]
macro_rules! beside_pagers {
    ($($model:ident),+ $(,)?) => {
        const WITH_PAGES: &[(&str, fn())] = $crate::models![$($model),+];

        #[test]
        fn beside_a_pager() {
            $crate::pager::beside_a_pager($crate::pager::Pager::SwapsOut, WITH_PAGES);
        }

        #[test]
        fn where_memory_fails() {
            $crate::pager::beside_a_pager($crate::pager::Pager::Fails, WITH_PAGES);
        }
    };
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
    GONE.set((0..=HIGHEST.get()).rev().find(can_go));
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
    IS_KILLED.set(false);
    let ended = catch_unwind(AssertUnwindSafe(model));
    match ended {
        Ok(()) => NR_HELD.set(NR_HELD.get() + u64::from(GONE.get().is_some())),
        Err(payload) if IS_BROKEN.get() || !(IS_KILLED.get() || is_killed(&*payload)) => resume_unwind(payload),
        Err(_) => {}
    }
}

/// Runs what a program does; one that touches a page that has failed ends there.
pub(super) fn as_program(program: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(program)) {
        if !is_killed(&*payload) {
            // An error of an actor counts, whatever has failed.
            IS_BROKEN.set(true);
            resume_unwind(payload);
        }
        IS_KILLED.set(true);
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
