//! The limit: as many bytes cleared by as many threads, in the order that was measured best, without faults.

use super::load::{Load, Sample};
use crate::bench::{Arena, Frames, PAGE_BYTES, crew, prepare_frames};
use crate::error::LabError;
use softfault::Order;
use softfault::Pfn;
use softfault::clear::{ClearOrder, ClearTable, Scratch};
use softfault::machine::{FrameRange, Machine};
use std::sync::{Mutex, PoisonError};

/// One row: each thread clears a part of the arena, 2 MiB at a time.
pub fn run(arena: &mut Arena, measured: &ClearTable, load: &Load, nr_threads: usize) -> Result<Sample, LabError> {
    let hosted = arena.hosted_mut();
    prepare_frames(hosted, Frames::Fresh);
    let step = Order::PMD.nr_pages();
    let nr_frames = load.bytes() / PAGE_BYTES / nr_threads as u64 / step * step;
    let how = measured.best(Order::PMD).unwrap_or(ClearOrder::Forward);
    let first = u64::from(hosted.frames()[0].first.0).next_multiple_of(step);
    let range = FrameRange { first: Pfn(first as u32), nr_frames: nr_frames * nr_threads as u64 };
    let mut rest =
        Scratch::new(hosted, range).ok_or_else(|| LabError::subsystem("the arena", "is too small to clear"))?;
    let mut parts = Vec::new();
    for _ in 0..nr_threads {
        let (part, others) = rest.split_at(nr_frames);
        parts.push(Mutex::new(part));
        rest = others;
    }
    let done = crew::together(nr_threads, &load.cpus, |thread, steps| {
        let mut part = parts[thread].lock().unwrap_or_else(PoisonError::into_inner);
        steps.timed(|| {
            (0..nr_frames).step_by(step as usize).for_each(|at| part.clear(at, Order::PMD, Some(0), how));
            Ok(())
        })
    })?;
    Ok(Sample { wall: done.walls[0], locks: None })
}
