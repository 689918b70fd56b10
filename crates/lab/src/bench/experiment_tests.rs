//! The smallest whole experiment, and what the runner guarantees it.

use super::super::chart::{Better, Places, Scale, Series, Whose};
use super::super::options::{Repeated, defaults};
use super::super::stats::Figure;
use super::super::table::{Columns, percent};
use super::*;
use clap::Parser;
use serde::Serialize;
use std::cell::RefCell;

/// How long sums of so many numbers take: the time is pretended.
#[derive(Parser)]
#[command(mut_args(defaults("4", "7", "the time of each sum")))]
struct Sums {
    /// How many numbers
    #[arg(long, default_value = "3")]
    numbers: u32,
    #[command(flatten)]
    repeated: Repeated,
    #[arg(skip)]
    log: RefCell<Vec<u32>>,
}

/// By how many numbers.
#[derive(Debug)]
struct Times(Vec<(u32, Figure)>);

#[derive(Serialize)]
struct Keys {
    numbers: u32,
    spread: f64,
}

impl Experiment for Sums {
    const NAME: &'static str = "sums";
    type Bench = u32;
    type Job = u32;
    type Sample = f64;
    type Report = Times;

    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(Some(Need::of("--numbers", self.numbers, u64::from(self.numbers) << 40)))
    }
    fn set_up(&self) -> Result<u32, LabError> {
        Ok(0)
    }
    fn jobs(&self, _: &u32) -> Vec<Vec<u32>> {
        vec![(1..=self.numbers).collect(), vec![100]]
    }
    fn sample(&self, nr_so_far: &mut u32, job: &u32) -> Result<f64, LabError> {
        self.log.borrow_mut().push(*job);
        *nr_so_far += 1;
        Ok(f64::from(*job) + f64::from(*nr_so_far) / 1e3)
    }
    fn report(&self, _: u32, sampled: Vec<SampledBy<Self>>) -> Result<Times, LabError> {
        Ok(Times(sampled.into_iter().map(|of| (of.job, Figure::of(of.samples))).collect()))
    }
    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}

impl Report for Times {
    fn text(&self) -> String {
        let columns = Columns::label("numbers", |row: &(u32, Figure)| row.0.to_string())
            .number("ns", |row| format!("{:.1}", row.1.median))
            .number("spread", |row| percent(row.1.spread));
        columns.table(&self.0).to_string()
    }
    fn json(&self, lines: &mut Lines) {
        self.0.iter().for_each(|&(numbers, ns)| lines.add(Keys { numbers, spread: ns.spread }, ns.median, "ns"));
    }
    fn chart(&self) -> Chart {
        let points = self.0.iter().map(|(numbers, ns)| (f64::from(*numbers), ns.median));
        Chart {
            title: "Sums".into(),
            x: "numbers".into(),
            places: Places::Even,
            y: "ns".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: vec![Series::new("softfault", Whose::Ours, points)],
        }
    }
}

fn typed(arguments: &str) -> Sums {
    Sums::parse_from(std::iter::once("sums").chain(arguments.split_whitespace()))
}

/// The order in which the jobs of an experiment ran.
fn order_of(arguments: &str) -> Vec<u32> {
    let sums = typed(arguments);
    // The memory that it pretends to need is never asked for.
    let mut bench = sums.set_up().unwrap();
    let mut order = RandomOrder::new(sums.settings().seed);
    for jobs in sums.jobs(&bench) {
        sample_group(&sums, &mut bench, jobs, &mut order, &ProgressBar::hidden()).unwrap();
    }
    sums.log.into_inner()
}

#[test]
fn a_repetition_runs_each_job_once_in_an_order_that_the_seed_gives() {
    let order = order_of("--numbers 8 --reps 2");
    for mut repetition in [order[..8].to_vec(), order[8..16].to_vec()] {
        repetition.sort_unstable();
        assert_eq!(repetition, (1..=8).collect::<Vec<_>>());
    }
    assert_ne!(order[..8], order[8..16]);
    assert_eq!(order[16..], [100, 100], "the second group runs after the first");
    assert_eq!(order, order_of("--numbers 8 --reps 2 --seed 7"), "as the default");
    assert_ne!(order, order_of("--numbers 8 --reps 2 --seed 8"));
}

#[test]
fn too_little_memory_is_told_before_anything_runs() {
    let sums = typed("--numbers 1048576");
    let error = measure(&sums).unwrap_err().to_string();
    assert!(error.starts_with("--numbers 1048576: needs") && error.ends_with("should be smaller"), "{error}");
    assert!(sums.log.borrow().is_empty());
}

#[test]
fn rows_become_a_table_lines_and_a_plot() {
    let sums = typed("");
    assert_eq!((sums.settings().reps, sums.settings().json, sums.settings().plot), (4, false, None));
    let sampled = [1, 2].map(|job| Sampled { job, samples: vec![1.0, 3.0, 2.0] });
    let report = sums.report(0, sampled.to_vec()).unwrap();
    let words = report.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, "numbers ns spread 1 2.0 100% 2 2.0 100%");
    let mut lines = Lines::new(Sums::NAME);
    report.json(&mut lines);
    let first = r#"{"experiment":"sums","numbers":1,"spread":1.0,"value":2.0,"unit":"ns"}"#;
    assert_eq!(lines.text().lines().next(), Some(first));
    assert_eq!(Lines::keys(&lines.parsed()[1]), ["experiment", "numbers", "spread", "unit", "value"]);
    report.chart().assert_shows(&["Sums", "ns (less is better)", "softfault"]);
}
