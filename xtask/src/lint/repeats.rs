//! No code is repeated: more than [`MOST_LINES`] identical lines in a row belong in a shared function.
//!
//! The lint reads Rust only, and no test code. Blank lines, comments, imports and lone brackets do not
//! count.

use super::{Breach, Source};
use std::collections::HashMap;

/// Lines that may stand twice.
const MOST_LINES: usize = 12;

/// Lines of a file that count: their numbers and their texts.
type Lines<'a> = Vec<(usize, &'a str)>;

/// The first line of each run that stands at an earlier place, too.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let files: Vec<(&Source, Lines<'_>)> = sources.iter().filter(|s| counts(s)).map(|s| (s, lines_of(s))).collect();
    let mut seen: HashMap<Vec<&str>, (usize, usize)> = HashMap::new();
    let mut breaches = Vec::new();
    for (f, (source, lines)) in files.iter().enumerate() {
        // A run that is longer is one.
        let mut told = 0;
        for (i, window) in lines.windows(MOST_LINES + 1).enumerate() {
            let texts = window.iter().map(|(_, text)| *text).collect();
            let (first, at) = *seen.entry(texts).or_insert((f, i));
            let is_later = first != f || at + MOST_LINES < i;
            if is_later && i >= told {
                told = i + MOST_LINES + 1;
                let (other, others) = &files[first];
                let what = format!("more than {MOST_LINES} lines as at {}:{}", other.path, others[at].0);
                breaches.push(source.breach(window[0].0, what));
            }
        }
    }
    breaches
}

fn counts(source: &Source) -> bool {
    source.is_rust() && !source.is_test()
}

fn lines_of(source: &Source) -> Lines<'_> {
    let trimmed = source.code_lines().map(|(n, line)| (n, line.trim()));
    trimmed.filter(|(_, line)| line.len() > 3 && !line.starts_with("use ") && !line.starts_with("pub use ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, lines: impl Iterator<Item = String>) -> Source {
        Source { path: path.into(), text: lines.collect::<Vec<_>>().join("\n") }
    }

    fn numbered(from: usize, nr: usize) -> impl Iterator<Item = String> {
        (from..from + nr).flat_map(|i| [format!("    call_number({i});"), "    }".into(), "// Why.".into()])
    }

    fn places(sources: &[Source]) -> Vec<String> {
        check(sources).into_iter().map(|breach| breach.place).collect()
    }

    #[test]
    fn a_long_run_is_found_once() {
        let all = source("src/a.rs", numbered(0, 40));
        assert_eq!(places(&[source("src/a.rs", numbered(0, 40))]), Vec::<String>::new());
        // Lines 5 to 18 of the one, at line 1 of the other; then in the same file.
        assert_eq!(places(&[all, source("src/b.rs", numbered(5, 13))]), ["src/b.rs:1"]);
        let twice = source("src/a.rs", numbered(0, 20).chain(numbered(3, 17)));
        assert_eq!(places(&[twice]), ["src/a.rs:61"]);
    }

    #[test]
    fn what_is_short_or_for_tests_may_stand_twice() {
        let all = || source("src/a.rs", numbered(0, 40));
        assert!(places(&[all(), source("src/b.rs", numbered(5, 12))]).is_empty());
        assert!(places(&[all(), source("tests/b.rs", numbered(5, 30))]).is_empty());
        assert!(places(&[all(), source("README.md", numbered(5, 30))]).is_empty());
    }
}
