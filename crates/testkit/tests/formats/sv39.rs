//! Sv39: three levels, and the walk begins one level above the huge pages.

#[path = "../ages.rs"]
mod ages;
#[path = "../churn.rs"]
mod churn;
#[path = "../collapse.rs"]
mod collapse;
#[path = "../collapse_races.rs"]
mod collapse_races;
#[path = "../corpus.rs"]
mod corpus;
#[path = "../discards.rs"]
mod discards;
#[path = "../fast_path/main.rs"]
mod fast_path;
#[path = "../huge/main.rs"]
mod huge;
#[path = "../huge_copies.rs"]
mod huge_copies;
#[path = "../huge_ends.rs"]
mod huge_ends;
#[path = "../huge_pins.rs"]
mod huge_pins;
#[path = "../huge_races/main.rs"]
mod huge_races;
#[path = "../map_over.rs"]
mod map_over;
#[path = "../mremap_races.rs"]
mod mremap_races;
#[path = "../pins/main.rs"]
mod pins;
#[path = "../protect.rs"]
mod protect;
#[path = "../several_cpus.rs"]
mod several_cpus;
#[path = "../shared_objects.rs"]
mod shared_objects;
#[path = "../software_ad_bits.rs"]
mod software_ad_bits;
#[path = "../walker/main.rs"]
mod walker;
