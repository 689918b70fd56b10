//! Which CPUs an address space has to reckon with.
//!
//! A CPU's bit is set before it loads the root table, or before it enters a
//! section on behalf of a space that it does not run, by a full-fence
//! read-modify-write; a writer publishes first and reads the set afterwards,
//! with a fence between. So either the writer sees the bit and waits, or the
//! visitor sees what was published (I11).

use super::{AddressSpace, CpusLine, ShotLine, SpaceData};
use crate::account::Event;
use crate::cpu::CpuData;
use crate::machine::{CpuId, CpuSet, Flush, MAX_CPUS, Machine};
use crate::section::Section;
use crate::sync::{self, Ordering, Word};
use crate::vm::Vm;

/// A section in which the CPU counts as one of the space's.
#[must_use]
pub(crate) struct SpaceSection<'vm> {
    // Declared first: the section ends before the bit goes.
    section: Section<'vm>,
    _visit: Option<Visit<'vm>>,
}

/// The bit of a CPU that does not run the space.
struct Visit<'vm> {
    word: &'vm Word,
    bit: u64,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Enters a section of this space.
    #[inline(always)]
    pub(crate) fn section(&self) -> SpaceSection<'vm> {
        self.vm.space_section(self.data, self.id)
    }

    /// The CPUs to reckon with; after a fence, so that what was written before
    /// is seen by those who are not in it yet.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.vm.cpus_in(&self.data.cpus)
    }

    /// Waits until no section uses what was published away before this.
    pub(crate) fn wait_for_readers(&self) {
        let cpus = self.cpus();
        if !cpus.is_only(self.vm.machine.this_cpu()) {
            self.vm.count(Event::Grace, 1);
            self.vm.grace(&cpus);
        }
    }

    /// Drops translations everywhere; afterwards no access goes through them.
    pub(crate) fn shootdown(&self, what: Flush) {
        let mut cpus = self.cpus();
        if self.data.shot.is_counted() {
            // Before the CPUs that are waited for are read: a section that is not
            // waited for sees the new count (I39).
            self.data.shot.raise();
            cpus = self.cpus();
        }
        if !cpus.is_empty() {
            self.vm.count(Event::Shootdown, 1);
            self.vm.machine.shootdown(self.tag(), &cpus, what);
        }
    }

    /// The same, and no section that read the old entries is left either: from
    /// now on their frames can be freed.
    pub(crate) fn shootdown_and_wait(&self, what: Flush) {
        self.shootdown(what);
        self.wait_after_shootdown();
    }

    /// The second half of [`shootdown_and_wait`](Self::shootdown_and_wait).
    pub(crate) fn wait_after_shootdown(&self) {
        if !self.vm.machine.shootdown_is_grace() {
            self.wait_for_readers();
        }
    }
}

impl ShotLine {
    /// From now on shootdowns are counted, if they were not before.
    ///
    /// The fence pairs with the one before [`is_counted`](Self::is_counted): a remover
    /// that finds nothing to count has changed its entries before the caller reads any.
    pub(crate) fn begin_to_count(&self) {
        if !self.is_counted() {
            _ = self.count.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
        }
        sync::fence();
    }

    /// After a fence that follows the change of entries.
    fn is_counted(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Whoever reads a new count reads the entries that were changed before it.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

impl<M: Machine> Vm<M> {
    /// The CPUs whose bits are set, read after a fence.
    fn cpus_in(&self, line: &CpusLine) -> CpuSet {
        sync::fence();
        let mut words = [0; MAX_CPUS / 64];
        let nr_words = self.machine.nr_cpus().div_ceil(64);
        for (to, from) in words.iter_mut().zip(&line.words).take(nr_words) {
            *to = from.load(Ordering::SeqCst);
        }
        CpuSet::from_words(words)
    }

    /// Enters a section in which a family is looked up (I30).
    pub(crate) fn lookup_section(&self) -> SpaceSection<'_> {
        let id = self.machine.this_cpu();
        let visit = Visit::begin(&self.family_lookups, id);
        SpaceSection { section: self.section_of(id, self.cpu(id)), _visit: Some(visit) }
    }

    /// Waits until no section is left that looked a family up before this.
    pub(crate) fn wait_for_lookups(&self) {
        self.grace(&self.cpus_in_lookups());
    }

    /// The CPUs that look a family up.
    pub(crate) fn cpus_in_lookups(&self) -> CpuSet {
        self.cpus_in(&self.family_lookups)
    }

    /// Enters a section of a space. A CPU that does not run it (a debugger's, F7;
    /// rmap's) sets its bit first, for the time of the section.
    #[inline(always)]
    pub(crate) fn space_section<'vm>(&'vm self, data: &'vm SpaceData, space_id: u64) -> SpaceSection<'vm> {
        let id = self.machine.this_cpu();
        let cpu = self.cpu(id);
        let runs_it = cpu.active.get() == space_id;
        let visit = if runs_it { None } else { Some(Visit::begin(&data.cpus, id)) };
        SpaceSection { section: self.section_of(id, cpu), _visit: visit }
    }
}

impl<'vm> SpaceSection<'vm> {
    /// The CPU that is inside.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &'vm CpuData {
        self.section.cpu()
    }
    /// Its number.
    #[inline(always)]
    pub(crate) fn id(&self) -> CpuId {
        self.section.id()
    }
}

impl<'vm> Visit<'vm> {
    #[cold]
    fn begin(cpus: &'vm CpusLine, id: CpuId) -> Visit<'vm> {
        let (word, bit) = (&cpus.words[usize::from(id.0) / 64], 1 << (id.0 % 64));
        let was = word.fetch_or(bit, Ordering::SeqCst);
        sync::fence();
        // A bit that stood already stays: the CPU has not left the space yet.
        Visit { word, bit: bit & !was }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!self.bit, Ordering::SeqCst);
    }
}
