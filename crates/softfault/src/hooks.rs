//! Ways in for tests and the laboratory: cargo feature `hooks`.
//!
//! A port has no use for these. They age memory, make allocations fail, pretend counts and show what is promised to
//! nobody: frame numbers that mean nothing a moment later, layouts of the core's own structures. They may change in any
//! release. The core compiled without the feature has none of their code.
//!
//! Methods of [`Vm`]:
//!
//! | hook | for |
//! | --- | --- |
//! | [`age`](Vm::age), [`hold_one_in_each_block`](Vm::hold_one_in_each_block) | memory that has been in use for long |
//! | [`take_bits`](Vm::take_bits), [`give_bits`](Vm::give_bits), [`fix_block`](Vm::fix_block), [`take_all`](Vm::take_all) | memory of any size in any state |
//! | [`fail_allocation`](Vm::fail_allocation) | refusals at each place that allocates |
//! | [`pretend_mappings`](Vm::pretend_mappings) | what happens at the limit of mappings |
//! | [`spend_reserve`](Vm::spend_reserve) | what a reaction to pressure takes |
//! | [`hugetlb_counts_as_they_are`](Vm::hugetlb_counts_as_they_are) | what pools of huge pages count at a moment |
//! | [`split_folio`](Vm::split_folio) | a split at any moment |
//! | [`drop_clean`](Vm::drop_clean) | a drop of clean folios at any moment |
//! | [`rmap_anon`](Vm::rmap_anon) | the reverse map, compared with the tables |
//! | [`nr_dirty_by_word`](Vm::nr_dirty_by_word) | whether a test left anything dirty to look at |
//! | [`event`](crate::Memory::event) | one counter |
//! | [`describe`](Vm::describe) | from an address to the structure and field there |
//!
//! [`Trees`] are the summaries over blocks without an allocator, [`FewBlocks`] blocks with their summaries.
//!
//! And [`translate_at_rest`](AddressSpace::translate_at_rest) of a space; the format `Toy` of the models; [`sections`],
//! the two halves of the barrier between sections and those who wait for them.
//!
//! No hooks: [`Vm::check`](Vm::check) and
//! [`conformance`](crate::table::format::conformance). A port runs them in its own tests.

mod age;
mod blocks;
mod describe;
mod dirty;
mod drop_clean;
mod inject;
mod object;
mod pools;
mod pretend;
mod reserve;
mod rmap;
mod split;
mod state;
mod translate;
mod trees;

pub use crate::frame::Class;
pub use blocks::FewBlocks;
pub use describe::Place;
pub use object::ObjectPageState;
pub use rmap::Mapping;
pub use state::{BlockBits, Holds};
pub use trees::Trees;

#[cfg(doc)]
use crate::{AddressSpace, Vm};

/// The section's two halves of the barrier, for tests of the machine that they run on.
#[cfg(not(softfault_sync))]
pub mod sections {
    pub use crate::sync::machine::{enter, leave, probe};
}
