//! From an address in the core's memory to a name: which structure, which field.
//! For recorders and debuggers; nothing in the core uses it.

use crate::addr::{PAGE_SIZE, Pfn};
use crate::cpu::CpuData;
use crate::frame::{BlockData, FrameDesc, FrameKind, MetaUse};
use crate::machine::Machine;
use crate::mem::FrameArray;
use crate::space::SpaceData;
use crate::space::Vm;
use core::mem::offset_of;

/// The structure and field at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub struct Place {
    /// The structure.
    pub structure: &'static str,
    /// The field, or a word in its place.
    pub field: &'static str,
}

/// Fields in the order of their offsets: the last one that begins at or before
/// the offset is the answer.
type Fields = &'static [(usize, &'static str)];

const DESC: Fields = &[
    (offset_of!(FrameDesc, state), "state"),
    (offset_of!(FrameDesc, owner), "owner"),
    (offset_of!(FrameDesc, index), "index"),
    (offset_of!(FrameDesc, link), "link"),
];
const BLOCK: Fields = &[
    (offset_of!(BlockData, state), "state"),
    (BlockData::USED_OFFSET, "used"),
    (offset_of!(BlockData, folio), "folio"),
    (offset_of!(BlockData, dirty), "dirty"),
    (offset_of!(BlockData, tails), "tails"),
    (offset_of!(BlockData, age), "age"),
];
const CPU: Fields = &[
    (offset_of!(CpuData, slot), "slot"),
    (offset_of!(CpuData, active), "active"),
    (offset_of!(CpuData, zeroed), "zeroed"),
    (offset_of!(CpuData, raw), "raw"),
    (offset_of!(CpuData, fixed), "fixed"),
    (offset_of!(CpuData, hint), "hint"),
    (offset_of!(CpuData, shared), "shared"),
    (offset_of!(CpuData, pinned), "pinned"),
    (offset_of!(CpuData, attention), "attention"),
    (offset_of!(CpuData, held), "held"),
    (offset_of!(CpuData, guarded), "guarded"),
    (offset_of!(CpuData, held_before), "held_before"),
    (offset_of!(CpuData, attention_line), "attention"),
    (offset_of!(CpuData, block), "block"),
    (offset_of!(CpuData, events), "events"),
    (offset_of!(CpuData, sizes), "sizes"),
    (offset_of!(CpuData, samples_after), "watch"),
    (offset_of!(CpuData, batches), "batches"),
];
const SPACE: Fields = &[
    (offset_of!(SpaceData, id), "id"),
    (offset_of!(SpaceData, generation), "generation"),
    (offset_of!(SpaceData, tree), "tree"),
    (offset_of!(SpaceData, writer), "writer"),
    (offset_of!(SpaceData, global), "global"),
    (offset_of!(SpaceData, cpus), "cpus"),
    (offset_of!(SpaceData, family), "family"),
    (offset_of!(SpaceData, limits), "limits"),
    (offset_of!(SpaceData, notify), "notify"),
    (offset_of!(SpaceData, shot), "shot"),
    (crate::space::RSS_OFFSET, "rss"),
];
const TREE: [&str; 5] = ["block groups", "level 1", "level 2", "level 3", "level 4"];
const TABLES: [&str; 5] = ["level 0", "level 1", "level 2", "level 3", "level 4"];

fn field_at(fields: Fields, offset: usize) -> &'static str {
    fields.iter().rev().find(|(at, _)| *at <= offset).map_or("?", |(_, name)| name)
}

/// Which element an address lies in, and where in it.
fn in_array<T: crate::mem::Words>(array: &FrameArray<T>, addr: usize) -> Option<(usize, usize)> {
    let first = core::ptr::from_ref(array.get(0)?).addr();
    let offset = addr.checked_sub(first)?;
    (offset < array.len() * size_of::<T>()).then_some((offset / size_of::<T>(), offset % size_of::<T>()))
}

impl<M: Machine> Vm<M> {
    /// Returns the structure and field at an address of this machine's memory, or in the `Vm` itself.
    pub fn describe(&self, addr: usize) -> Option<Place> {
        if let Some((_, at)) = self.frames.descs.find_addr(addr) {
            return Some(Place { structure: "FrameDesc", field: field_at(DESC, at) });
        }
        if let Some((_, at)) = self.frames.blocks.data.find_addr(addr) {
            return Some(Place { structure: "BlockData", field: field_at(BLOCK, at) });
        }
        if let Some((_, at)) = in_array(&self.cpus, addr) {
            return Some(Place { structure: "CpuData", field: field_at(CPU, at) });
        }
        if in_array(&self.hugetlb_mutexes, addr).is_some() {
            return Some(Place { structure: "HugetlbMutex", field: "lock" });
        }
        let summary = &self.frames.blocks.summary;
        if let Some((row, _)) = in_array(summary.rows(), addr) {
            return Some(Place { structure: "Summary", field: TREE[summary.level_of(row)] });
        }
        let own = core::ptr::from_ref(self).addr();
        if (own..own + size_of::<Self>()).contains(&addr) {
            return Some(Place { structure: "Vm", field: "words" });
        }
        self.describe_frame(addr)
    }

    fn describe_frame(&self, addr: usize) -> Option<Place> {
        // The direct map is linear (I1).
        let base = self.machine.frame_ptr(self.frames.zero).addr();
        let distance = addr.wrapping_sub(base) as isize;
        let pfn = i64::from(self.frames.zero.0) + distance.div_euclid(PAGE_SIZE as isize) as i64;
        if pfn < 0 || pfn >= self.frames.descs.len() as i64 {
            return None;
        }
        let desc = self.frames.find_desc_at_rest(Pfn(pfn as u32))?;
        let offset = addr % PAGE_SIZE as usize;
        Some(match desc.state().kind() {
            FrameKind::Table => Place { structure: "table", field: TABLES[(desc.index.get() as usize).min(4)] },
            FrameKind::Meta if [MetaUse::Space as u64, MetaUse::Founder as u64].contains(&desc.index.get()) => {
                Place { structure: "SpaceData", field: field_at(SPACE, offset) }
            }
            FrameKind::Meta if desc.index.get() == MetaUse::Rss as u64 => {
                Place { structure: "RssLine", field: "counts" }
            }
            FrameKind::Meta if desc.index.get() == MetaUse::Tree as u64 => Place { structure: "tree", field: "node" },
            FrameKind::Meta if desc.index.get() == MetaUse::Reserve as u64 => {
                Place { structure: "reserve", field: "?" }
            }
            FrameKind::Meta => Place { structure: "object", field: "node" },
            _ => Place { structure: "frame", field: "bytes" },
        })
    }
}
