//! What Softfault is tested against.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`op`] | one step of a sequence and its outcome |
//! | [`numbers`] | Linux's numbers that steps have as arguments |
//! | [`model`] | an address space as a map of pages |
//! | [`generate`] | sequences from a seed |
//! | [`features`] | what kernels may lack |
//! | [`formats`] | page-table formats that tests run on |
//! | [`linux`] | a child process on the host's Linux that executes them |
//! | [`fuzz`] | sequences from a fuzzer's bytes |
//! | [`hosted`] | the hosted machine that executes them |
//! | [`native`] | this process's own Linux or reference kernel that executes them |
//! | [`lockstep`] | the same on several CPUs in turn |
//! | [`parallel`] | several CPUs at once, each in a part of its own |
//! | [`judge`] | both and the model, compared |
//! | [`shortest`] | the shortest sequence that still differs |
//! | [`spread`](mod@spread) | which CPUs of a large machine a test's threads are |
//! | [`table`] | what a soak has covered |
//! | [`baton`] | actors that take turns at each wait of the core |
//! | [`churn`] | huge pages split, shared, moved, pinned by several CPUs at once |
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
