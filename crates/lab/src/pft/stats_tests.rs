//! Samples with known answers.

use super::*;
use crate::bench::typed;
use softfault::FaultLocking;
use std::time::Duration;

fn options(arguments: &str) -> Options {
    typed(&format!("pft {arguments}"))
}

fn sample(wall_ms: u64, cpu_ms: u64) -> Sample {
    let ms = Duration::from_millis;
    Sample { wall: ms(wall_ms), user: ms(cpu_ms), system: ms(cpu_ms) }
}

const LOCKFREE: Job = Job { work: Work::Ours(FaultLocking::Lockfree), nr_threads: 1, zeroing: Chosen::Auto };
const TOUCH: Job = Job { work: Work::LinuxTouch, nr_threads: 1, zeroing: Chosen::Auto };
const ZERO: Job = Job { work: Work::ZeroSingly, nr_threads: 1, zeroing: Chosen::Auto };

/// Samples of each job.
fn sampled<const N: usize>(jobs: [Job; N], samples: [Vec<Sample>; N]) -> Vec<Sampled<Job, Sample>> {
    jobs.into_iter().zip(samples).map(|(job, samples)| Sampled { job, samples }).collect()
}

#[test]
fn sums_rates_and_spread() {
    let options = options("-g 1 -r 3 -t 1");
    let samples = [vec![sample(100, 40), sample(110, 50), sample(130, 60)]];
    let row = &rows(&options, &sampled([LOCKFREE], samples))[0];
    assert_eq!(row.pages, 3 * 262_144);
    assert!((row.wall_s - 0.340).abs() < 1e-9);
    assert!((row.user_s - 0.150).abs() < 1e-9 && (row.system_s - 0.150).abs() < 1e-9);
    assert!((row.faults_per_wall_s() - 786_432.0 / 0.340).abs() < 1e-3);
    assert!((row.faults_per_cpu_s().unwrap() - 786_432.0 / 0.300).abs() < 1e-3);
    assert!((row.ns_per_fault - 0.110e9 / 262_144.0).abs() < 1e-6);
    assert!((row.spread - 30.0 / 110.0).abs() < 1e-9);
}

#[test]
fn ratios_pair_samples_of_one_repetition() {
    let options = options("-g 1 -r 3 -t 1");
    // The host is ten times slower in the second repetition; each pair says 8.
    let samples =
        [vec![sample(10, 1), sample(100, 1), sample(12, 1)], vec![sample(80, 1), sample(800, 1), sample(96, 1)]];
    let all = rows(&options, &sampled([LOCKFREE, TOUCH], samples));
    assert!((all[0].ratio_to_linux_touch.unwrap() - 8.0).abs() < 1e-9);
    assert_eq!(all[0].ratio_to_linux_populate, None, "there was no such row");
    assert_eq!(all[1].ratio_to_linux_touch, None, "Linux is not compared with itself");
}

#[test]
fn another_number_of_threads_is_no_partner() {
    let options = options("-g 1 -r 1 -t 1,2");
    let two = Job { nr_threads: 2, ..TOUCH };
    let all = rows(&options, &sampled([LOCKFREE, two], [vec![sample(10, 1)], vec![sample(80, 1)]]));
    assert_eq!(all[0].ratio_to_linux_touch, None);
}

#[test]
fn zeroed_frames_are_compared_with_nothing() {
    let options = options("-g 1 -r 1 -t 1 --frames zeroed");
    let samples = [vec![sample(10, 1)], vec![sample(80, 1)], vec![sample(20, 1)]];
    let row = &rows(&options, &sampled([LOCKFREE, TOUCH, ZERO], samples))[0];
    assert_eq!((row.ratio_to_linux_touch, row.ratio_to_zeroing), (None, None));
    assert_eq!(row.frames, "zeroed");
    assert!(!options.with_linux());
}

#[test]
fn our_time_over_that_of_zeroing() {
    let options = options("-g 1 -r 1 -t 1");
    let row = &rows(&options, &sampled([LOCKFREE, ZERO], [vec![sample(30, 1)], vec![sample(40, 1)]]))[0];
    assert!((row.ratio_to_zeroing.unwrap() - 0.75).abs() < 1e-9);
}

#[test]
fn rows_of_ours_are_compared_by_repetition() {
    let options = options("-g 1 -r 3 -t 1");
    let split = Job { work: Work::Ours(FaultLocking::Split), ..LOCKFREE };
    let samples =
        [vec![sample(10, 1), sample(100, 1), sample(10, 1)], vec![sample(30, 1), sample(300, 1), sample(500, 1)]];
    let all = rows(&options, &sampled([LOCKFREE, split], samples));
    assert!((all[0].times_as_fast_as(&all[1]) - 3.0).abs() < 1e-9);
}

#[test]
fn an_idle_clock_gives_no_rate() {
    let options = options("-g 1 -r 1 -t 1");
    let row = &rows(&options, &sampled([LOCKFREE], [vec![sample(30, 0)]]))[0];
    assert_eq!(row.faults_per_cpu_s(), None);
}
