//! I27: a private page moves to another frame while another CPU uses it.

use common::pager::{self, Pager};
use common::{World, explore, let_others_run_in_shootdowns_of, models, run};
use softfault_modelled::hooks::Mapping;
use softfault_modelled::{Access, AddressSpace, Event, FaultError, Pfn, PinError, Term, Vpn};
use std::sync::{Arc, Mutex};

type Space = AddressSpace<'static, common::Modelled>;
type Child = Arc<Mutex<Option<Space>>>;

/// Where the space has page 0. `None` if its memory has failed.
fn frame_of(space: &Space) -> Option<Pfn> {
    let there = space.translate_at_rest(0).map(|there| there.pfn);
    assert!(there.is_some() || pager::has_lost(0));
    there
}

fn shared() -> (World, &'static Space) {
    let w = World::written();
    let child: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
    (w, child)
}

/// Moves a page, or leaves it where it is for what the other CPU does.
fn migrate(w: World, pfn: Pfn) {
    assert_ne!(w.vm.migrate_frame(pfn), Ok(pfn));
}

/// One CPU moves the frame of page 0, another does something with the page.
/// Whatever comes of the move, everything is whole, and a second one succeeds.
fn move_against(
    world: impl Fn() -> World + Sync + Send + Copy + 'static,
    other: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(2, move || {
        let w = world();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        run(vec![Box::new(move || migrate(w, pfn)), Box::new(move || other(w))]);
        w.check(&[]);
        if let Some(there) = w.space.translate_at_rest(0) {
            assert_ne!(w.vm.migrate_frame(there.pfn), Ok(there.pfn));
            w.check(&[]);
        }
    });
}

#[test]
fn move_against_a_fault() {
    move_against(World::written, |w| {
        w.space.handle_fault(0, Access::Write).unwrap();
    });
}

#[test]
fn move_against_munmap() {
    let_others_run_in_shootdowns_of(1);
    move_against(World::written, |w| w.space.munmap(0, 4096).unwrap());
}

/// The table goes with the mapping, but not while an entry of it is on the move.
#[test]
fn move_against_munmap_of_everything() {
    let_others_run_in_shootdowns_of(1);
    move_against(World::written, |w| w.space.munmap(0, 2 * 4096).unwrap());
}

#[test]
fn move_against_mprotect() {
    move_against(World::written, |w| w.space.mprotect(0, 4096, common::READ).unwrap());
}

/// Two spaces share the page: one moves it, the other does something with its own.
fn move_against_the_sharer(other: impl Fn(&'static Space) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let (w, child) = shared();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        run(vec![Box::new(move || migrate(w, pfn)), Box::new(move || other(child))]);
        w.check(&[child]);
        assert!(w.space.translate_at_rest(0).is_some() || pager::has_lost(0));
    });
}

#[test]
fn move_against_a_write_of_the_sharer() {
    move_against_the_sharer(|child| {
        child.handle_fault(0, Access::Write).unwrap();
    });
}

#[test]
fn move_against_munmap_of_the_sharer() {
    move_against_the_sharer(|child| child.munmap(0, 4096).unwrap());
}

/// The count is raised before the child's entry can be found.
#[test]
fn move_against_fork() {
    let_others_run_in_shootdowns_of(1);
    // Two preemptions take minutes; the shootdown is where others get on anyhow.
    explore(1, || {
        let w = World::written();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        let child: Child = Arc::default();
        let slot = child.clone();
        run(vec![
            Box::new(move || migrate(w, pfn)),
            Box::new(move || *slot.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        let frames = [w.space, &child].map(frame_of);
        assert_eq!(frames[0], frames[1], "I27: one of two who share a page was left behind");
        drop(child);
        w.check(&[]);
    });
}

/// While the sharer forks it holds the lock bit of its entry, which the walk passes
/// over. The walk has then found fewer entries than the frame's count.
#[test]
fn move_against_a_fork_of_the_sharer() {
    explore(1, || {
        let (w, child) = shared();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        let grandchild: Child = Arc::default();
        let slot = grandchild.clone();
        run(vec![
            Box::new(move || migrate(w, pfn)),
            Box::new(move || *slot.lock().unwrap() = Some(child.fork().unwrap())),
        ]);
        let grandchild = grandchild.lock().unwrap().take().unwrap();
        w.check(&[child, &grandchild]);
        let frames = [w.space, child, &grandchild].map(frame_of);
        assert_eq!(frames, [frames[0]; 3], "I27: one of three who share a page was left behind");
        drop(grandchild);
        w.check(&[child]);
    });
}

/// The end of a space waits for the entries that are on the move.
#[test]
fn move_against_the_end_of_the_sharer() {
    let_others_run_in_shootdowns_of(1);
    explore(2, || {
        let w = World::written();
        let child = w.space.fork().unwrap();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        run(vec![Box::new(move || migrate(w, pfn)), Box::new(move || drop(child))]);
        w.check(&[]);
    });
}

/// A frame that was pinned before the move began, or while it was under way,
/// stays where it is.
#[test]
fn move_against_pin() {
    explore(2, || {
        let w = World::written();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(0, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(PinError::Fault(FaultError::NotMapped)) => {}
            Err(error) => panic!("{error}"),
        };
        run(vec![Box::new(move || migrate(w, pfn)), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        assert_eq!(w.space.translate_at_rest(0).unwrap().pfn, held.pfn(), "I27: moved away under a pin");
        assert!(w.vm.migrate_frame(held.pfn()).is_err());
        drop(held);
        w.check(&[]);
        assert_eq!(w.vm.event(Event::PinReleased), 1);
    });
}

/// I30: a page is looked for while the last member of its family goes, and with it
/// the founder's frame, which somebody else may have at once.
#[test]
fn look_up_against_the_end_of_the_family() {
    explore(2, || {
        let w = World::written();
        let other = w.vm.new_space().unwrap();
        other.mmap(0, 4096, common::RW, common::FIXED_PRIVATE).unwrap();
        other.handle_fault(0, Access::Write).unwrap();
        let (pfn, space) = (other.translate_at_rest(0).unwrap().pfn, other.tag().id);
        run(vec![
            Box::new(move || {
                let mut found = [Mapping { space: 0, vpn: Vpn(9) }; 2];
                // Where it was, or gone; never in the space whose frame the founder's is by now.
                match w.vm.rmap_anon(pfn, &mut found) {
                    0 => {}
                    nr => assert_eq!((nr, found[0]), (1, Mapping { space, vpn: Vpn(0) })),
                }
            }),
            Box::new(move || {
                drop(other);
                drop(w.vm.new_space().unwrap());
            }),
        ]);
        w.check(&[]);
    });
}

/// Two move the same page.
#[test]
fn move_against_move() {
    let_others_run_in_shootdowns_of(1);
    // As for fork.
    explore(1, || {
        let (w, child) = shared();
        let pfn = w.space.translate_at_rest(0).unwrap().pfn;
        let go = move || migrate(w, pfn);
        run(vec![Box::new(go), Box::new(go)]);
        w.check(&[child]);
        let frames = [w.space, child].map(frame_of);
        assert_eq!(frames[0], frames[1]);
    });
}

#[test]
fn beside_a_pager() {
    // Others look for the frame of a page that is not back yet.
    pager::beside_a_pager(
        Pager::SwapsOut,
        models![
            move_against_a_fault,
            move_against_munmap,
            move_against_munmap_of_everything,
            move_against_mprotect,
            move_against_a_write_of_the_sharer,
            move_against_munmap_of_the_sharer,
            move_against_the_end_of_the_sharer,
            move_against_pin,
            look_up_against_the_end_of_the_family,
        ],
    );
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(
        Pager::Fails,
        models![
            move_against_a_fault,
            move_against_munmap,
            move_against_munmap_of_everything,
            move_against_mprotect,
            move_against_a_write_of_the_sharer,
            move_against_munmap_of_the_sharer,
            move_against_fork,
            move_against_a_fork_of_the_sharer,
            move_against_the_end_of_the_sharer,
            move_against_pin,
            look_up_against_the_end_of_the_family,
            move_against_move,
        ],
    );
}
