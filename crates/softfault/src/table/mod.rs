//! Module `table`: page tables as the hardware reads them, and how an entry may change.
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
//! A `Busy` entry is owned by the operation that made it; all others leave their section and wait.
//! A table that contains a foreign `Busy` entry is not freed.
//!
//! It uses `frame`; `fault` and `space` use it. It knows no VMAs. Locks on entry: a section or the
//! writer lock; a walk takes the token (`KeepsTables`).

pub(crate) mod entry;
pub mod format;
pub(crate) mod place;
pub(crate) mod pmd;
pub(crate) mod reserve;
pub(crate) mod run;
pub(crate) mod take;
pub(crate) mod walk;
