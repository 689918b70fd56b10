//! The last page of a pool, a million times (H1, H2): rounds in which CPUs fault on the one page that a pool has.
//!
//! ```text
//! H1   all fault at once, while the page is missing                      every one gets it; a hole is punched
//!      through a shared mapping, a private one, or half of them each: then the pool has a page for the file and one for the copy
//! H2   all but two fault; one removes the mapping's entries, one asks for the page
//!                                                                        no fault is refused, no mapping is granted
//! ```
//! In H1 mappings have their reservations in every second round. In H2 it has it always, and in every second round the page is there
//! before: only entries go, but those of a private mapping go with their page.
//! After each round the pool's counts are exact.

use crate::fatal::as_one_of_several;
use softfault::machine::CpuId;
use softfault::table::format::X86_64;
use softfault::{
    AddressSpace, Advice, HugetlbLocking, MapFlags, MmapError, ObjectPart, Order, Prot, SharedObject, Tunables, Vm,
};
use softfault_host::{Hosted, HostedConfig};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const HUGE: u64 = 2 << 20;
const AT: u64 = 1 << 32;
/// The private mapping of the file.
const COPY_AT: u64 = AT + 8 * HUGE;
const RW: Prot = Prot::READ.union(Prot::WRITE);
const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
const POOL: MapFlags = MapFlags::ANONYMOUS.union(MapFlags::HUGETLB);
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(POOL);

/// Which case is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// All fault at once.
    H1,
    /// The same in a private mapping.
    H1Private,
    /// The same, every second one in a private mapping of the file.
    H1Mix,
    /// The page goes under them, and another one wants it.
    H2,
    /// The same with private mappings.
    H2Private,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 5] = [Case::H1, Case::H1Private, Case::H1Mix, Case::H2, Case::H2Private];

    /// Pages of the pool.
    const fn nr_pages(self) -> u64 {
        if matches!(self, Case::H1Mix) { 2 } else { 1 }
    }

    const fn is_h1(self) -> bool {
        matches!(self, Case::H1 | Case::H1Private | Case::H1Mix)
    }
}

/// Counts of the rounds that were played.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Played {
    /// Stores that had the page in the end.
    pub nr_stores: u64,
    /// Mappings that were refused, rightly.
    pub nr_refused: u64,
    /// Mutexes taken, and not at the first try.
    pub locks: (u64, u64),
}

impl std::ops::AddAssign for Played {
    fn add_assign(&mut self, more: Played) {
        self.nr_stores += more.nr_stores;
        self.nr_refused += more.nr_refused;
        self.locks.0 += more.locks.0;
        self.locks.1 += more.locks.1;
    }
}

impl std::fmt::Display for Played {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Played { nr_stores, nr_refused, locks: (taken, contended) } = self;
        write!(
            f,
            "{nr_stores} stores, none refused; {nr_refused} mappings refused; {taken} mutexes taken, {contended} contended"
        )
    }
}

/// The world of the rounds.
struct Rounds<'vm> {
    case: Case,
    nr_cpus: usize,
    vm: &'vm Vm<Hosted>,
    space: &'vm AddressSpace<'vm, Hosted>,
    object: &'vm SharedObject<'vm, Hosted>,
    /// Where all CPUs meet.
    arrived: AtomicU64,
    nr_stores: AtomicU64,
    nr_refused: AtomicU64,
    /// The first thing that went wrong.
    problem: Mutex<Option<String>>,
    is_over: AtomicBool,
}

/// Plays so many rounds with so many CPUs, of which there are 3 at least.
///
/// # Errors
///
/// The first error.
pub fn play(case: Case, locking: HugetlbLocking, nr_cpus: usize, nr_rounds: u64) -> Result<Played, String> {
    let config = HostedConfig::default().with_nr_cpus(nr_cpus).with_arena_bytes(32 << 20).with_tlb_entries(64);
    let hosted = Hosted::<X86_64>::with_format(config).map_err(|e| e.to_string())?;
    let vm = Vm::new(hosted, Tunables::default().with_hugetlb_locking(locking)).map_err(|e| e.to_string())?;
    let cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
    vm.set_nr_hugepages(Order::PMD, case.nr_pages()).map_err(|e| e.to_string())?;
    let (space, object) = (vm.new_space(), vm.new_hugetlb_object(HUGE, Order::PMD));
    let (space, object) = (space.map_err(|e| e.to_string())?, object.map_err(|e| e.to_string())?);
    drop(cpu);
    let rounds = Rounds {
        case,
        nr_cpus,
        vm: &vm,
        space: &space,
        object: &object,
        arrived: AtomicU64::new(0),
        nr_stores: AtomicU64::new(0),
        nr_refused: AtomicU64::new(0),
        problem: Mutex::new(None),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for cpu in 0..nr_cpus {
            let rounds = &rounds;
            scope.spawn(move || as_one_of_several(|| rounds.of_cpu(cpu, nr_rounds)));
        }
    });
    let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
    let Rounds { nr_stores, nr_refused, problem, .. } = rounds;
    if let Some(problem) = problem.into_inner().map_err(|e| e.to_string())? {
        return Err(problem);
    }
    drop((object, space));
    let (counts, stat) = (vm.hugetlb_counts(Order::PMD).map_err(|e| e.to_string())?, vm.hugetlb_lock_stat());
    let is_whole = (counts.nr, counts.free, counts.reserved) == (case.nr_pages(), case.nr_pages(), 0);
    crate::at_rest::check(&vm, &[], &mut vec![0; vm.nr_frames() as usize]).map_err(|e| e.to_string())?;
    if !is_whole {
        return Err(format!("H9: {counts:?} in the end"));
    }
    let locks = (stat.acquisitions, stat.contentions);
    Ok(Played { nr_stores: nr_stores.into_inner(), nr_refused: nr_refused.into_inner(), locks })
}

impl Rounds<'_> {
    /// CPU 0 prepares and clears up; in H2 CPU 1 removes, and CPU 2 wants the page.
    fn of_cpu(&self, cpu: usize, nr_rounds: u64) {
        let guard = self.vm.machine().bind(CpuId(cpu as u16)).expect("nobody else is this CPU");
        for round in 0..nr_rounds {
            if cpu == 0 {
                self.prepare(round);
            }
            self.meet();
            match (self.case, cpu) {
                (Case::H2 | Case::H2Private, 1) => self.remove(),
                (Case::H2 | Case::H2Private, 2) => self.steal(),
                _ => {
                    let running = guard.enter(self.space).expect("this CPU runs no other space");
                    let page = (cpu as u64 * 37 + round) % 512;
                    let at = if self.case == Case::H1Mix && cpu % 2 == 1 { COPY_AT } else { AT };
                    match running.store(at + page * 4096 + cpu as u64, &[1u8]) {
                        Ok(()) => _ = self.nr_stores.fetch_add(1, SeqCst),
                        Err(error) => self.report(format!("round {round}, CPU {cpu}: {error}")),
                    }
                }
            }
            self.meet();
            if cpu == 0 {
                self.clear_up(round);
                // All see it in this round: the next change is behind two more meetings.
                let is_over = self.problem.lock().expect("nobody panics under it").is_some();
                self.is_over.store(is_over, SeqCst);
            }
            self.meet();
            if self.is_over.load(SeqCst) {
                return;
            }
        }
    }

    fn report(&self, what: String) {
        self.problem.lock().expect("nobody panics under it").get_or_insert(what);
    }

    fn meet(&self) {
        let nr = self.nr_cpus as u64;
        let all = (self.arrived.fetch_add(1, SeqCst) + 1).next_multiple_of(nr);
        let mut nr_looks = 0u32;
        while self.arrived.load(SeqCst) < all {
            nr_looks += 1;
            if nr_looks > 200 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn prepare(&self, round: u64) {
        let has_reservation = !self.case.is_h1() || round.is_multiple_of(2);
        let more = if has_reservation { MapFlags::empty() } else { MapFlags::NORESERVE };
        if matches!(self.case, Case::H1Private | Case::H2Private) {
            return self.prepare_private(round, more);
        }
        let private = MapFlags::PRIVATE | MapFlags::FIXED | more;
        if self.case == Case::H1Mix
            && let Err(error) = self.space.mmap_object(COPY_AT, HUGE, RW, private, ObjectPart::new(self.object))
        {
            self.report(format!("round {round}: {error}"));
        }
        if let Err(error) = self.space.mmap_object(AT, HUGE, RW, SHARED | more, ObjectPart::new(self.object)) {
            self.report(format!("round {round}: {error}"));
        }
        if self.case == Case::H2 && round.is_multiple_of(2) {
            // The page is there, and only its entries go.
            let written = self.object.write(0, &[1]);
            written.unwrap_or_else(|error| self.report(format!("round {round}: {error}")));
        }
    }

    fn prepare_private(&self, round: u64, more: MapFlags) {
        if let Err(error) = self.space.mmap(AT, HUGE, RW, PRIVATE | MapFlags::FIXED | more) {
            self.report(format!("round {round}: {error}"));
        }
        if self.case == Case::H2Private
            && round.is_multiple_of(2)
            && let Err(error) = self.space.write(AT, &[1])
        {
            self.report(format!("round {round}: {error}"));
        }
    }

    /// In every second round of H2 the page stays in its object.
    fn remove(&self) {
        for _ in 0..4 {
            let removed = self.space.madvise(AT, HUGE, Advice::DontNeed);
            removed.unwrap_or_else(|error| self.report(format!("MADV_DONTNEED: {error}")));
        }
    }

    /// Nobody else gets what was promised.
    fn steal(&self) {
        let flags = if self.case == Case::H2Private { PRIVATE } else { MapFlags::SHARED | POOL };
        for _ in 0..4 {
            match self.space.mmap(0, HUGE, RW, flags) {
                Err(MmapError::NoHugePages) => _ = self.nr_refused.fetch_add(1, SeqCst),
                other => self.report(format!("a mapping of the reserved page: {other:?}")),
            }
        }
    }

    fn clear_up(&self, round: u64) {
        let private = match self.case {
            Case::H1Private | Case::H2Private => Some(AT),
            Case::H1Mix => Some(COPY_AT),
            Case::H1 | Case::H2 => None,
        };
        if let Some(at) = private {
            let unmapped = self.space.munmap(at, HUGE);
            unmapped.unwrap_or_else(|error| self.report(format!("round {round}: {error}")));
        }
        self.object.discard(0..512);
        match self.vm.hugetlb_counts(Order::PMD) {
            Ok(counts) if (counts.free, counts.reserved) == (self.case.nr_pages(), 0) => {}
            counts => self.report(format!("round {round}: {counts:?} after the hole")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_rounds_of_each_case() {
        for locking in HugetlbLocking::ALL {
            let of = |case| play(case, locking, 4, 12).unwrap();
            for case in [Case::H1, Case::H1Private, Case::H1Mix] {
                assert_eq!(of(case).nr_stores, 4 * 12, "{case:?}");
            }
            for case in [Case::H2, Case::H2Private] {
                let played = of(case);
                assert_eq!((played.nr_stores, played.nr_refused), (2 * 12, 4 * 12));
                assert_eq!(played.locks.0 > 0, locking != HugetlbLocking::Lockfree);
            }
        }
    }
}
