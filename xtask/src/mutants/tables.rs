//! Two tables for generated mutants: the tests of each file (`xtask/mutants/tests.toml`), and those that nothing notices,
//! each with its reason (`xtask/mutants/survivors.toml`).

use super::generate::{Generated, Idle, of_core};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const TESTS: &str = "xtask/mutants/tests.toml";
const SURVIVORS: &str = "xtask/mutants/survivors.toml";

/// The tests of a changed file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tests {
    /// By the beginning of a file's path below `crates/softfault/src`; the longest counts.
    by_file: BTreeMap<String, Vec<String>>,
    /// For any change that these do not notice.
    at_last: Vec<String>,
}

impl Tests {
    pub fn read(top: &Path) -> Result<Tests, String> {
        parsed(top, TESTS)
    }

    /// Cargo's lines for a change, in order. None for an ordering in a file that no model has.
    pub fn of(&self, change: &Generated) -> Vec<String> {
        let within = change.file.trim_start_matches("crates/softfault/src/");
        let of_file = self.by_file.iter().filter(|(beginning, tests)| {
            within.starts_with(beginning.as_str()) && (!change.is_ordering || tests.iter().any(|test| is_model(test)))
        });
        let of_file = of_file.max_by_key(|(beginning, _)| beginning.len()).map_or(&[][..], |(_, tests)| tests);
        if change.is_ordering {
            return of_file.iter().filter(|test| is_model(test)).map(|test| line(test)).collect();
        }
        let mut lines: Vec<String> = of_file.iter().chain(&self.at_last).map(|test| line(test)).collect();
        let mut seen = std::collections::HashSet::new();
        lines.retain(|line| seen.insert(line.clone()));
        lines
    }
}

fn is_model(test: &str) -> bool {
    test.starts_with("modelled ") || test.starts_with("shuffled ")
}

/// `modelled swap f1_` is the tests `f1_...` in `crates/modelled/tests/swap.rs`; `lib fault::` unit tests of the core.
fn line(test: &str) -> String {
    match test.split_once(' ').unwrap_or((test, "")) {
        ("lib", rest) => format!("cargo test -p softfault --lib {rest}").trim_end().into(),
        (package @ ("modelled" | "shuffled"), rest) => {
            format!("cargo test --release -p softfault-{package} --test {rest}")
        }
        (package, rest) => format!("cargo test -p softfault-{package} --test {rest}"),
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Survivors {
    #[serde(default)]
    idle: Vec<Idle>,
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    item: String,
    what: String,
    why: String,
}

/// All generated mutants that something should notice. An entry of the list that is none is an error.
pub fn wanted(top: &Path) -> Result<Vec<Generated>, String> {
    let list: Survivors = parsed(top, SURVIVORS)?;
    let mut all = of_core(top, &list.idle)?;
    for Survivor { item, what, why } in &list.survivor {
        let before = all.len();
        all.retain(|g| !(g.item == *item && g.what == *what));
        if all.len() == before {
            return Err(format!("{SURVIVORS}: `{item}` has no mutant `{what}`"));
        }
        if why.is_empty() {
            return Err(format!("{SURVIVORS}: `{item}`: `why` should say why nothing notices"));
        }
    }
    if let Some(idle) = list.idle.iter().find(|idle| idle.why.is_empty()) {
        return Err(format!("{SURVIVORS}: {:?}: `why` should say what they change", idle.calls));
    }
    let tests = Tests::read(top)?;
    all.retain(|g| !tests.of(g).is_empty());
    Ok(all)
}

fn parsed<T: serde::de::DeserializeOwned>(top: &Path, file: &str) -> Result<T, String> {
    let text = std::fs::read_to_string(top.join(file)).map_err(|e| format!("{file}: {e}"))?;
    toml::from_str(&text).map_err(|e| format!("{file}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    fn change(file: &str, is_ordering: bool) -> Generated {
        let file = format!("crates/softfault/src/{file}");
        let (item, what, to) = Default::default();
        Generated { file, item, what, line: 1, range: 0..0, to, is_ordering }
    }

    #[test]
    fn the_longest_row_counts() {
        let text = r#"
at_last = ["lib", "testkit all"]
[by_file]
"fault/" = ["modelled swap f1_", "testkit fast_path"]
"fault/mod.rs" = ["shuffled weak_memory", "lib"]
"fault/find.rs" = ["lib"]
"#;
        let tests: Tests = toml::from_str(text).unwrap();
        let all = "cargo test -p softfault-testkit --test all";
        let lib = "cargo test -p softfault --lib";
        let swap = "cargo test --release -p softfault-modelled --test swap f1_";
        let fast = "cargo test -p softfault-testkit --test fast_path";
        let weak = "cargo test --release -p softfault-shuffled --test weak_memory";
        assert_eq!(tests.of(&change("fault/empty.rs", false)), [swap, fast, lib, all]);
        assert_eq!(tests.of(&change("fault/empty.rs", true)), [swap]);
        assert_eq!(tests.of(&change("fault/find.rs", true)), [swap]);
        assert_eq!(tests.of(&change("fault/find.rs", false)), [lib, all]);
        assert_eq!(tests.of(&change("fault/mod.rs", false)), [weak, lib, all]);
        assert_eq!(tests.of(&change("swap/area.rs", false)), [lib, all]);
        assert!(tests.of(&change("swap/area.rs", true)).is_empty());
    }

    #[test]
    fn each_row_is_of_files_and_tests() {
        let top = shell::top();
        let tests = Tests::read(&top).unwrap();
        let files = crate::mutants::items::sources(&top, "crates/softfault/src").unwrap();
        for (beginning, words) in &tests.by_file {
            let path = format!("crates/softfault/src/{beginning}");
            assert!(files.iter().any(|file| file.starts_with(&path)), "{beginning}: no file begins so");
            for word in words.iter().chain(&tests.at_last) {
                let (package, test) = word.split_once(' ').unwrap_or((word, ""));
                let name = test.split(' ').next().unwrap();
                let folder = top.join(format!("crates/{package}/tests"));
                let is_there = ["", ".rs"].iter().any(|end| folder.join(format!("{name}{end}")).exists());
                assert!(package == "lib" || is_there, "{word}: no such test");
            }
        }
    }

    #[test]
    fn each_survivor_is_generated() {
        let all = wanted(&shell::top()).unwrap();
        assert!(all.len() > 3000, "{}", all.len());
        let ids: std::collections::HashSet<String> = all.iter().map(Generated::id).collect();
        assert_eq!(ids.len(), all.len(), "each has a number of its own");
    }
}
