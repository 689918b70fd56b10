//! The models of loom in one binary, which the gate builds instead of a binary for each file.
//! A file that is not named here is built as a binary of its own.

#[path = "../ages.rs"]
mod ages;
#[path = "../bits_and_decisions.rs"]
mod bits_and_decisions;
#[path = "../clusters.rs"]
mod clusters;
#[path = "../every_model.rs"]
mod every_model;
#[path = "../explicit.rs"]
mod explicit;
#[path = "../failing_copies.rs"]
mod failing_copies;
#[path = "../fault_and_fault.rs"]
mod fault_and_fault;
#[path = "../fault_and_removal.rs"]
mod fault_and_removal;
#[path = "../fault_around.rs"]
mod fault_around;
#[path = "../file_advice.rs"]
mod file_advice;
#[path = "../file_poison.rs"]
mod file_poison;
#[path = "../files.rs"]
mod files;
#[path = "../folio_moves.rs"]
mod folio_moves;
#[path = "../fork_and_copy.rs"]
mod fork_and_copy;
#[path = "../frames_and_thieves.rs"]
mod frames_and_thieves;
#[path = "../huge_pages.rs"]
mod huge_pages;
#[path = "../huge_pins.rs"]
mod huge_pins;
#[path = "../large_folios.rs"]
mod large_folios;
#[path = "../late_calls.rs"]
mod late_calls;
#[path = "../members.rs"]
mod members;
#[path = "../moves.rs"]
mod moves;
#[path = "../mremap.rs"]
mod mremap;
#[path = "../notices.rs"]
mod notices;
#[path = "../object_and_discard.rs"]
mod object_and_discard;
#[path = "../object_folios.rs"]
mod object_folios;
#[path = "../object_moves.rs"]
mod object_moves;
#[path = "../object_swap.rs"]
mod object_swap;
#[path = "../pins.rs"]
mod pins;
#[path = "../poison.rs"]
mod poison;
#[path = "../private_objects.rs"]
mod private_objects;
#[path = "../read_failures.rs"]
mod read_failures;
#[path = "../resident_counts.rs"]
mod resident_counts;
#[path = "../resize.rs"]
mod resize;
#[path = "../subscribed_moves.rs"]
mod subscribed_moves;
#[path = "../summaries.rs"]
mod summaries;
#[path = "../swap.rs"]
mod swap;
#[path = "../tail_descs.rs"]
mod tail_descs;
#[path = "../touched.rs"]
mod touched;
#[path = "../tree_and_readers.rs"]
mod tree_and_readers;
#[path = "../walker.rs"]
mod walker;
#[path = "../write_back.rs"]
mod write_back;
