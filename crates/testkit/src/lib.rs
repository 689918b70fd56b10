//! The test kit: oracles and drivers. The model and the generated calls are those of `softfault_model`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`at_rest`] | the core's checkers |
//! | [`formats`] | page-table formats that tests run on |
//! | [`linux`] | runs sequences in a child process on the host's Linux |
//! | [`fuzz`] | fuzz targets: sequences, and calls on all kinds of memory, from a fuzzer's bytes |
//! | [`hosted`] | runs sequences on the hosted machine |
//! | [`lockstep`] | runs a sequence on several CPUs in turn |
//! | [`parallel`] | runs a sequence on each of several CPUs at once |
//! | [`judge`] | compares Linux, the core and the model |
//! | [`spread`](mod@spread) | chooses the CPUs of a test in a large machine |
//! | [`table`] | the coverage of a soak |
//! | [`baton`] | actors that take turns at each wait of the core |
//! | [`churn`] | huge pages split, shared, moved, pinned by several CPUs at once |
//! | [`last_page`] | the last page of a pool, wanted by several CPUs |
//! | [`days`] | processes come and go for days; then the huge pages are counted |
#![deny(unsafe_code)]

pub mod at_rest;
pub mod baton;
pub mod churn;
mod daemons;
pub mod days;
pub mod fatal;
pub mod formats;
pub mod fuzz;
pub mod hosted;
pub mod judge;
pub mod last_page;
pub mod linux;
pub mod lockstep;
pub mod parallel;
pub mod spread;
pub mod table;
mod trouble;
#[path = "../../host/src/watchdog.rs"]
pub mod watchdog;

pub use softfault_model::{features, generate, model, native, numbers, op, random, shortest};

/// Compiles the Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
