//! The context of an attempt: the request, the CPU it runs on, the VMA it found.

use super::find::{FoundVma, hinted_table};
use super::request::Request;
use crate::account::Event;
use crate::account::rss::{Rss, RssLine};
use crate::addr::{Access, Pfn};
use crate::base::HugeNow;
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::policy::fault::FaultQuestion;
use crate::policy::huge::Orders;
use crate::section::InSection;
use crate::space::AddressSpace;
use crate::table::format::Leaf;

/// The cache lines that a fault writes besides entry and descriptor. Valid until the next wait,
/// after which the caller may run on another CPU (I2).
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) cpu: &'a CpuData,
    pub(crate) rss: &'a RssLine,
}

/// One attempt, built when its VMA is found and valid in its section. The fast path takes it by
/// value and keeps it in registers. Functions that are not inlined get a reference to a copy, `&{
/// fault }`, so that it is stored on the way to those calls only.
#[derive(Clone, Copy)]
pub(crate) struct Fault<'a> {
    pub(crate) here: Here<'a>,
    pub(crate) request: Request,
    pub(crate) found: FoundVma<'a>,
    /// The section, which nothing here outlives.
    pub(crate) inside: InSection<'a>,
}

/// An install lost its race.
pub(crate) struct Lost;

impl Fault<'_> {
    /// The leaf table of the page, after its entry was found: both lookups of the entry store its
    /// table in the hint.
    #[inline(always)]
    pub(crate) fn leaf_table(&self) -> Pfn {
        debug_assert!(self.here.cpu.hint.stretch.get() != 0);
        hinted_table(self.here.cpu)
    }

    /// Whether it is a store that a file's folio has to know of before an entry allows it.
    pub(crate) fn is_first_store(&self) -> bool {
        self.request.access() == Access::Write && self.found.is_tracked()
    }

    /// The question for the policy where pages larger than a base page are allowed.
    pub(crate) fn question(&self, orders: Orders, knobs: HugeNow) -> FaultQuestion {
        FaultQuestion {
            access: self.request.access_for_policy(),
            flags: self.found.flags(),
            orders,
            use_zero_page: knobs.use_zero_page(),
        }
    }
}

impl Here<'_> {
    /// Counts a fault that is done.
    #[inline(always)]
    pub(crate) fn count_done(self, event: Event) {
        self.cpu.count(Event::Fault);
        self.cpu.count(event);
        self.rss.add(Rss::MinorFaults, 1);
    }

    /// Counts a fault that is done and its new page.
    #[inline(always)]
    pub(crate) fn count_page(self, event: Event, page: Rss) {
        self.cpu.count(Event::Fault);
        self.cpu.count(event);
        self.rss.add_one_of_each([page, Rss::MinorFaults]);
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// The lines of the CPU that the caller runs on.
    pub(crate) fn here(&self) -> Here<'_> {
        let id = self.vm.machine.this_cpu();
        Here { cpu: self.vm.cpu(id), rss: self.rss_line(id) }
    }
}

/// The entry of a private frame that the fault installs.
#[inline(always)]
pub(super) fn new_leaf(fault: Fault<'_>, pfn: Pfn) -> Leaf {
    let Fault { request, found, .. } = fault;
    let writes = request.access() == Access::Write;
    // A forced write gives the entry only the VMA's rights. A page that is only read stays clean,
    // and is writable if nobody shares it.
    Leaf { pfn, rights: found.entry_rights(), accessed: true, dirty: writes }
}
