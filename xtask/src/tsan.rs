//! `cargo xtask tsan`: programs with threads under ThreadSanitizer, which reports two accesses that nothing orders.
//!
//! By hand: the standard library is built anew, by a nightly toolchain. Nothing is suppressed: a report is a failure. It must
//! also report a race that is planted. `docs/testing.md` says what it does not see.

use crate::miri::{self, INSTALL};
use crate::shell::{self, Line};

/// A program of the tests, and how it is run.
struct Play {
    /// Arguments of cargo that build and run it.
    build: &'static str,
    /// Rounds of each play with threads: many, since only what happens is checked.
    rounds: &'static str,
    /// Its own arguments.
    arguments: &'static str,
}

const THREADS: &str = "test -p softfault-testkit --test small_threads";
const SOAK: &str = "run -p softfault-testkit --bin soak";

const PLAYS: [Play; 5] = [
    Play { build: THREADS, rounds: "300", arguments: "" },
    Play { build: SOAK, rounds: "1", arguments: "parallel --seconds 20" },
    Play { build: SOAK, rounds: "1", arguments: "lockstep --seconds 10" },
    Play { build: SOAK, rounds: "1", arguments: "huge --seconds 20" },
    Play { build: SOAK, rounds: "1", arguments: "hugetlb --rounds 200" },
];
/// In a tenth of the rounds the two accesses come at once, and the tool, whose records are no atomics, misses them.
const PLANTED: Play = Play { build: THREADS, rounds: "20", arguments: miri::PLANTED };

/// The first report ends a program, so that its exit code says that there was one.
const TSAN_OPTIONS: &str = "halt_on_error=1";

fn tsan(play: &Play, host: &str) -> Line {
    let Play { build, rounds, arguments } = play;
    // With a target, the flags are not for build scripts.
    let line = format!("run nightly cargo {build} -Zbuild-std --target {host} --target-dir target/tsan -- {arguments}");
    let line = Line::new("rustup", &line).with("RUSTFLAGS", "-Zsanitizer=thread").with("TSAN_OPTIONS", TSAN_OPTIONS);
    line.with("SOFTFAULT_ROUNDS", rounds)
}

/// Runs the plays, and the one that must fail.
///
/// # Errors
///
/// A play has failed, or there is no nightly toolchain with its sources.
pub fn run() -> Result<(), String> {
    let host = shell::host_triple()?;
    let missing = |why: String| format!("{why}; it needs a nightly toolchain: {INSTALL}");
    miri::must_report(&tsan(&PLANTED, &host), "data race").map_err(missing)?;
    PLAYS.iter().try_for_each(|play| shell::run(&tsan(play, &host)))
}
