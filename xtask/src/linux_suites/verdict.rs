//! Compares what a test did on both sides.

use super::script::Ran;

/// The outcome of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not pass on Linux: nothing follows.
    NotHere,
    /// It passes on both.
    Same,
    /// It passes on Linux alone, for a reason that is listed.
    Listed,
    /// It passes on both, and a reason is listed why it does not.
    Unneeded,
    /// It passes on Linux alone.
    Wrong,
}

impl Verdict {
    /// For JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::NotHere => "fails-on-linux",
            Verdict::Same => "same",
            Verdict::Listed => "differs-as-listed",
            Verdict::Unneeded => "listed-and-passes",
            Verdict::Wrong => "wrong",
        }
    }
}

/// Judges a test. `ours` is none if the test was not run there.
pub fn judge(linux: &Ran, ours: Option<&Ran>, is_listed: bool) -> Verdict {
    match (linux.passes(), ours.is_some_and(Ran::passes), is_listed) {
        (false, ..) => Verdict::NotHere,
        (true, true, false) => Verdict::Same,
        (true, true, true) => Verdict::Unneeded,
        (true, false, true) => Verdict::Listed,
        (true, false, false) => Verdict::Wrong,
    }
}

/// Words of lines that report a failure or a refusal.
const BAD: [&str; 8] = ["TFAIL", "TBROK", "not ok", "Bail out", "[FAIL]", "TCONF", "SKIP", "the machine ended"];

/// A line without what differs from run to run: numbers.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        match c {
            c if c.is_ascii_digit() => {
                if !shape.ends_with('#') {
                    shape.push('#');
                }
            }
            c => shape.push(c),
        }
    }
    shape
}

/// The first line of ours that Linux has not printed, a line about a failure before others; then the end.
pub fn difference(linux: &Ran, ours: Option<&Ran>) -> String {
    let Some(ours) = ours else { return "was not run".into() };
    let theirs: Vec<String> = linux.lines.iter().map(|line| shape(line)).collect();
    let new = || ours.lines.iter().filter(|line| !line.trim().is_empty() && !theirs.contains(&shape(line)));
    let bad = new().find(|line| BAD.iter().any(|word| line.contains(word)));
    let line = bad.or_else(|| new().next()).map(|line| line.trim());
    let end = match ours.code {
        None => "the machine ended".into(),
        Some(137) => "killed, perhaps at its time limit".into(),
        Some(code) => format!("exit {code}"),
    };
    let lacks = || linux.lines.iter().rfind(|line| !ours.lines.iter().any(|o| shape(o) == shape(line)));
    match line {
        Some(line) => format!("{end}: {line}"),
        None => format!("{end}, without: {}", lacks().map_or("(the same lines)", |line| line.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: Option<i32>, lines: &[&str]) -> Ran {
        Ran { name: "t".into(), code, lines: lines.iter().map(|l| l.to_string()).collect() }
    }

    #[test]
    fn verdicts() {
        let (good, bad) = (ran(Some(0), &[]), ran(Some(1), &[]));
        assert_eq!(judge(&bad, None, true), Verdict::NotHere);
        assert_eq!(judge(&good, Some(&good), false), Verdict::Same);
        assert_eq!(judge(&good, Some(&good), true), Verdict::Unneeded);
        assert_eq!(judge(&good, Some(&bad), true), Verdict::Listed);
        assert_eq!(judge(&good, Some(&bad), false), Verdict::Wrong);
        assert_eq!(judge(&good, Some(&ran(None, &[])), false), Verdict::Wrong, "the machine ended");
        assert_eq!(judge(&good, None, false), Verdict::Wrong, "it was not run");
    }

    #[test]
    fn the_line_that_differs() {
        let linux = ran(Some(0), &["pid 12", "a TPASS: x", "b TPASS: y"]);
        let ours = ran(Some(1), &["pid 7", "note", "a TFAIL: x: EINVAL"]);
        assert_eq!(difference(&linux, Some(&ours)), "exit 1: a TFAIL: x: EINVAL");
        let ours = ran(Some(2), &["pid 7", "strange"]);
        assert_eq!(difference(&linux, Some(&ours)), "exit 2: strange");
        let ours = ran(Some(137), &["pid 7", "a TPASS: x"]);
        assert_eq!(difference(&linux, Some(&ours)), "killed, perhaps at its time limit, without: b TPASS: y");
    }
}
