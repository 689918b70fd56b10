//! The gate's sample of tests that take long. `cargo xtask test` runs all of them.
//!
//! The number of the sample is the count of commits: a test that one commit leaves out is run by one of the next.

use super::Binary;
use crate::shell::{self, Line};

/// A test that takes long, or several whose names begin alike, and at how many commits one run has to be enough.
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

    /// Takes out the tests that the sample leaves out; returns their names.
    pub(super) fn of(self, long: &[Long], binaries: &mut Vec<Binary>) -> Vec<String> {
        let Share::Sample(number) = self else { return Vec::new() };
        let mut out = Vec::new();
        for binary in binaries.iter_mut() {
            let Binary { name, tests, .. } = binary;
            let mut nth = number;
            tests.retain(|test| {
                let own = test.strip_prefix(&format!("{name}::")).unwrap_or(test);
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
        out
    }
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
            left_out += Share::Sample(number).of(&long, &mut binaries).len();
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
        assert_eq!(Share::Sample(0).of(&long, &mut binaries), ["races::a"]);
        assert!(binaries.is_empty());
        let mut binaries = vec![binary("races", &["races::a"])];
        assert!(Share::All.of(&long, &mut binaries).is_empty() && binaries.len() == 1);
    }
}
