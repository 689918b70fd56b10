//! An address space as a map of pages, and the generated calls that it predicts.
//!
//! Of the core this package uses the names of errors only, so a mistake of the core cannot be one of the model's.
//! The program `guest` makes the calls on the kernel that it runs on.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`op`] | one step of a sequence and its outcome |
//! | [`numbers`] | Linux's constants in the arguments of steps |
//! | [`model`] | an address space as a map of pages |
//! | [`generate`] | sequences from a seed |
//! | [`features`] | features that a kernel may lack |
//! | [`native`] | runs steps in this process, on Linux or the reference kernel |
//! | [`random`] | random numbers that repeat |
//! | [`shortest`](mod@shortest) | shortens a sequence that fails |
#![deny(unsafe_code)]

pub mod features;
pub mod generate;
pub mod model;
pub mod native;
pub mod numbers;
pub mod op;
pub mod random;
pub mod shortest;
