//! The rest of the wrong variants, by cargo-mutants: bodies of functions, arms of matches, and operators in crates other
//! than the core. `xtask/mutants/README.md` says why the gate has no part in it.

use crate::shell::{self, Line};

const MISSING: &str =
    "cargo-mutants is not installed: `cargo install cargo-mutants --locked` builds it, in some minutes";
/// Of the core, what `generate.rs` leaves out, too, and the copies of its sources.
const LEFT_OUT: &str = "--exclude crates/softfault/src/sync/** --exclude crates/softfault/src/check/** \
    --exclude crates/softfault/src/hooks/** --exclude **/*_tests.rs --exclude **/testing.rs";

/// Runs a part of them: `k/n` is the k-th of n parts.
pub fn run(part: &str) -> Result<(), String> {
    if shell::captured(&shell::cargo("mutants --version")).is_ok_and(|(_, result)| result.is_err()) {
        return Err(MISSING.into());
    }
    shell::run(&line(part))
}

/// The tests of the package and those of the testkit; what is optimised, as the tests of the gate.
fn line(part: &str) -> Line {
    let folder = shell::top().join("target/mutants/others");
    let packages = "--package softfault --package softfault-host --package softfault-model --package softfault-parsers";
    let tests = "--test-package softfault,softfault-host,softfault-testkit";
    let out = folder.display();
    let line = format!("mutants {packages} {tests} {LEFT_OUT} --shard {part} --baseline run --output {out}");
    let mut line = shell::cargo(&line);
    line.args(&["--", "--lib", "--test", "all"].map(String::from));
    line.with("CARGO_PROFILE_TEST_DEBUG", "false")
}
