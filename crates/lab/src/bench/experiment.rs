//! The `Experiment` trait and the runner that all experiments share.
//!
//! ```text
//! check ──> set_up ──> jobs ──> sample, in a random order within each repetition ──> report ──> text, json, chart
//! ```
//! An experiment defines its jobs and reduces its samples to a report. The runner owns memory checks, seed, order,
//! progress and output.

use super::chart::Chart;
use super::json::Lines;
use super::memory::Need;
use super::options::Settings;
use super::order::RandomOrder;
use crate::error::LabError;
use crate::{os, progress};
use indicatif::ProgressBar;
use std::fmt;

/// An experiment; the implementing type holds the options that were typed.
pub trait Experiment {
    /// The subcommand (with an option that makes another experiment of it), and the value of `experiment` in JSON.
    const NAME: &'static str;
    /// The machines, processes and threads that all samples use.
    type Bench;
    /// One row of the plan: what a sample is taken of. Its text is shown as progress.
    type Job: fmt::Display;
    /// The result of one run of a job.
    type Sample;
    /// The rows that all samples come to.
    type Report: Report;

    /// Refuses arguments that cannot be meant; gives the memory that the experiment takes, if it may be too much.
    fn check(&self) -> Result<Option<Need>, LabError>;

    /// Prepares everything that outlives a sample.
    fn set_up(&self) -> Result<Self::Bench, LabError>;

    /// All jobs, in the order of the output. Groups run one after the other; the jobs of a group are shuffled within
    /// each repetition, so that a drift of the host's speed hits all of them alike.
    fn jobs(&self, bench: &Self::Bench) -> Vec<Vec<Self::Job>>;

    /// Runs a job once.
    fn sample(&self, bench: &mut Self::Bench, job: &Self::Job) -> Result<Self::Sample, LabError>;

    /// Computes the rows.
    fn report(&self, bench: Self::Bench, sampled: Vec<SampledBy<Self>>) -> Result<Self::Report, LabError>;

    /// The options that every experiment has.
    fn settings(&self) -> Settings<'_>;
}

/// The rows of an experiment, and how they are shown.
pub trait Report {
    /// Formats them for people.
    fn text(&self) -> String;

    /// Adds a line of JSON for each row.
    fn json(&self, lines: &mut Lines);

    /// Draws them.
    fn chart(&self) -> Chart;
}

/// A job and its samples, one for each repetition.
#[derive(Clone, Debug)]
pub struct Sampled<J, S> {
    /// The job.
    pub job: J,
    /// By repetition.
    pub samples: Vec<S>,
}

/// A job of an experiment and its samples.
pub type SampledBy<E> = Sampled<<E as Experiment>::Job, <E as Experiment>::Sample>;

/// Runs an experiment and prints what was asked for.
pub fn run<E: Experiment>(experiment: &E) -> Result<(), LabError> {
    os::end_with_the_reader();
    show(experiment, &measure(experiment)?)
}

/// Prints and draws what was asked for.
pub fn show<E: Experiment>(experiment: &E, report: &E::Report) -> Result<(), LabError> {
    let settings = experiment.settings();
    if settings.json {
        let mut lines = Lines::new(E::NAME);
        report.json(&mut lines);
        print!("{}", lines.text());
    } else {
        println!("{}", report.text().trim_end());
    }
    if let Some(file) = settings.plot {
        report.chart().write(file)?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// Runs an experiment and gives its report.
pub fn measure<E: Experiment>(experiment: &E) -> Result<E::Report, LabError> {
    if let Some(need) = experiment.check()? {
        need.check(os::available_bytes())?;
    }
    let mut bench = experiment.set_up()?;
    let groups = experiment.jobs(&bench);
    let Settings { reps, seed, .. } = experiment.settings();
    let bar = progress::bar(groups.iter().map(Vec::len).sum::<usize>() as u64 * u64::from(reps));
    let mut order = RandomOrder::new(seed);
    let mut sampled = Vec::new();
    for jobs in groups {
        sampled.extend(sample_group(experiment, &mut bench, jobs, &mut order, &bar)?);
    }
    bar.finish_and_clear();
    experiment.report(bench, sampled)
}

fn sample_group<E: Experiment>(
    experiment: &E,
    bench: &mut E::Bench,
    jobs: Vec<E::Job>,
    order: &mut RandomOrder,
    bar: &ProgressBar,
) -> Result<Vec<SampledBy<E>>, LabError> {
    let mut sampled: Vec<SampledBy<E>> = jobs.into_iter().map(|job| Sampled { job, samples: Vec::new() }).collect();
    for rep in 1..=experiment.settings().reps {
        for i in order.shuffled(sampled.len()) {
            let Sampled { job, samples } = &mut sampled[i];
            bar.set_message(format!("repetition {rep}: {job}"));
            samples.push(experiment.sample(bench, job)?);
            bar.inc(1);
        }
    }
    Ok(sampled)
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
