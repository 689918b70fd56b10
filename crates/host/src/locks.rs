//! Checks the order of the core's locks: which ones each CPU has when it waits for another.
//!
//! With debug assertions, as in tests, a wait that [`LockKind::may_take`] does not permit ends the process, also where nobody
//! would have waited in a circle this time. Without them nothing is noted.

use crate::ticks::end_process;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use softfault::machine::LockKind;

/// How many locks of each kind a CPU has. Only the CPU's thread writes it.
#[derive(Default)]
pub(crate) struct HeldLocks([AtomicU8; LockKind::ALL.len()]);

impl HeldLocks {
    /// The CPU is about to wait for such a lock.
    pub(crate) fn taking(&self, wanted: LockKind) {
        if let Some(held) = self.forbids(wanted) {
            end_process(&format!("a CPU that has the lock {held:?} waits for {wanted:?}: see `LockKind::may_take`"));
        }
        self.0[wanted as usize].fetch_add(1, Relaxed);
    }

    /// The CPU has released one.
    pub(crate) fn released(&self, kind: LockKind) {
        let before = self.0[kind as usize].fetch_sub(1, Relaxed);
        assert!(before > 0, "{kind:?} is released by a CPU that does not have it");
    }

    /// The lock that the CPU has, and under which it may not wait for that one.
    fn forbids(&self, wanted: LockKind) -> Option<LockKind> {
        let has = |kind: &LockKind| self.0[*kind as usize].load(Relaxed) > 0;
        LockKind::ALL.into_iter().filter(has).find(|held| !held.may_take(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hosted, HostedConfig};
    use softfault::machine::CpuId;
    use softfault::{MapFlags, ObjectPart, Prot, Tunables, Vm};

    #[test]
    fn a_lock_is_forbidden_under_one_that_comes_later() {
        let cpu = HeldLocks::default();
        cpu.taking(LockKind::Writer);
        cpu.taking(LockKind::ObjectResize);
        assert_eq!(cpu.forbids(LockKind::Reserving), None);
        assert_eq!(cpu.forbids(LockKind::Writer), Some(LockKind::Writer), "two of a kind");
        assert_eq!(cpu.forbids(LockKind::Family), None, "a page of a pool may be taken from others");
        assert_eq!(cpu.forbids(LockKind::Writers), Some(LockKind::Writer));
        cpu.released(LockKind::Writer);
        assert_eq!(cpu.forbids(LockKind::Writer), Some(LockKind::ObjectResize));
        cpu.released(LockKind::ObjectResize);
        assert!(LockKind::ALL.into_iter().all(|kind| cpu.forbids(kind).is_none()));
    }

    /// The core tells of each wait and each release: an operation has its locks while it waits, and none afterwards.
    #[test]
    fn the_core_tells_of_its_locks() {
        let machine = Hosted::new(HostedConfig::default().with_nr_cpus(2).with_arena_bytes(8 << 20)).unwrap();
        let vm: &'static Vm<Hosted> = Box::leak(Box::new(Vm::new(machine, Tunables::default()).unwrap()));
        let seen: &'static [AtomicU8; LockKind::ALL.len()] = Box::leak(Box::default());
        let locks = || &vm.machine().cpus[0].locks.0;
        let look = move || {
            for (seen, now) in seen.iter().zip(locks()) {
                seen.fetch_max(now.load(Relaxed), Relaxed);
            }
        };
        assert!(vm.machine().on_wait(Box::new(look)).is_ok());
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let (space, object) = (vm.new_space().unwrap(), vm.new_shared_object(4096).unwrap());
        let running = cpu.enter(&space).unwrap();
        let at =
            space.mmap_object(0, 4096, Prot::READ | Prot::WRITE, MapFlags::SHARED, ObjectPart::new(&object)).unwrap();
        running.store(at, &[7]).unwrap();
        // A shootdown under `resize`, and one under the writer lock.
        object.discard(0..1);
        running.store(at, &[7]).unwrap();
        space.munmap(at, 4096).unwrap();
        // Until memory is out, and the caches of all CPUs are emptied.
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let at = space.mmap(0, 16 << 20, Prot::READ | Prot::WRITE, flags).unwrap();
        let touch_on_the_other =
            || vm.machine().bind(CpuId(1)).unwrap().enter(&space).unwrap().store(at, &[7]).unwrap();
        std::thread::scope(|threads| threads.spawn(touch_on_the_other).join().unwrap());
        assert!((0..4096).any(|page| running.store(at + page * 4096, &[7]).is_err()));
        let has_been = |kind: LockKind| seen[kind as usize].load(Relaxed);
        let wanted = [LockKind::ObjectResize, LockKind::Writer, LockKind::LastResort, LockKind::Thief];
        assert_eq!((wanted.map(has_been), has_been(LockKind::PoolMutex)), ([1; 4], 0));
        assert!(locks().iter().all(|nr| nr.load(Relaxed) == 0));
    }
}
