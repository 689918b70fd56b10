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

/// The gate's.
const SAMPLE: [Play; 2] = [
    Play {
        target: UNITS,
        names: "bytes::tests::parts bytes::tests::halves bytes::tests::stores table::entry table::run",
    },
    Play { target: THREADS, names: "accesses_of_all_sizes" },
];
/// The rest. Of the tests of trees only those that look at few pages.
const OTHERS: [Play; 2] = [
    Play {
        target: UNITS,
        names: "bytes::tests::a_range section:: swap:: source::slot source::node source::keep gaps::a_search gaps::the_ends \
                build::nodes oracle::a_copy oracle::zeroes",
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

/// Why there is no sample: no nightly toolchain with Miri.
pub fn missing() -> Option<String> {
    note(&Line::new("rustup", &format!("{MIRI} --version")))
}

/// The note, if the probe fails or cannot be run.
fn note(probe: &Line) -> Option<String> {
    let has_miri = shell::captured(probe).is_ok_and(|(_, found)| found.is_ok());
    (!has_miri).then(|| format!("left out: Miri, since no nightly toolchain has it. To install it: {INSTALL}"))
}

/// Runs the plays, and the one that must fail.
///
/// # Errors
///
/// A play has failed, or there is no Miri.
pub fn run(options: &Options) -> Result<(), String> {
    if let Some(note) = missing() {
        return Err(note);
    }
    let others: &[Play] = if options.sample { &[] } else { &OTHERS };
    SAMPLE.iter().chain(others).try_for_each(|play| shell::run(&miri(play)))?;
    if options.sample { Ok(()) } else { must_report(&miri(&Play { target: THREADS, names: PLANTED }), "Data race") }
}

/// The gate's sample: its output, and whether all has passed.
///
/// # Errors
///
/// A play could not be run.
pub fn sample() -> Result<(String, Result<(), String>), String> {
    let mut all = String::new();
    for play in &SAMPLE {
        let (text, result) = shell::captured(&miri(play))?;
        all += &text;
        if result.is_err() {
            return Ok((all, result));
        }
    }
    Ok((all, Ok(())))
}

fn must_report(line: &Line, report: &str) -> Result<(), String> {
    let (text, result) = shell::captured(line)?;
    let is_reported = result.is_err() && text.contains(report);
    println!("the planted race: {}", if is_reported { "reported" } else { text.as_str() });
    if is_reported { Ok(()) } else { Err(format!("{}: should report the planted race", line.text())) }
}

#[cfg(test)]
mod tests {
    use super::{MIRI, note};
    use crate::shell::Line;

    #[test]
    fn a_machine_without_a_toolchain_is_noted() {
        let probe = Line::new("rustup", &format!("{MIRI} --version")).with("PATH", "/nonexistent");
        assert!(note(&probe).is_some_and(|note| note.contains("left out: Miri") && note.contains("rustup toolchain")));
        assert!(note(&Line::new("false", "")).is_some(), "a toolchain without Miri");
        assert!(note(&Line::new("true", "")).is_none());
    }
}
