//! Module `table`: page tables as the hardware reads them, and the few ways in
//! which an entry may change.
//!
//! | change | how | who |
//! | --- | --- | --- |
//! | `None` to a mapping or a table | compare-and-swap | anyone in a section |
//! | a mapping to fewer rights | compare-and-swap that keeps accessed and dirty | writer |
//! | a mapping to another frame | to `Busy`, shootdown, to the new one | copy-on-write |
//! | a mapping to nothing | to `Busy` (keeping the frame number), shootdown, grace, harvest | writer |
//! | a table to nothing | the same, one level up, wholly covered tables only | writer |
//! | `None` to a huge mapping | to locked, deposit, to the mapping | anyone in a section |
//! | a huge mapping to a table | to `Busy`, shootdown, to the deposited table | anyone |
//! | a table to a huge mapping | to `Busy`, shootdown, grace, copy, to the mapping | collapse, under the writer lock |
//!
//! A `Busy` entry belongs to who made it; everyone else leaves the section and
//! waits. A table with a `Busy` entry of somebody else in it is not freed.
//!
//! Neighbours: `frame` below; `fault` and `space` call in here. This module
//! knows no VMA. Locks on entry: a section or the writer lock; a walk takes the token
//! (`KeepsTables`).

pub(crate) mod entry;
pub mod format;
pub(crate) mod place;
pub(crate) mod pmd;
pub(crate) mod reserve;
pub(crate) mod take;
pub(crate) mod walk;
