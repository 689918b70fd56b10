//! The models of shuttle in one binary, which the gate builds instead of a binary for each file.
//! A file that is not named here is built as a binary of its own.

#[path = "../buffers.rs"]
mod buffers;
#[path = "../deferred.rs"]
mod deferred;
#[path = "../gib_folios.rs"]
mod gib_folios;
#[path = "../huge_memory.rs"]
mod huge_memory;
#[path = "../hugetlb.rs"]
mod hugetlb;
#[path = "../hugetlb_copies.rs"]
mod hugetlb_copies;
#[path = "../hugetlb_gib.rs"]
mod hugetlb_gib;
#[path = "../hugetlb_holes.rs"]
mod hugetlb_holes;
#[path = "../hugetlb_locks.rs"]
mod hugetlb_locks;
#[path = "../hugetlb_moves.rs"]
mod hugetlb_moves;
#[path = "../hugetlb_private.rs"]
mod hugetlb_private;
#[path = "../hugetlb_surplus.rs"]
mod hugetlb_surplus;
#[path = "../hugetlb_taken.rs"]
mod hugetlb_taken;
#[path = "../object_folios/main.rs"]
mod object_folios;
#[path = "../resize.rs"]
mod resize;
#[path = "../several_cpus.rs"]
mod several_cpus;
#[path = "../walker.rs"]
mod walker;
#[path = "../weak_memory/main.rs"]
mod weak_memory;
