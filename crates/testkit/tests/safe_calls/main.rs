//! Programs without `unsafe` that once reached undefined behaviour.
#![forbid(unsafe_code)]

mod callbacks;
#[path = "../common/mod.rs"]
mod common;
mod cpus;
mod every;
mod memory;
mod values;

use common::*;
use softfault::{Access, CpuId, CpuSet, HugeKnobs, Notice, ObjectPart, Order, Pfn, Tunables, Vm};
use softfault_host::{BindError, Hosted, HostedConfig};
use std::thread;
