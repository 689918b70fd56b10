//! `cargo xtask mutants`: checks that tests notice wrong code.
//!
//! A mutant replaces one text by another. A test must fail; if the test passes, the mutant has survived. There are three
//! kinds, and `xtask/mutants/README.md` says which is for what.
//!
//! The mutants of protocols are kept by hand, in `xtask/mutants/kept/*.toml`; each has a test that must fail:
//!
//! ```toml
//! [[mutant]]
//! name = "recheck-left-out"
//! why = "a fault installs into a VMA that is gone"
//! item = "Fault::attempt"     # the end of a path (`mutants/items.rs`); `from` stands once in the item
//! # crate = "softfault"       # the folder in `crates`
//! # file = "crates/softfault/src/fault/mod.rs"    # instead of `item`, for what is none: `from` stands once in the file
//! from = "if self.changed() {"
//! to = "if false {"
//! test = "cargo test -p softfault-testkit --test races f4"
//! seconds = 120   # optional; a test that takes longer, or 20 times what it usually takes, has noticed, too
//! ```
//!
//! Statements, orderings, conditions and operators are changed by `mutants/generate.rs`; the tests of each file are in
//! `xtask/mutants/tests.toml`, what nothing notices in `xtask/mutants/survivors.toml`. cargo-mutants makes the rest.
//!
//! Mutants run on mirrors of the tree in `target/mutants/tree-N`. Every test must pass on
//! the unchanged mirror and every mutant by hand must compile, or a failure would mean nothing.
//! `target/mutants/logs` keeps the output of each test, which shows why a mutant died.
//!
//! The gate runs `--sample SECONDS`: of those by hand in an order that depends on the commit, and no mutant starts
//! after that time; then generated ones in the lines of the last commits. A mutant that does not match or survives fails the
//! run in any form.

mod changed;
mod generate;
mod hunt;
mod items;
mod kept;
mod others;
mod place;
mod sample;
mod tables;

use crate::shell::{self, Line};
use kept::{Campaign, Mutant};
use place::Place;
use sample::Budget;
use std::sync::Mutex;
use std::time::Instant;

/// The options of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Options {
    /// Only mutants whose names contain one of these; of generated ones those of such a number, file or item
    names: Vec<String>,
    /// Show what the tests print
    #[arg(long)]
    verbose: bool,
    /// Only check that each replacement matches exactly once, and that the lists agree with the sources
    #[arg(long)]
    dry_run: bool,
    /// Run mutants in an order that changes with each commit, until this time is used up; builds of the
    /// unchanged tree do not count. Then generated ones in the lines of the last commits
    #[arg(long, value_name = "SECONDS")]
    sample: Option<u64>,
    /// Run so many generated mutants instead
    #[arg(long, value_name = "N", conflicts_with = "sample")]
    generated: Option<usize>,
    /// Their order; by default the commit's
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Run a part of the mutants that cargo-mutants makes instead: the k-th of n
    #[arg(long, value_name = "K/N", conflicts_with_all = ["sample", "generated"])]
    others: Option<String>,
    /// How many mutants to try at once, each in a mirror and a build folder of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
}

/// The command that the gate runs.
pub fn sample_line(seconds: u64) -> Result<Line, String> {
    let own = std::env::current_exe().map_err(|e| format!("xtask's own binary: {e}"))?;
    Ok(Line::new(&own.to_string_lossy(), &format!("mutants --sample {seconds}")))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Killed,
    Hung,
    Survived,
    DoesNotCompile,
    /// The test fails without the mutant.
    BadTest,
}

/// Runs the chosen ones and prints a table.
pub fn run(options: &Options) -> Result<(), String> {
    if let Some(part) = &options.others {
        return others::run(part);
    }
    if options.dry_run {
        return dry_run();
    }
    let seed = options.seed.map_or_else(sample::seed, Ok)?;
    if let Some(most) = options.generated {
        return hunt::run(options.places()?, &options.names, most, seed);
    }
    let mut chosen: Vec<Mutant> = kept::read(&shell::top())?.into_iter().filter(|m| options.wants(m)).collect();
    if chosen.is_empty() {
        return Err("mutants: no entry has such a name; the lists are xtask/mutants/kept/*.toml".into());
    }
    let places = options.places()?;
    let begun = Instant::now();
    let campaign = Campaign::new(&places, Budget::new(options.sample), chosen.len());
    let bad = match options.sample {
        // Each mutant right after its unchanged test: the time may end anywhere.
        Some(_) => {
            sample::shuffle(&mut chosen)?;
            chosen.chunks(1).map(|one| campaign.judge(one)).collect::<Result<Vec<_>, _>>()?.concat()
        }
        None => campaign.judge(&chosen)?,
    };
    let nr_tried = campaign.nr_tried();
    println!("{} of {} mutants killed, {} s", nr_tried - bad.len(), nr_tried, begun.elapsed().as_secs());
    let kept = if bad.is_empty() { Ok(()) } else { Err(format!("mutants: not killed: {}", bad.join(", "))) };
    let changed = if options.sample.is_some() { hunt::run_changed(places, seed) } else { Ok(()) };
    let failed: Vec<String> = [kept, changed].into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn dry_run() -> Result<(), String> {
    let (nr_kept, nr_made) = (kept::read(&shell::top())?.len(), tables::wanted(&shell::top())?.len());
    println!("{nr_kept} mutants, each of which matches exactly once; {nr_made} generated ones");
    Ok(())
}

/// Calls `work` with each item, in as many threads as there are places.
fn spread<I: Copy + Sync, T: Send>(
    places: &[Place],
    items: &[I],
    work: impl Fn(&Place, I) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let queue = Mutex::new(items.iter());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for place in places {
            scope.spawn(|| {
                loop {
                    let Some(item) = queue.lock().expect("no worker panics").next() else { break };
                    let result = work(place, *item);
                    results.lock().expect("no worker panics").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no worker panics").into_iter().collect()
}

impl Options {
    fn wants(&self, mutant: &Mutant) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| mutant.name.contains(name.as_str()))
    }

    fn places(&self) -> Result<Vec<Place>, String> {
        let top = shell::top().join("target/mutants");
        (0..self.jobs).map(|job| Place::mirror(&top, job, self.verbose)).collect()
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Hung => "killed (hung)",
            Verdict::Survived => "SURVIVED",
            Verdict::DoesNotCompile => "DOES NOT COMPILE",
            Verdict::BadTest => "TEST FAILS ANYWAY",
        }
    }
    fn is_good(self) -> bool {
        matches!(self, Verdict::Killed | Verdict::Hung)
    }
}
