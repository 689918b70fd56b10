//! The lists of tests, `xtask/suites/*.toml`: one file for each suite.
//!
//! ```toml
//! about = "LTP's tests of calls about memory"
//! client = "ltp"                  # a name that `cargo xtask clients` takes
//! runtest = "runtest-syscalls"    # the client's own file of commands; else [commands] has them
//! mem = "2G"                      # memory of the reference kernel's machine
//! seconds = 300                   # limit of each test
//! boot = 16                       # tests of one boot
//! setup = "true"                  # a line of shell before each test; optional
//! tests = "mmap01 mmap02"         # names in `runtest`
//!
//! [[differs]]                     # tests that pass on Linux and need not pass here
//! missing = "userfaultfd(2)"      # the feature; or `documented`, words of docs/design.md or docs/hugetlb.md
//! tests = "userfaultfd01 userfaultfd02"
//! ```

use crate::shell;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the lists are.
const FOLDER: &str = "xtask/suites";

/// A suite as its file describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The name of the file, without its ending.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Whose programs these are.
    pub client: String,
    runtest: Option<String>,
    /// Memory of the machine.
    pub mem: String,
    /// Limit of one test, in seconds of its own side.
    pub seconds: u64,
    /// Tests of one boot.
    pub boot: usize,
    /// A line of shell before each test.
    #[serde(default)]
    pub setup: String,
    #[serde(default)]
    tests: String,
    #[serde(default)]
    commands: BTreeMap<String, String>,
    #[serde(default)]
    differs: Vec<Differs>,
}

/// Tests with one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differs {
    missing: Option<String>,
    documented: Option<String>,
    tests: String,
}

impl Differs {
    fn reason(&self) -> String {
        match (&self.missing, &self.documented) {
            (Some(feature), _) => format!("missing: {feature}"),
            (None, Some(words)) => format!("documented: {words}"),
            (None, None) => String::new(),
        }
    }
}

/// A test and its command.
#[derive(Clone)]
pub struct Test {
    /// As the list has it.
    pub name: String,
    /// A line of shell.
    pub command: String,
}

impl Suite {
    /// The names of its tests, in order.
    pub fn names(&self) -> Vec<&str> {
        self.tests.split_whitespace().chain(self.commands.keys().map(String::as_str)).collect()
    }
    /// Why a test may differ.
    pub fn reason(&self, test: &str) -> Option<String> {
        let of = self.differs.iter().find(|d| d.tests.split_whitespace().any(|t| t == test));
        of.map(Differs::reason)
    }
    /// Those of the tests that are wanted, with their commands. `programs` is the client's folder.
    pub fn tests(&self, programs: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Test>, String> {
        let theirs = match &self.runtest {
            Some(file) => commands(&read(&programs.join(file))?),
            None => BTreeMap::new(),
        };
        let find = |name: &str| {
            let command = self.commands.get(name).or_else(|| theirs.get(name));
            let command = command.ok_or_else(|| format!("{}: `{name}` has no command", self.name))?;
            Ok(Test { name: name.into(), command: command.clone() })
        };
        self.names().into_iter().filter(|name| is_wanted(name)).map(find).collect()
    }
}

/// The commands of an LTP `runtest` file, by the tag before them.
fn commands(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(char::is_whitespace));
    pairs.map(|(tag, command)| (tag.into(), command.trim().into())).collect()
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// All suites, by name.
pub fn all() -> Result<Vec<Suite>, String> {
    let folder = shell::top().join(FOLDER);
    let listed = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let lists = files.filter(|file| file.extension().is_some_and(|ending| ending == "toml"));
    let mut suites = lists.map(|file| parse(&file)).collect::<Result<Vec<_>, _>>()?;
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

fn parse(file: &Path) -> Result<Suite, String> {
    let mut suite: Suite = toml::from_str(&read(file)?).map_err(|e| format!("{}: {e}", file.display()))?;
    suite.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(suite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn commands_of_a_runtest_file() {
        let found = commands("#DESCRIPTION: x\n\nmmap21_01 mmap21 -m 10000\nksm01   ksm01\nlone\n");
        assert_eq!(found.get("mmap21_01").unwrap(), "mmap21 -m 10000");
        assert_eq!(found.get("ksm01").unwrap(), "ksm01");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn each_difference_names_tests_of_its_suite_once_and_a_reason() {
        let documents = ["docs/design.md", "docs/hugetlb.md"].map(|file| read(&shell::top().join(file)).unwrap());
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let documents = squeeze(&documents.join(" "));
        let suites = all().unwrap();
        assert!(!suites.is_empty());
        for suite in &suites {
            let names: BTreeSet<&str> = suite.names().into_iter().collect();
            assert_eq!(names.len(), suite.names().len(), "{}: a name occurs twice", suite.name);
            let mut seen = BTreeSet::new();
            for differs in &suite.differs {
                assert!(differs.missing.is_some() != differs.documented.is_some(), "{}: {}", suite.name, differs.tests);
                let words = differs.documented.as_deref().unwrap_or("");
                assert!(documents.contains(&squeeze(words)), "{}: no document says `{words}`", suite.name);
                for test in differs.tests.split_whitespace() {
                    assert!(names.contains(test), "{}: {test} is no test", suite.name);
                    assert!(seen.insert(test), "{}: {test} has two reasons", suite.name);
                }
            }
        }
    }
}
