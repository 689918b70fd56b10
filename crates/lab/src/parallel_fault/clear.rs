//! As many bytes cleared by as many threads, without faults: as our faults clear them, in the way that is fastest for so many
//! threads, which is the limit, and as the host's Linux clears them.

use super::load::{Load, Sample};
use super::way::Way;
use crate::bench::{Arena, Frames, PAGE_BYTES, crew, median, prepare_frames};
use crate::error::LabError;
use softfault::clear::Scratch;
use softfault::machine::{FrameRange, Machine};
use softfault::{Order, Pfn};
use softfault_host::Hosted;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Clears of each candidate, of which the median counts.
const NR_TRIALS: usize = 9;
/// Most bytes that a trial clears: far more than the caches have.
const MOST_TRIAL_BYTES: u64 = 512 << 20;

/// Clears 2 MiB of a thread's part, from the frame of that number.
pub trait Clear: Fn(&mut Scratch<'_, Hosted>, u64) + Sync {}
impl<F: Fn(&mut Scratch<'_, Hosted>, u64) + Sync> Clear for F {}

/// One row: each thread clears a part of the arena, 2 MiB at a time by a call of `clear`.
pub fn run(arena: &mut Arena, clear: impl Clear, load: &Load, nr_threads: usize) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), Frames::Fresh);
    Ok(Sample { wall: timed(arena, clear, (load.bytes(), &load.cpus), nr_threads)?, locks: None })
}

/// The fastest of `candidates` for so many threads.
pub fn fastest(arena: &mut Arena, candidates: &[Way], load: &Load, nr_threads: usize) -> Result<Way, LabError> {
    // A page at least for each.
    let bytes = load.bytes().min(MOST_TRIAL_BYTES.max((nr_threads as u64) << 21));
    let mut seconds = vec![Vec::new(); candidates.len()];
    // Interleaved: a disturbance meets all of them.
    for _ in 0..NR_TRIALS {
        for (way, seconds) in candidates.iter().zip(&mut seconds) {
            let clear = |part: &mut Scratch<'_, Hosted>, at| way.clear(part, at);
            seconds.push(timed(arena, clear, (bytes, &load.cpus), nr_threads)?.as_secs_f64());
        }
    }
    Ok(candidates[place_of_fastest(&seconds)])
}

fn place_of_fastest(seconds: &[Vec<f64>]) -> usize {
    let of = |place: &usize| median(seconds[*place].iter().copied());
    (0..seconds.len()).min_by(|a, b| of(a).total_cmp(&of(b))).expect("faults have a way")
}

fn timed(
    arena: &mut Arena,
    clear: impl Clear,
    (bytes, cpus): (u64, &[usize]),
    nr_threads: usize,
) -> Result<Duration, LabError> {
    let hosted = arena.hosted_mut();
    let step = Order::PMD.nr_pages();
    let nr_frames = bytes / PAGE_BYTES / nr_threads as u64 / step * step;
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
    let done = crew::together(nr_threads, cpus, |thread, steps| {
        let mut part = parts[thread].lock().unwrap_or_else(PoisonError::into_inner);
        steps.timed(|| {
            (0..nr_frames).step_by(step as usize).for_each(|at| clear(&mut part, at));
            Ok(())
        })
    })?;
    Ok(done.walls[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel_fault::options::Shape;
    use softfault::clear::{ClearOrder, Zeroing};
    use softfault_host::HostedConfig;

    #[test]
    fn the_median_decides() {
        let seconds = [vec![0.1, 3.0, 3.0], vec![2.0, 2.0, 9.0], vec![2.5, 2.5, 2.5]];
        assert_eq!(place_of_fastest(&seconds), 1);
    }

    #[test]
    fn the_limit_is_cleared_in_each_way_by_all_threads() {
        let config = HostedConfig::default().with_nr_cpus(2).with_arena_bytes(16 << 20);
        let mut arena = Arena::of(Hosted::new(config).unwrap());
        let load =
            |nr_pages| Load { shape: Shape::Linear, nr_pages, page_bytes: 2 << 20, skip_bytes: 2 << 20, cpus: vec![0] };
        let way = |how| Way { how, near: Zeroing::Stores, far: Zeroing::Streaming };
        let candidates = [ClearOrder::Forward, ClearOrder::Hybrid].map(way);
        assert!(candidates.contains(&fastest(&mut arena, &candidates, &load(4), 2).unwrap()));
        let clear = |part: &mut Scratch<'_, Hosted>, at| candidates[1].clear(part, at);
        assert!(run(&mut arena, clear, &load(4), 2).unwrap().wall > Duration::ZERO);
        let error = run(&mut arena, clear, &load(40), 2).err().unwrap().to_string();
        assert_eq!(error, "the arena: is too small to clear");
    }
}
