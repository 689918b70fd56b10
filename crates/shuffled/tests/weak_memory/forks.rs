//! fork(2) while other CPUs write and pin: the child has the page of one moment.

use super::*;

type Child = Arc<Mutex<Option<Space>>>;

/// Page 0 is written, and CPU 0 forks while the other CPUs run `others`. The child has
/// the page of one moment: its value does not change.
fn fork_against(others: impl Fn(World) -> Vec<Actor> + Sync + Send + Copy + 'static) {
    shuffled(SCHEDULES, move || {
        let w = World::new();
        be(1);
        w.space.write(at(0), &[0; 16]).unwrap();
        let child = Child::default();
        let slot = child.clone();
        let forker = inside(w.space, move || {
            let child = w.space.fork().unwrap();
            let first = word_at(&child, at(0));
            for _ in 0..4 {
                assert_eq!(word_at(&child, at(0)), first, "F5: the child sees a later write");
            }
            *slot.lock().unwrap() = Some(child);
        });
        let mut actors = vec![forker];
        actors.extend(others(w));
        run(NR_CPUS, actors);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

#[test]
fn store_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_store)]);
}

#[test]
fn call_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_call)]);
}

/// While one forks, two write to one page: each copies what the other has written.
#[test]
fn two_writers_against_fork() {
    fork_against(|w| vec![count_up(w, at(0), by_call), count_up(w, at(0) + 8, by_store)]);
}

/// A pinned page stays the parent's, and the child has another frame.
#[test]
fn pin_against_fork() {
    fork_against(|w| {
        let by_pin = |w: World, addr: u64, value: u64| {
            let pin = w.space.pin_page_mut(addr, Term::Short).unwrap();
            pin.write(0, &value.to_ne_bytes());
        };
        vec![count_up(w, at(0), by_pin)]
    });
}
