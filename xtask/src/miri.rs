//! `cargo xtask miri`: tests under Miri, which follows each access.
//!
//! It is part of a nightly toolchain, and builds into a target folder of its own. It is bounded by the number of tests:
//! nothing is ended by time. It must also report a race that is planted.

use crate::shell::{self, Line};

/// The options of `cargo xtask miri`.
#[derive(clap::Args)]
pub struct Options {
    /// Only the part that the gate has
    #[arg(long)]
    sample: bool,
}

/// Tests of one build.
struct Play {
    /// Arguments of `cargo test`.
    target: &'static str,
    /// Words, of which the names of the tests contain one.
    names: &'static str,
}

const UNITS: &str = "-p softfault --lib";
const THREADS: &str = "-p softfault-testkit --test small_threads";

/// The gate's: a minute on two idle CPUs.
const SAMPLE: [Play; 2] =
    [Play { target: UNITS, names: "bytes:: table::entry" }, Play { target: THREADS, names: "accesses_of_all_sizes" }];
/// With the sample, some four minutes.
const OTHERS: [Play; 2] = [
    Play {
        target: UNITS,
        names: "section:: table::run swap:: source::slot source::node source::keep space::tree::tests::gaps",
    },
    Play { target: THREADS, names: "faults_meet stores_meet" },
];
/// A test that has a race on purpose.
const PLANTED: &str = "--ignored a_planted_race_is_reported";

/// Pointers keep their provenance; a machine that ends gives its memory back, so leaks are looked for.
const MIRI_FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-disable-isolation";
const MIRI: &str = "run nightly cargo miri";
/// How to get it.
const INSTALL: &str = "rustup toolchain install nightly --component miri,rust-src";

fn miri(play: &Play) -> Line {
    let line = format!("{MIRI} test --target-dir target/miri {} -- {}", play.target, play.names);
    // The names in a backtrace of a panic that is expected cost Miri more than the test.
    Line::new("rustup", &line).with("MIRIFLAGS", MIRI_FLAGS).with("RUST_BACKTRACE", "0")
}

/// Whether there is a nightly toolchain with Miri.
fn has_miri() -> bool {
    shell::captured(&Line::new("rustup", &format!("{MIRI} --version"))).is_ok_and(|(_, found)| found.is_ok())
}

/// Runs the plays, and the one that must fail.
///
/// # Errors
///
/// A play has failed, or there is no Miri.
pub fn run(options: &Options) -> Result<(), String> {
    if !has_miri() {
        return Err(format!("no nightly toolchain with Miri: {INSTALL}"));
    }
    let others: &[Play] = if options.sample { &[] } else { &OTHERS };
    SAMPLE.iter().chain(others).try_for_each(|play| shell::run(&miri(play)))?;
    if options.sample { Ok(()) } else { must_report(&miri(&Play { target: THREADS, names: PLANTED }), "Data race") }
}

/// The gate's sample. Returns a note if there is no Miri.
///
/// # Errors
///
/// A play has failed.
pub fn sample(mut see: impl FnMut(&str)) -> Result<Option<String>, String> {
    if !has_miri() {
        return Ok(Some(format!(
            "left out: Miri, since there is no nightly toolchain with it. To install it: {INSTALL}"
        )));
    }
    SAMPLE.iter().try_for_each(|play| shell::run_watched(&miri(play), &mut see))?;
    Ok(None)
}

fn must_report(line: &Line, report: &str) -> Result<(), String> {
    let (text, result) = shell::captured(line)?;
    let is_reported = result.is_err() && text.contains(report);
    println!("the planted race: {}", if is_reported { "reported" } else { text.as_str() });
    if is_reported { Ok(()) } else { Err(format!("{}: should report the planted race", line.text())) }
}
