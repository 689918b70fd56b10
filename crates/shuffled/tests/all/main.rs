//! The files of this folder in one binary, which the gate builds in a third of the time that a binary for each takes.
//! A file that is not named here is built by itself.

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
#[path = "../resize.rs"]
mod resize;
#[path = "../several_cpus.rs"]
mod several_cpus;
#[path = "../walker.rs"]
mod walker;
#[path = "../weak_memory/main.rs"]
mod weak_memory;
