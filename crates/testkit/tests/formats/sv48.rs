//! Sv48: as many levels as x86-64.

#[path = "../ages.rs"]
mod ages;
#[path = "../churn.rs"]
mod churn;
#[path = "../corpus.rs"]
mod corpus;
#[path = "../fast_path/main.rs"]
mod fast_path;
#[path = "../huge_pins.rs"]
mod huge_pins;
#[path = "../huge_races/main.rs"]
mod huge_races;
#[path = "../pins/main.rs"]
mod pins;
#[path = "../several_cpus.rs"]
mod several_cpus;
#[path = "../software_ad_bits.rs"]
mod software_ad_bits;
#[path = "../walker/main.rs"]
mod walker;
