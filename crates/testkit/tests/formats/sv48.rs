//! Sv48: as many levels as x86-64, and Sv39's entries, which have all suites.

#[path = "../corpus.rs"]
mod corpus;
#[path = "../fast_path/main.rs"]
mod fast_path;
#[path = "../huge_races/main.rs"]
mod huge_races;
#[path = "../walker/main.rs"]
mod walker;
