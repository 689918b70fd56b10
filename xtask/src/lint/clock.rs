//! No answer of the core and no test depends on the clock: a loaded machine is no slower machine, but one on which a thread does not
//! run for a while. `docs/design.md` says what is bounded by work instead, and `docs/testing.md` how a test waits.

use super::{Breach, Source};

const CORE: &str = "crates/softfault/src/";
/// The clock of the core's machine.
const CORE_CLOCK: &str = "now_ns(";
/// Files of the core that may read it, and why.
const CORE_ALLOWED: [(&str, &str); 5] = [
    ("machine.rs", "declares it"),
    ("testing.rs", "a test machine's own"),
    ("clear/calibrate.rs", "chooses among ways of zeroing, each of which leaves zeroes"),
    ("clear/batch.rs", "the same, for each CPU"),
    ("base/hugetlb_locks.rs", "statistics, which only reports read"),
];

/// Words that no test uses. A wait with a limit takes `PATIENCE`, of `crates/host/src/watchdog.rs`.
const IN_TESTS: [&str; 7] =
    ["Instant::now", ".elapsed()", "thread::sleep", "SystemTime", "recv_timeout(", "wait_timeout(", "park_timeout("];
const PATIENCE: &str = "PATIENCE";

/// Tests that may, and why.
const TESTS_ALLOWED: [(&str, &str); 7] = [
    ("crates/host/src/barrier/tests.rs", "plays as many rounds as fit; their number is not asserted"),
    ("crates/host/tests/litmus.rs", "the same"),
    ("crates/host/tests/shootdown_litmus.rs", "the same"),
    ("crates/lab/src/bench/crew.rs", "a step lasts at least as long as the sleep in it"),
    ("crates/testkit/tests/notice_calls.rs", "a watchdog that names the call that hangs"),
    ("crates/testkit/tests/object_chaos.rs", "plays for a while; how much is not asserted"),
    ("crates/testkit/tests/underused.rs", "a daemon that rests, so that programs meet what it leaves"),
];

/// Looks at the core and at all tests.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let rust = || sources.iter().filter(|s| s.is_rust());
    let in_core = rust().filter(|s| !s.is_test()).flat_map(check_core);
    let mut breaches: Vec<Breach> = in_core.chain(rust().flat_map(check_tests)).collect();
    let is_needed = |path: &str| rust().any(|s| s.path == path && !uses(s).is_empty());
    let idle = TESTS_ALLOWED.iter().filter(|(path, _)| !is_needed(path));
    breaches.extend(idle.map(|(path, _)| Breach {
        place: (*path).into(),
        what: "uses no clock: should not be in the list of xtask/src/lint/clock.rs".into(),
    }));
    breaches
}

fn check_core(source: &Source) -> Vec<Breach> {
    let Some(file) = source.path.strip_prefix(CORE) else { return Vec::new() };
    if CORE_ALLOWED.iter().any(|(allowed, _)| *allowed == file) {
        return Vec::new();
    }
    let reads = source.code_lines().filter(|(_, line)| line.contains(CORE_CLOCK));
    reads.map(|(number, _)| source.breach(number, "reads the clock: should be bounded by work")).collect()
}

fn check_tests(source: &Source) -> Vec<Breach> {
    if TESTS_ALLOWED.iter().any(|(allowed, _)| *allowed == source.path) {
        return Vec::new();
    }
    let what = |word: &str| format!("`{word}` in a test: should wait for what another thread does, with `PATIENCE`");
    uses(source).into_iter().map(|(number, word)| source.breach(number, what(word))).collect()
}

/// The uses of the clock in lines that are only there for tests.
fn uses(source: &Source) -> Vec<(usize, &'static str)> {
    // What `code_lines` leaves out.
    let first = if source.is_test() { 0 } else { source.code_lines().count() };
    let lines = source.text.lines().enumerate().skip(first);
    let lines = lines.map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")));
    let use_in = |line: &str| IN_TESTS.into_iter().find(|word| line.contains(word));
    lines
        .filter(|(_, line)| !line.contains(PATIENCE))
        .filter_map(|(i, line)| use_in(line).map(|word| (i, word)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.into(), text: text.into() };
        let mut found = check_core(&source);
        found.extend(check_tests(&source));
        found.into_iter().map(|breach| breach.place).collect()
    }

    /// Put together, so that this file does not break its own rule.
    const NOW: &str = concat!("Instant", "::now();");

    #[test]
    fn clocks_in_tests() {
        let path = "crates/testkit/tests/a.rs";
        for word in IN_TESTS {
            assert_eq!(places(path, &format!("\n    let a = {word}")), [format!("{path}:2")], "{word}");
        }
        assert_eq!(places(path, &format!("// {NOW}\nuse std::time::Instant;\n")), [""; 0]);
        assert_eq!(places(path, "told.recv_timeout(PATIENCE)"), [""; 0]);
        assert_eq!(places(TESTS_ALLOWED[0].0, NOW), [""; 0]);
    }

    #[test]
    fn what_is_no_test_may_use_a_clock() {
        assert_eq!(places("crates/lab/src/a.rs", NOW), [""; 0]);
        let text = format!("fn a() {{ {NOW} }}\n#[cfg(test)]\nmod tests {{\n    {NOW}\n}}\n");
        assert_eq!(places("crates/lab/src/a.rs", &text), ["crates/lab/src/a.rs:4"]);
    }

    #[test]
    fn the_core_reads_the_clock_in_listed_files_alone() {
        let text = "//! now_ns()\nfn f() { self.machine.now_ns() }\n";
        let path = |file: &str| format!("{CORE}{file}");
        assert_eq!(places(&path("compact/attempt.rs"), text), [path("compact/attempt.rs:2")]);
        assert_eq!(places(&path("clear/batch.rs"), text), [""; 0]);
        assert_eq!(places("crates/kernel/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn a_file_that_needs_its_place_in_the_list_no_more() {
        let of = |text: &str| {
            TESTS_ALLOWED
                .map(|(path, _)| Source { path: path.into(), text: format!("#[cfg(test)]\nmod tests {{\n{text}") })
        };
        assert_eq!(check(&of(NOW)), []);
        assert_eq!(check(&of("")).len(), TESTS_ALLOWED.len());
    }
}
