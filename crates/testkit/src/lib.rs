//! The test kit: a model of an address space, generated calls, oracles and drivers.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`op`] | one step of a sequence and its outcome |
//! | [`numbers`] | Linux's constants in the arguments of steps |
//! | [`model`] | an address space as a map of pages |
//! | [`generate`] | sequences from a seed |
//! | [`features`] | features that a kernel may lack |
//! | [`formats`] | page-table formats that tests run on |
//! | [`linux`] | runs sequences in a child process on the host's Linux |
//! | [`fuzz`] | sequences from a fuzzer's bytes |
//! | [`hosted`] | runs sequences on the hosted machine |
//! | [`native`] | runs steps in this process, on Linux or the reference kernel |
//! | [`lockstep`] | runs a sequence on several CPUs in turn |
//! | [`parallel`] | runs a sequence on each of several CPUs at once |
//! | [`judge`] | compares Linux, the core and the model |
//! | [`shortest`] | shortens a sequence that fails |
//! | [`spread`](mod@spread) | chooses the CPUs of a test in a large machine |
//! | [`table`] | the coverage of a soak |
//! | [`baton`] | actors that take turns at each wait of the core |
//! | [`churn`] | huge pages split, shared, moved, pinned by several CPUs at once |
//! | [`last_page`] | the last page of a pool, wanted by several CPUs |
//! | [`days`] | processes come and go for days; then the huge pages are counted |
#![deny(unsafe_code)]

pub mod baton;
pub mod churn;
mod daemons;
pub mod days;
pub mod fatal;
pub mod features;
pub mod formats;
pub mod fuzz;
pub mod generate;
pub mod hosted;
pub mod judge;
pub mod last_page;
pub mod linux;
pub mod lockstep;
pub mod model;
pub mod native;
pub mod numbers;
pub mod op;
pub mod parallel;
pub mod random;
pub mod shortest;
pub mod spread;
pub mod table;
mod trouble;

/// Compiles the Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
