//! The memory of a page fails while another CPU uses it: the frame is never allocated again, and accesses
//! to the page fail.

use common::pager::{self, Pager};
use common::{World, explore, let_others_run_in_shootdowns_of, models, run};
use softfault_modelled::{Access, AddressSpace, FaultError, Term};
use std::sync::{Arc, Mutex};

type Space = AddressSpace<'static, common::Modelled>;

/// The memory of the frame at page 0 fails while another CPU does something.
fn poison_against(most_preemptions: usize, other: impl Fn(World) + Sync + Send + Copy + 'static) {
    explore(most_preemptions, move || {
        let w = World::written();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        run(vec![
            Box::new(move || {
                let _ = w.vm.poison_frame(pfn);
            }),
            Box::new(move || other(w)),
        ]);
        w.check(&[]);
    });
}

#[test]
fn poison_against_a_fault() {
    poison_against(2, |w| match w.space.handle_fault(0, Access::Write) {
        Ok(_) | Err(FaultError::Poisoned) => {}
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn poison_against_munmap() {
    let_others_run_in_shootdowns_of(1);
    poison_against(2, |w| w.space.munmap(0, 4096).unwrap());
}

#[test]
fn poison_against_pin() {
    poison_against(2, |w| {
        if let Ok(pin) = w.space.pin_page_mut(0, Term::Short) {
            assert_eq!(w.vm.poison_frame(pin.pfn()).ok(), None, "I27: a pinned frame is in use");
        }
    });
}

/// A child has what the parent had: the page, or that it failed.
#[test]
fn poison_against_fork() {
    let_others_run_in_shootdowns_of(1);
    explore(1, || {
        let w = World::written();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        let child: Arc<Mutex<Option<Space>>> = Arc::default();
        let slot = child.clone();
        run(vec![
            Box::new(move || {
                let _ = w.vm.poison_frame(pfn);
            }),
            Box::new(move || *slot.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        let there = [w.space, &child].map(|space| space.translate_at_rest(0).map(|there| there.pfn));
        assert_eq!(there[0], there[1], "one of two who share a page was not told");
        assert_eq!(child.handle_fault(0, Access::Read).is_ok(), there[1].is_some());
        drop(child);
        w.check(&[]);
    });
}

#[test]
fn beside_a_pager() {
    // `poison_against_fork` compares frames, and who brings a page back has one of its own.
    pager::beside_a_pager(Pager::SwapsOut, models![poison_against_a_fault, poison_against_munmap, poison_against_pin,]);
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(
        Pager::Fails,
        models![poison_against_a_fault, poison_against_munmap, poison_against_pin, poison_against_fork,],
    );
}
