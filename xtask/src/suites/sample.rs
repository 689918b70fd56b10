//! The gate's sample of tests that take long. `cargo xtask test` runs all of them.
//!
//! The number of the sample is the count of commits: a test that one commit leaves out is run by one of the next.

use super::Binary;
use crate::shell::{self, Line};

/// A test that takes long, or several whose names begin alike: the gate runs each at one of `every` commits.
pub struct Long {
    /// The file of tests, or the binary.
    pub binary: &'static str,
    /// The beginning of the names, without that of the file.
    pub tests: &'static str,
    pub every: usize,
}

/// How many of the tests that take long a run has.
#[derive(Clone, Copy)]
pub enum Share {
    All,
    /// The sample of this number.
    Sample(usize),
}

impl Share {
    /// The sample of the last commit.
    pub fn of_commit() -> Result<Share, String> {
        let count = shell::output_of(&Line::new("git", "rev-list --count HEAD"))?;
        count.trim().parse().map(Share::Sample).map_err(|error| format!("git rev-list --count HEAD: {error}"))
    }

    /// Takes out the tests that the sample leaves out; returns their names. An entry that fits no test is an error, or
    /// a test that has a new name would be run in full without a word.
    pub(super) fn of(self, long: &[Long], binaries: &mut Vec<Binary>) -> Result<Vec<String>, String> {
        let Share::Sample(number) = self else { return Ok(Vec::new()) };
        if let Some(stale) = long.iter().find(|long| !binaries.iter().any(|binary| long.has_some_of(binary))) {
            return Err(format!(
                "{}::{}: no test has such a name, and `long` should name one",
                stale.binary, stale.tests
            ));
        }
        let mut out = Vec::new();
        for binary in binaries.iter_mut() {
            let Binary { name, tests, .. } = binary;
            let mut nth = number;
            tests.retain(|test| {
                let own = without_file(name, test);
                let long = long.iter().find(|long| long.binary == name && own.starts_with(long.tests));
                let stays = long.is_none_or(|long| {
                    nth += 1;
                    nth % long.every == 0
                });
                if !stays {
                    out.push(format!("{name}::{own}"));
                }
                stays
            });
        }
        // Without names a binary would run all its tests.
        binaries.retain(|binary| !binary.tests.is_empty());
        Ok(out)
    }
}

impl Long {
    fn has_some_of(&self, binary: &Binary) -> bool {
        let is_one = |test: &String| without_file(&binary.name, test).starts_with(self.tests);
        self.binary == binary.name && binary.tests.iter().any(is_one)
    }
}

/// A test's name without that of its file, which comes first if the file is one of many in a binary.
fn without_file<'a>(name: &str, test: &'a str) -> &'a str {
    test.strip_prefix(name).and_then(|rest| rest.strip_prefix("::")).unwrap_or(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(name: &str, tests: &[&str]) -> Binary {
        let tests = tests.iter().map(|test| test.to_string()).collect();
        Binary { name: name.into(), executable: "/x".into(), package: "/y".into(), tests }
    }

    #[test]
    fn each_long_test_is_in_one_of_the_next_samples() {
        let long = [Long { binary: "races", tests: "long", every: 3 }];
        let names = ["races::long_a", "races::long_b", "races::long_c", "races::short"];
        let (mut ran, mut left_out) = (Vec::new(), 0);
        for number in 7..10 {
            let mut binaries = vec![binary("races", &names), binary("other", &["other::long_d"])];
            left_out += Share::Sample(number).of(&long, &mut binaries).unwrap().len();
            assert_eq!(binaries[1].tests, ["other::long_d"]);
            ran.extend(binaries.remove(0).tests);
        }
        assert_eq!(left_out, 6);
        assert!(names.iter().all(|name| ran.iter().any(|test| test == name)), "{ran:?}");
        assert_eq!(ran.len(), 3 + 3, "a short test is in each");
    }

    #[test]
    fn a_binary_of_which_nothing_is_left_is_not_run() {
        let long = [Long { binary: "races", tests: "", every: 2 }];
        let mut binaries = vec![binary("races", &["races::a"])];
        assert_eq!(Share::Sample(0).of(&long, &mut binaries), Ok(vec!["races::a".into()]));
        assert!(binaries.is_empty());
        let mut binaries = vec![binary("races", &["races::a"])];
        assert_eq!(Share::All.of(&long, &mut binaries), Ok(Vec::new()));
        assert_eq!(binaries.len(), 1);
    }

    #[test]
    fn an_entry_that_fits_no_test_is_refused() {
        let long = [Long { binary: "races", tests: "gone", every: 2 }];
        assert!(Share::Sample(0).of(&long, &mut vec![binary("races", &["races::a"])]).is_err());
    }
}
