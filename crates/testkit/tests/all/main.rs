//! The files of this folder in one binary, which the gate builds instead of a binary for each.
//! A file that is not named here is built as a binary of its own.
#![allow(clippy::duplicate_mod)] // each file has `common`

#[path = "../ages.rs"]
mod ages;
#[path = "../answers.rs"]
mod answers;
#[path = "../answers_memory.rs"]
mod answers_memory;
#[path = "../bad_input/main.rs"]
mod bad_input;
#[path = "../callbacks.rs"]
mod callbacks;
#[path = "../churn.rs"]
mod churn;
#[path = "../collapse.rs"]
mod collapse;
#[path = "../collapse_races.rs"]
mod collapse_races;
#[path = "../compact.rs"]
mod compact;
#[path = "../corpus.rs"]
mod corpus;
#[path = "../days.rs"]
mod days;
#[path = "../differential.rs"]
mod differential;
#[path = "../discards.rs"]
mod discards;
#[path = "../edges.rs"]
mod edges;
#[path = "../errno.rs"]
mod errno;
#[path = "../explicit/main.rs"]
mod explicit;
#[path = "../failing_allocation.rs"]
mod failing_allocation;
#[path = "../failing_copies/main.rs"]
mod failing_copies;
#[path = "../fast_path/main.rs"]
mod fast_path;
#[path = "../fault_around.rs"]
mod fault_around;
#[path = "../file_advice.rs"]
mod file_advice;
#[path = "../file_drops.rs"]
mod file_drops;
#[path = "../file_failures.rs"]
mod file_failures;
#[path = "../file_holes.rs"]
mod file_holes;
#[path = "../file_late_calls.rs"]
mod file_late_calls;
#[path = "../file_refusals.rs"]
mod file_refusals;
#[path = "../file_removals.rs"]
mod file_removals;
#[path = "../file_room.rs"]
mod file_room;
#[path = "../file_writes.rs"]
mod file_writes;
#[path = "../files.rs"]
mod files;
#[path = "../five_levels.rs"]
mod five_levels;
#[path = "../folio_moves/main.rs"]
mod folio_moves;
#[path = "../folio_refusals.rs"]
mod folio_refusals;
#[path = "../folio_split.rs"]
mod folio_split;
#[path = "../fuzz_targets.rs"]
mod fuzz_targets;
#[path = "../gib_folios/main.rs"]
mod gib_folios;
#[path = "../grow.rs"]
mod grow;
#[path = "../hints.rs"]
mod hints;
#[path = "../huge/main.rs"]
mod huge;
#[path = "../huge_copies.rs"]
mod huge_copies;
#[path = "../huge_ends.rs"]
mod huge_ends;
#[path = "../huge_failing_allocation.rs"]
mod huge_failing_allocation;
#[path = "../huge_pins.rs"]
mod huge_pins;
#[path = "../huge_races/main.rs"]
mod huge_races;
#[path = "../hugetlb.rs"]
mod hugetlb;
#[path = "../large_folios.rs"]
mod large_folios;
#[path = "../last_frames.rs"]
mod last_frames;
#[path = "../limits.rs"]
mod limits;
#[path = "../locked.rs"]
mod locked;
#[path = "../lookups.rs"]
mod lookups;
#[path = "../map_counts.rs"]
mod map_counts;
#[path = "../map_over.rs"]
mod map_over;
#[path = "../mremap.rs"]
mod mremap;
#[path = "../mremap_races.rs"]
mod mremap_races;
#[path = "../notice_calls.rs"]
mod notice_calls;
#[path = "../notify/main.rs"]
mod notify;
#[path = "../object_chaos.rs"]
mod object_chaos;
#[path = "../object_folios.rs"]
mod object_folios;
#[path = "../object_moves.rs"]
mod object_moves;
#[path = "../object_swap/main.rs"]
mod object_swap;
#[path = "../offline/main.rs"]
mod offline;
#[path = "../pins/main.rs"]
mod pins;
#[path = "../placement.rs"]
mod placement;
#[path = "../poison.rs"]
mod poison;
#[path = "../private_files.rs"]
mod private_files;
#[path = "../private_objects.rs"]
mod private_objects;
#[path = "../protect.rs"]
mod protect;
#[path = "../readahead.rs"]
mod readahead;
#[path = "../refusals.rs"]
mod refusals;
#[path = "../relax.rs"]
mod relax;
#[path = "../resize.rs"]
mod resize;
#[path = "../safe_calls/main.rs"]
mod safe_calls;
#[path = "../several_cpus.rs"]
mod several_cpus;
#[path = "../shared_objects.rs"]
mod shared_objects;
#[path = "../small_threads.rs"]
mod small_threads;
#[path = "../smoke.rs"]
mod smoke;
#[path = "../software_ad_bits.rs"]
mod software_ad_bits;
#[path = "../subscribed/main.rs"]
mod subscribed;
#[path = "../swap.rs"]
mod swap;
#[path = "../tail_descs.rs"]
mod tail_descs;
#[path = "../touched.rs"]
mod touched;
#[path = "../underused.rs"]
mod underused;
#[path = "../waits.rs"]
mod waits;
#[path = "../walker/main.rs"]
mod walker;
