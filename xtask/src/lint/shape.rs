//! Every file begins with a description, and none is long, tests included.

use super::{Breach, Source};

/// Lines that a file may have.
const LONG: usize = 400;
/// Longer files, each with its reason.
const LONGER: [(&str, &str); 0] = [];

/// Rust files without a `//!` at their head, and those that are too long.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let head =
        |s: &Source| s.text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with("#![")).map(String::from);
    let opens = |s: &&Source| head(s).is_some_and(|line| line.starts_with("//!"));
    let rust = sources.iter().filter(|s| s.is_rust());
    let no_head = rust.clone().filter(|s| !opens(s)).map(|s| s.breach(1, "should open with `//!`: what the file does"));
    no_head.chain(rust.filter_map(too_long)).collect()
}

fn too_long(source: &Source) -> Option<Breach> {
    let nr_lines = source.text.lines().count();
    let has_reason = LONGER.iter().any(|(path, _)| *path == source.path);
    let what = || format!("{nr_lines} lines: should be at most {LONG}, or have a reason in xtask/src/lint/shape.rs");
    (nr_lines > LONG && !has_reason).then(|| source.breach(LONG + 1, what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_what_it_does() {
        let source = |text: &str| Source { path: "a.rs".into(), text: text.into() };
        assert!(check(&[source("//! Adds.\nfn a() {}\n")]).is_empty());
        assert!(check(&[source("#![no_std]\n\n//! Adds.\n")]).is_empty());
        assert_eq!(check(&[source("fn a() {}\n")]).len(), 1);
    }

    #[test]
    fn a_long_file_is_found_also_among_tests() {
        let source = |path: &str, nr: usize| Source { path: path.into(), text: "//! Tests.\n".repeat(nr) };
        let breaches = check(&[source("tests/a.rs", 401), source("tests/b.rs", 400), source("c.md", 900)]);
        assert_eq!(breaches.iter().map(|b| b.place.as_str()).collect::<Vec<_>>(), ["tests/a.rs:401"]);
    }
}
