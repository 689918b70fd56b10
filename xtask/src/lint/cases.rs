//! Checks that `docs/cases.md` and the tests agree: the listed tests exist, each case has a test or says why not, and a
//! test whose name begins with a case is listed under that case.

use super::{Breach, Source};
use std::collections::{HashMap, HashSet};

const LIST: &str = "docs/cases.md";
/// The words of a case without a test.
const EXCUSES: [&str; 2] = ["Not built.", "No test:"];

/// A case of the list.
#[derive(Default)]
struct Case<'a> {
    id: &'a str,
    line: usize,
    has_excuse: bool,
    tests: Vec<Listed<'a>>,
}

/// A test as the list names it.
struct Listed<'a> {
    line: usize,
    file: &'a str,
    name: &'a str,
}

/// Compares both, in both directions.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let Some(list) = sources.iter().find(|s| s.path == LIST) else { return Vec::new() };
    let cases = cases(list);
    let tests: HashMap<&str, Vec<(usize, &str)>> =
        sources.iter().filter(|s| s.is_rust()).map(|s| (s.path.as_str(), tests_of(&s.text))).collect();
    let mut breaches = wrong_cases(list, &cases);
    for test in cases.iter().flat_map(|case| &case.tests) {
        if !tests.get(test.file).is_some_and(|found| found.iter().any(|(_, name)| *name == test.name)) {
            breaches.push(list.breach(test.line, format!("`{}`: should be a test of `{}`", test.name, test.file)));
        }
    }
    for source in sources {
        for (line, name) in tests.get(source.path.as_str()).into_iter().flatten() {
            let Some(id) = case_of(name) else { continue };
            let is_listed = |t: &Listed<'_>| t.file == source.path && t.name == *name;
            if !cases.iter().any(|case| case.id == id && case.tests.iter().any(is_listed)) {
                breaches.push(source.breach(*line, format!("`{name}`: should be listed under {id} in {LIST}")));
            }
        }
    }
    breaches
}

/// Cases that stand twice, and cases that have neither a test nor an excuse, or both.
fn wrong_cases(list: &Source, cases: &[Case<'_>]) -> Vec<Breach> {
    let mut seen = HashSet::new();
    let mut breaches = Vec::new();
    for case in cases {
        if !seen.insert(case.id) {
            breaches.push(list.breach(case.line, format!("{}: should stand once", case.id)));
        }
        if case.tests.is_empty() != case.has_excuse {
            let what = format!("{}: should have a test, or else one of {EXCUSES:?}", case.id);
            breaches.push(list.breach(case.line, what));
        }
    }
    breaches
}

/// A case begins with `### F1: ...`; its tests are items, a file and its functions, each in backticks.
fn cases(list: &Source) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (i, text) in list.text.lines().enumerate() {
        if let Some((id, _)) = text.strip_prefix("### ").and_then(|rest| rest.split_once(':')) {
            cases.push(Case { id, line: i + 1, ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        case.has_excuse |= EXCUSES.iter().any(|excuse| text.contains(excuse));
        if let Some(item) = text.strip_prefix("- ") {
            let mut names = item.split('`').skip(1).step_by(2);
            let file = names.next().unwrap_or("");
            case.tests.extend(names.map(|name| Listed { line: i + 1, file, name }));
        }
    }
    cases
}

/// The tests of a file, each with its line.
fn tests_of(text: &str) -> Vec<(usize, &str)> {
    let mut is_test = false;
    let mut tests = Vec::new();
    for (i, line) in text.lines().map(str::trim).enumerate() {
        is_test |= line.starts_with("#[test]");
        let function = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
        if let (true, Some(name)) = (is_test, function) {
            tests.push((i + 1, name));
            is_test = false;
        }
    }
    tests
}

/// The case that the name of a test begins with: `F3` of `f3_munmap`.
fn case_of(name: &str) -> Option<String> {
    let (head, _) = name.split_once('_')?;
    let (letter, number) = head.split_at_checked(1)?;
    let is_case = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_case && letter.bytes().all(|b| b.is_ascii_lowercase())).then(|| head.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &str, code: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        check(&[source(LIST, list), source("tests/a.rs", code)]).into_iter().map(|b| b.place).collect()
    }

    const CODE: &str = "fn f9_helper() {}\n#[test]\nfn f1_two() {}\n#[test]\n#[ignore]\nfn other() {}\n";

    #[test]
    fn both_directions() {
        let good = "### F1: two\nMust.\n- `tests/a.rs`: `f1_two`, `other`\n### F2: none\nNot built.\n";
        assert!(places(good, CODE).is_empty());
        let unlisted = "### F1: two\n- `tests/a.rs`: `other`\n";
        assert_eq!(places(unlisted, CODE), ["tests/a.rs:3"]);
        let wrong = "### F1: two\n- `tests/a.rs`: `f1_two`, `gone`\n- `tests/b.rs`: `other`\n";
        assert_eq!(places(wrong, CODE), ["docs/cases.md:2", "docs/cases.md:3"]);
        let helper = "### F1: two\n- `tests/a.rs`: `f1_two`\n### F9: helper\n- `tests/a.rs`: `f9_helper`\n";
        assert_eq!(places(helper, CODE), ["docs/cases.md:4"], "no test");
    }

    #[test]
    fn a_case_stands_once_and_has_a_test() {
        let twice = "### F1: two\n- `tests/a.rs`: `f1_two`\n### F1: again\n- `tests/a.rs`: `other`\n";
        assert_eq!(places(twice, CODE), ["docs/cases.md:3"]);
        let none = "### F1: two\n- `tests/a.rs`: `f1_two`\n### F2: none\nMust.\n";
        assert_eq!(places(none, CODE), ["docs/cases.md:3"]);
        let both = "### F1: two\nNot built.\n- `tests/a.rs`: `f1_two`\n";
        assert_eq!(places(both, CODE), ["docs/cases.md:1"]);
    }

    #[test]
    fn what_a_case_is() {
        assert_eq!(case_of("f13_filling").as_deref(), Some("F13"));
        assert_eq!(
            [case_of("x86_walk"), case_of("store"), case_of("a_page"), case_of("f_1")],
            [Some("X86".into()), None, None, None]
        );
    }
}
