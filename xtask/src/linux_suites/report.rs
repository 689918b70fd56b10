//! Progress, a line for each wrong answer, the sums; or JSON.

use super::list::Suite;
use super::script::Ran;
use super::sides::Side;
use super::verdict::{self, Verdict};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// A test, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    suite: &'a str,
    test: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The line that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
    linux: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    ours: Option<Outcome>,
}

#[derive(Serialize)]
struct Outcome {
    exit: Option<i32>,
    /// Checks that the test says have passed.
    checks: usize,
}

impl Outcome {
    fn of(ran: &Ran) -> Outcome {
        Outcome { exit: ran.code, checks: ran.nr_checks() }
    }
}

/// The three figures of a suite, or of all.
#[derive(Clone, Default, Serialize)]
struct Sums {
    suite: String,
    native_passes: usize,
    ours_of_these: usize,
    wrong_answers: usize,
}

/// The results so far.
pub struct Report {
    is_json: bool,
    sums: Vec<Sums>,
    /// Complaints of a kernel outside a test.
    nr_complaints: usize,
}

impl Report {
    /// Nothing yet.
    pub fn new(is_json: bool) -> Report {
        Report { is_json, sums: Vec::new(), nr_complaints: 0 }
    }
    /// A test begins. On a terminal the line replaces the one before.
    pub fn progress(&mut self, suite: &Suite, side: Side, test: &str) {
        let text = format!("{} on {}: {test}", suite.name, side.name());
        let mut err = io::stderr();
        let _ = if err.is_terminal() { write!(err, "\r\x1b[K{text}") } else { writeln!(err, "suites: {text}") };
        let _ = err.flush();
    }
    fn clear_progress(&self) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
    /// Lines outside tests. The reference kernel says there if it has lost memory.
    pub fn complain(&mut self, suite: &Suite, lines: &[String]) {
        for line in lines.iter().filter(|line| line.contains("did not come back")) {
            self.clear_progress();
            self.nr_complaints += 1;
            if !self.is_json {
                println!("WRONG {}, after a boot: {line}", suite.name);
            }
        }
    }
    /// A test that was run.
    pub fn add(&mut self, suite: &Suite, linux: &Ran, ours: Option<&Ran>) {
        let reason = suite.reason(&linux.name);
        let verdict = verdict::judge(linux, ours, reason.is_some());
        let sums = self.sums_of(suite);
        sums.native_passes += usize::from(verdict != Verdict::NotHere);
        sums.ours_of_these += usize::from(matches!(verdict, Verdict::Same | Verdict::Unneeded));
        sums.wrong_answers += usize::from(verdict == Verdict::Wrong);
        let differs = matches!(verdict, Verdict::Wrong | Verdict::Listed);
        let difference = differs.then(|| verdict::difference(linux, ours));
        self.clear_progress();
        if !self.is_json {
            return self.say(suite, linux, ours, verdict, difference);
        }
        let (linux_outcome, ours) = (Outcome::of(linux), ours.map(Outcome::of));
        let row = Row {
            suite: &suite.name,
            test: &linux.name,
            verdict: verdict.word(),
            reason,
            difference,
            linux: linux_outcome,
            ours,
        };
        print_json(&row);
    }
    fn say(&self, suite: &Suite, linux: &Ran, ours: Option<&Ran>, verdict: Verdict, difference: Option<String>) {
        let name = format!("{} {}", suite.name, linux.name);
        match verdict {
            Verdict::Wrong => println!("WRONG {name}: {}", difference.unwrap_or_default()),
            Verdict::Unneeded => println!("{name}: passes, and is listed as different"),
            Verdict::Same => {
                let (of_linux, of_ours) = (linux.nr_checks(), ours.map_or(0, Ran::nr_checks));
                if of_ours < of_linux {
                    println!("{name}: passes with {of_ours} checks, on Linux with {of_linux}");
                }
            }
            Verdict::NotHere | Verdict::Listed => {}
        }
    }
    fn sums_of(&mut self, suite: &Suite) -> &mut Sums {
        if self.sums.last().is_none_or(|sums| sums.suite != suite.name) {
            self.sums.push(Sums { suite: suite.name.clone(), ..Sums::default() });
        }
        self.sums.last_mut().expect("one was pushed")
    }
    /// Prints the sums. Returns the number of wrong answers.
    pub fn end(self) -> usize {
        self.clear_progress();
        let wrong = self.sums.iter().map(|s| s.wrong_answers).sum::<usize>() + self.nr_complaints;
        if self.is_json {
            self.sums.iter().for_each(print_json);
            return wrong;
        }
        let line = |name: &str, of: fn(&Sums) -> usize, total: usize| {
            let parts: Vec<String> = self.sums.iter().map(|s| format!("{} {}", s.suite, of(s))).collect();
            println!("{name:<14}{total:>5}  ({})", parts.join(", "));
        };
        line("native passes", |s| s.native_passes, self.sums.iter().map(|s| s.native_passes).sum());
        line("ours of these", |s| s.ours_of_these, self.sums.iter().map(|s| s.ours_of_these).sum());
        line("wrong answers", |s| s.wrong_answers, wrong);
        wrong
    }
}

fn print_json(row: &impl Serialize) {
    println!("{}", serde_json::to_string(row).expect("rows have no maps with odd keys"));
}

/// The lists: each test, and why it may differ.
pub fn list(suites: &[Suite], is_wanted: impl Fn(&Suite, &str) -> bool) {
    for suite in suites {
        let names: Vec<&str> = suite.names().into_iter().filter(|test| is_wanted(suite, test)).collect();
        if !names.is_empty() {
            println!("{}: {}", suite.name, suite.about);
        }
        for name in names {
            match suite.reason(name) {
                Some(reason) => println!("  {name}  ({reason})"),
                None => println!("  {name}"),
            }
        }
    }
}
