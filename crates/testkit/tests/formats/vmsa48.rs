//! Arm: a page gets dirty by the loss of a bit.

#[path = "../ages.rs"]
mod ages;
#[path = "../fast_path/main.rs"]
mod fast_path;
#[path = "../huge_races/main.rs"]
mod huge_races;
#[path = "../pins/main.rs"]
mod pins;
#[path = "../software_ad_bits.rs"]
mod software_ad_bits;
#[path = "../walker/main.rs"]
mod walker;
