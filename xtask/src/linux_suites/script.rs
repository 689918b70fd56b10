//! The script of one boot, and what it printed.
//!
//! busybox's shell runs the tests one after the other. Marks in the output say where a test begins and ends. After
//! each test the script kills all other processes and removes the files, so that a test meets nothing of the last one.

use super::list::{Suite, Test};
use std::fmt::Write;

const BEGIN: &str = "@@softfault begin ";
const END: &str = "@@softfault end ";
/// The whole batch was run.
const DONE: &str = "@@softfault done";

/// Before the tests. The limits of LTP's own watchdogs are multiplied, since an emulator is slow, and it does not look for a
/// kernel configuration.
const HEAD: &str = "\
export PATH=/suite:/bin TMPDIR=/tmp HOME=/tmp LANG=C
export LTPROOT=/suite LTP_TIMEOUT_MUL=20 LTP_COLORIZE_OUTPUT=n KCONFIG_SKIP_CHECK=1
run() {
    mkdir -p /tmp/work && cd /tmp/work && chmod 1777 /tmp /tmp/work
    eval \"$SETUP\"
    echo; echo \"@@softfault begin $1\"
    timeout -s KILL \"$2\" sh -c \"$3\" </dev/null 2>&1
    rc=$?
    kill -9 -1 2>/dev/null
    cd /; rm -rf /tmp/* /dev/shm/* 2>/dev/null
    echo; echo \"@@softfault end $1 $rc\"
}
";

/// The script for these tests.
pub fn script(suite: &Suite, tests: &[Test]) -> String {
    let mut text = format!("{HEAD}SETUP={}\n", quoted(&suite.setup));
    // Programs of the kernel's own suite are called by their names, too.
    for test in tests {
        let _ = writeln!(text, "run {} {} {}", quoted(&test.name), suite.seconds, quoted(&test.command));
    }
    let _ = writeln!(text, "echo '{DONE}'");
    text
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A test's output and its end.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The test's name.
    pub name: String,
    /// Exit code, as a shell has it; none if the machine ended before the test.
    pub code: Option<i32>,
    /// All that it printed.
    pub lines: Vec<String>,
}

impl Ran {
    /// Whether it passed.
    pub fn passes(&self) -> bool {
        self.code == Some(0)
    }
    /// The checks that it says have passed: TPASS of LTP, `ok` of TAP.
    pub fn nr_checks(&self) -> usize {
        self.lines.iter().filter(|line| line.contains("TPASS") || line.trim_start().starts_with("ok ")).count()
    }
}

/// Takes the output of a batch line by line.
#[derive(Default)]
pub struct Reader {
    /// The tests that have begun; the last one may not have ended.
    pub ran: Vec<Ran>,
    /// Lines outside tests: what the kernel and the machine say.
    pub other: Vec<String>,
    /// Whether the script came to its end.
    pub is_done: bool,
    is_within: bool,
}

impl Reader {
    /// One line. Returns the name of the test that begins with it.
    pub fn see(&mut self, line: &str) -> Option<&str> {
        if let Some(name) = line.strip_prefix(BEGIN) {
            self.ran.push(Ran { name: name.trim().into(), ..Ran::default() });
            self.is_within = true;
            return self.ran.last().map(|ran| ran.name.as_str());
        }
        if let Some((_, code)) = line.strip_prefix(END).and_then(|rest| rest.rsplit_once(' ')) {
            self.is_within = false;
            if let Some(ran) = self.ran.last_mut() {
                ran.code = code.trim().parse().ok();
            }
            return None;
        }
        self.is_done |= line == DONE;
        match self.ran.last_mut() {
            Some(ran) if self.is_within => ran.lines.push(line.into()),
            _ if line.is_empty() || line == DONE => {}
            _ => self.other.push(line.into()),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reader {
        let mut reader = Reader::default();
        text.lines().for_each(|line| _ = reader.see(line));
        reader
    }

    #[test]
    fn tests_and_what_is_outside_them() {
        let text = format!("noise\n\n{BEGIN}a\nx TPASS: y\nok 1 z\n\n{END}a 0\n\n{BEGIN}b\nhalf");
        let reader = read(&text);
        assert_eq!((reader.other, reader.is_done), (vec!["noise".to_string()], false));
        let [a, b] = &reader.ran[..] else { panic!("two") };
        assert_eq!((a.name.as_str(), a.code, a.nr_checks()), ("a", Some(0), 2));
        assert_eq!((b.code, &b.lines[..]), (None, &["half".to_string()][..]));
        assert!(read(&format!("{text}\n{END}b 3\n{DONE}\n5 pages\n")).is_done);
    }

    #[test]
    fn a_command_with_quotes_is_one_word() {
        assert_eq!(quoted("T=`x 'a'`; y $T"), r"'T=`x '\''a'\''`; y $T'");
    }
}
