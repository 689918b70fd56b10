//! Module `policy`: decisions, as pure functions.
//!
//! A policy takes a question by value and returns a plan by value. It holds no lock, reads no
//! memory, and cannot break anything: the mechanism checks each plan against the state that it
//! sees, and counts rejected ones (`fault_plan_rejected`).

pub mod around;
pub mod clear;
pub mod collapse;
pub mod compact;
pub mod density;
pub mod fault;
pub mod folio;
pub(crate) mod homes;
pub mod huge;
pub(crate) mod readahead;
pub(crate) mod second_chance;
pub(crate) mod share;
pub mod watermark;
pub mod zero;
