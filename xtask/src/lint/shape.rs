//! Every file begins with a description, and few files are long.

use super::{Breach, Source};

/// Lines after which a file deserves a hard look.
const LONG: usize = 400;

/// Rust files without a `//!` at their head.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let head =
        |s: &Source| s.text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with("#![")).map(String::from);
    let opens = |s: &&Source| head(s).is_some_and(|line| line.starts_with("//!"));
    let rust = sources.iter().filter(|s| s.is_rust());
    rust.filter(|s| !opens(s)).map(|s| s.breach(1, "should open with `//!`: what the file does")).collect()
}

/// Prints the long ones; a length alone breaks no rule.
pub fn report_long_files(sources: &[Source]) {
    for source in sources.iter().filter(|s| s.is_rust() && !s.is_test()) {
        let nr_lines = source.text.lines().count();
        if nr_lines > LONG {
            println!("note: {} has {nr_lines} lines, more than {LONG}", source.path);
        }
    }
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
}
