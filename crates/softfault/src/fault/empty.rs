//! Faults on an empty entry: installs the page, or a missing table.
//!
//! The four fault-locking modes differ here only, in how they exclude other faults. All of them run
//! in a section, so removal is the same for all.
//!
//! | mode | excludes by | writes shared lines |
//! | --- | --- | --- |
//! | `global` | spinlock of the space around walk, recheck, install, accounting | lock, count |
//! | `fastpath2004` | lock bit in the entry; found set, the access faults again | count, unless per CPU |
//! | `split` | lock of the leaf table, reference count of the VMA | both |
//! | `lockfree` | compare-and-swap of the entry | none |

use super::context::{Fault, Here, Lost, new_leaf};
use super::fresh::FreshTable;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::Rights;
use crate::frame::{Fill, FrameKind};
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::policy::fault::{FaultPlan, FaultQuestion};
use crate::space::AddressSpace;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};
use crate::table::walk::Walk;
use crate::tunables::FaultLocking;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Installs a table where the walk found none. The loser of a race keeps its frame.
    #[cold]
    pub(crate) fn add_table(
        &self,
        fault: &Fault<'_>,
        hole: Slot<'_, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let here = fault.here;
        let Some(table) = prealloc.take(Fill::Fixed, fault.inside, here.cpu) else {
            return Turn::Need(Need::Frame(Fill::Fixed));
        };
        let level = u64::from(hole.level) - 1;
        self.vm.frames.desc(table).assign(FrameKind::Table, 0, u64::from(self.frame.0), level);
        let installed = if level == 0 {
            self.install_leaf_table(fault, hole, table)
        } else {
            hole.fill(Entry::Table(table)).map(|()| FreshTable::new(table))
        };
        let Ok(fresh) = installed else {
            prealloc.keep(Fill::Fixed, table);
            return Turn::Raced;
        };
        here.cpu.count(Event::TableInstall);
        fresh.note(here.cpu);
        here.rss.add(Rss::Tables, 1);
        // Start over: the section is cheap, and one path is easier to get right than two.
        Turn::Again
    }

    /// An entry that was seen to be none.
    #[inline(always)]
    pub(crate) fn fill_empty(
        &self,
        fault: Fault<'_>,
        slot: Slot<'_, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = fault;
        if found.object() != ObjectId::NONE {
            return self.fill_shared(&{ fault }, slot, prealloc);
        }
        if self.vm.mid_orders_any()
            && let Some(turn) = self.fill_batch(&{ fault }, prealloc)
        {
            return turn;
        }
        let question = FaultQuestion::base(request.access_for_policy(), found.flags());
        match self.vm.machine.fault_policy(&question) {
            FaultPlan::ZeroFrame if !request.wants_own() => self.fill_zero(fault, slot),
            plan => {
                if plan != FaultPlan::NewFrame {
                    here.cpu.count(Event::PlanRejected);
                }
                self.fill_new(fault, slot, prealloc)
            }
        }
    }

    #[inline(always)]
    fn fill_zero(&self, fault: Fault<'_>, slot: Slot<'_, M::Format>) -> Turn<'vm, M> {
        let Fault { here, found, .. } = fault;
        let rights = found.entry_rights() - Rights::WRITE;
        let leaf = Leaf { pfn: self.vm.frames.zero, rights, accessed: true, dirty: false };
        match slot.fill(Entry::Leaf(leaf)) {
            Ok(()) => {
                here.count_done(Event::ZeroMap);
                Turn::Done(FaultDone::ZeroFrame)
            }
            Err(_) => Turn::Raced,
        }
    }

    #[inline(always)]
    fn fill_new(&self, fault: Fault<'_>, slot: Slot<'_, M::Format>, prealloc: &mut Prealloc<'vm, M>) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = fault;
        let Some(pfn) = prealloc.take(Fill::Zeroed, fault.inside, here.cpu) else {
            return Turn::Need(Need::Frame(Fill::Zeroed));
        };
        let (desc, near) = self.vm.frames.desc_near(pfn);
        if let Some(next) = here.cpu.zeroed.peek() {
            // Of the same kind, so that one read of the memory sections is enough.
            near.prefetch(next.0 as usize);
        }
        let index = found.index_of(request.vpn);
        desc.assign(FrameKind::Anon, 1, self.family, index);
        let leaf = new_leaf(fault, pfn);
        // Not an arm of a match: a jump by a table costs more than a comparison.
        let installed = if self.vm.tunables.fault_locking == FaultLocking::Lockfree {
            self.install_lockfree(here, slot, leaf)
        } else {
            self.install_as_set(&{ fault }, slot, leaf)
        };
        match installed {
            Ok(()) => Turn::Done(FaultDone::Installed),
            Err(Lost) => {
                prealloc.keep(Fill::Zeroed, pfn);
                Turn::Raced
            }
        }
    }

    #[inline(always)]
    fn install_lockfree(&self, here: Here<'_>, slot: Slot<'_, M::Format>, leaf: Leaf) -> Result<(), Lost> {
        slot.fill(Entry::Leaf(leaf)).map_err(|_| Lost)?;
        here.count_page(Event::AnonInstall, Rss::Anon);
        Ok(())
    }

    /// Installs, charges and counts as the fault-locking mode requires.
    #[inline(never)]
    fn install_as_set(&self, fault: &Fault<'_>, slot: Slot<'_, M::Format>, leaf: Leaf) -> Result<(), Lost> {
        let here = fault.here;
        match self.vm.tunables.fault_locking {
            FaultLocking::Lockfree => return self.install_lockfree(here, slot, leaf),
            FaultLocking::Fastpath2004 => self.install_2004(here, slot, leaf)?,
            FaultLocking::Split => self.install_split(fault, slot, leaf)?,
            FaultLocking::Global => self.install_global(fault, leaf)?,
        }
        here.count_done(Event::AnonInstall);
        Ok(())
    }

    fn install_2004(&self, here: Here<'_>, slot: Slot<'_, M::Format>, leaf: Leaf) -> Result<(), Lost> {
        slot.test_and_lock().map_err(|_| Lost)?;
        if self.vm.tunables.rss_percpu {
            here.rss.add(Rss::Anon, 1);
        } else {
            self.data.global.rss_anon.fetch_add(1, Ordering::Relaxed);
        }
        slot.publish_locked(Entry::Leaf(leaf));
        Ok(())
    }

    fn install_split(&self, fault: &Fault<'_>, slot: Slot<'_, M::Format>, leaf: Leaf) -> Result<(), Lost> {
        let Fault { here, found, .. } = *fault;
        if let Some(refs) = found.refs {
            refs.fetch_add(1, Ordering::Acquire);
        }
        let lock =
            Spin::lock_in_section(LockKind::LeafTable, &self.vm.frames.desc(fault.leaf_table()).link, &self.vm.machine);
        let result = slot.fill(Entry::Leaf(leaf)).map_err(|_| Lost);
        if result.is_ok() {
            here.rss.add(Rss::Anon, 1);
        }
        drop(lock);
        if let Some(refs) = found.refs {
            refs.fetch_sub(1, Ordering::Release);
        }
        result
    }

    fn install_global(&self, fault: &Fault<'_>, leaf: Leaf) -> Result<(), Lost> {
        let global = &self.data.global;
        let _lock = Spin::lock_in_section(LockKind::Global, &global.lock, &self.vm.machine);
        let Walk::Leaf(slot) = self.walk(fault.inside, fault.request.vpn) else { return Err(Lost) };
        slot.fill(Entry::Leaf(leaf)).map_err(|_| Lost)?;
        global.rss_anon.add_owned(1);
        Ok(())
    }
}
