//! Checks that `docs/late.md` has a row for each call of a method of `Machine` that stores, reads or copies bytes.
//!
//! The core decides on such a call in a section, or under a lock, and makes it later. A removal may return in between, so each
//! place has to say who waits, or how a late answer is recognised, and which test shows that. A row is `| file | call | ... |
//! tests |`, where the file is below `crates/softfault/src/`. A new method of `Machine` goes into one of the two lists here.

use super::{Breach, Source};
use std::collections::BTreeSet;
use syn::{Item, TraitItem};

const DOCUMENT: &str = "docs/late.md";
const CORE: &str = "crates/softfault/src/";
const MACHINE: &str = "crates/softfault/src/machine.rs";
/// Passes the calls on that are `unsafe`.
const PASSES_ON: &str = "crates/softfault/src/machine/ask.rs";

/// Methods that store, read or copy bytes, or ask for leave to.
const WITH_BYTES: [&str; 8] =
    ["copy_frame", "fill", "may_store", "notify", "punch_hole", "swap_in", "swap_out", "write_back"];
/// The others: numbers of the machine, waits and shootdowns, and frames that nobody has yet, or any more.
const WITHOUT_BYTES: [&str; 28] = [
    "add_frames",
    "begin",
    "entered",
    "fault_policy",
    "foreign_frames",
    "frame_ptr",
    "frames",
    "frames_removed",
    "heavy_barrier",
    "marks_entries",
    "node_of_cpu",
    "node_of_range",
    "now_ns",
    "nr_cpus",
    "nr_frames_at_most",
    "nr_nodes",
    "nr_swap_slots",
    "park",
    "random",
    "relax",
    "shootdown",
    "shootdown_is_grace",
    "storage",
    "this_cpu",
    "tick",
    "top_leaf",
    "unpark",
    "vector_registers",
];
/// Functions of the core that copy frames, by the machine's method or without it.
const COPIES: [&str; 4] = ["mem::copy_frame", "mem::copy_frames", "program::copy_frame", "stream::copy_frames"];

/// A file below the core's source, and the name of a method.
type Place = (String, String);

/// Compares calls and rows, in both directions.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let Some(document) = sources.iter().find(|s| s.path == DOCUMENT) else { return Vec::new() };
    let mut breaches: Vec<Breach> = sources.iter().filter(|s| s.path == MACHINE).flat_map(unlisted_methods).collect();
    let rows = rows(&document.text);
    let mut called = BTreeSet::new();
    for source in sources.iter().filter(|s| is_of_core(s)) {
        for (line, method) in calls(source) {
            let place: Place = (source.path[CORE.len()..].to_owned(), method);
            if !rows.iter().any(|row| row.place == place) && !called.contains(&place) {
                breaches.push(source.breach(line, format!("`{}`: should have a row in {DOCUMENT}", place.1)));
            }
            called.insert(place);
        }
    }
    for row in &rows {
        let (file, method) = &row.place;
        if !called.contains(&row.place) {
            breaches.push(document.breach(row.line, format!("`{file}`: should call `{method}`")));
        }
        if row.tests.is_empty() {
            breaches.push(document.breach(row.line, format!("`{file}`: should name a test")));
        }
        let is_gone = |test: &&String| !sources.iter().any(|source| has_test(source, test));
        breaches.extend(
            row.tests
                .iter()
                .filter(is_gone)
                .map(|test| document.breach(row.line, format!("`{test}`: should be a test"))),
        );
    }
    breaches
}

fn is_of_core(source: &Source) -> bool {
    let is_scaffold = source.path == PASSES_ON || source.path == "crates/softfault/src/testing.rs";
    source.path.starts_with(CORE) && source.is_rust() && !source.is_test() && !is_scaffold
}

/// Methods of the trait that are in neither list.
fn unlisted_methods(machine: &Source) -> Vec<Breach> {
    let items = syn::parse_file(&machine.text).map(|file| file.items).unwrap_or_default();
    let the_trait = items.into_iter().find_map(|item| match item {
        Item::Trait(item) if item.ident == "Machine" => Some(item.items),
        _ => None,
    });
    let methods = the_trait.into_iter().flatten().filter_map(|item| match item {
        TraitItem::Fn(method) => Some(method.sig.ident.to_string()),
        _ => None,
    });
    let unlisted = methods.filter(|name| !WITH_BYTES.contains(&&**name) && !WITHOUT_BYTES.contains(&&**name));
    unlisted.map(|name| machine.breach(1, format!("`{name}`: should be in a list of xtask/src/lint/late.rs"))).collect()
}

/// A row of the table.
struct Row {
    line: usize,
    place: Place,
    /// Names of tests, or their beginnings.
    tests: Vec<String>,
}

fn rows(text: &str) -> Vec<Row> {
    let row = |(i, line): (usize, &str)| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let quoted = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        let (file, method) = (quoted(cells.first()?)?, quoted(cells.get(1)?)?);
        let tests = cells.last()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        file.ends_with(".rs").then_some(Row { line: i + 1, place: (file, method), tests })
    };
    text.lines().enumerate().filter_map(row).collect()
}

/// `name`, or `beginning_…` of several.
fn has_test(source: &Source, test: &str) -> bool {
    let beginning = test.strip_suffix('…');
    source
        .text
        .match_indices(&format!("fn {}", beginning.unwrap_or(test)))
        .any(|(at, found)| beginning.is_some() || source.text[at + found.len()..].starts_with(['(', '<']))
}

/// Line and method of each call. A call may be broken over several lines.
fn calls(source: &Source) -> Vec<(usize, String)> {
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (line, code) in source.code_lines() {
        // A word ends with its line.
        for part in code.split_whitespace() {
            text.push_str(part);
            lines.resize(text.len(), line);
        }
    }
    let asked = WITH_BYTES.iter().flat_map(|name| {
        ["ask::", "machine.", "machine()."].map(|before| (format!("{before}{name}("), (*name).to_owned()))
    });
    let copied = COPIES.iter().map(|path| {
        let name = path.rsplit("::").next().unwrap_or(path);
        (format!("{path}("), name.to_owned())
    });
    let mut found: Vec<(usize, String)> = asked
        .chain(copied)
        .flat_map(|(call, name)| {
            text.match_indices(&call).map(|(at, _)| (lines[at], name.clone())).collect::<Vec<(usize, String)>>()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| place | call | decided | done | late | tests |\n\
        | --- | --- | --- | --- | --- | --- |\n\
        | `a.rs` | `fill` | section | outside | freed | `it_is`, models `reads_…` |\n";
    const TESTS: &str = "fn it_is() {}\nfn reads_late() {}\n";

    fn breaches(code: &str, table: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("crates/softfault/src/a.rs", code),
            source(DOCUMENT, table),
            source("crates/testkit/tests/t.rs", TESTS),
        ];
        check(&sources).into_iter().map(|breach| format!("{}: {}", breach.place, breach.what)).collect()
    }

    #[test]
    fn each_call_has_a_row() {
        assert!(breaches("fn f() { ask::fill(&m, fill); }", TABLE).is_empty());
        assert!(breaches("fn f() {\n    links\n        .machine\n        .fill(fill);\n}", TABLE).is_empty());
        let found = breaches("fn f() { ask::fill(&m, fill);\n self.machine.punch_hole(hole); }", TABLE);
        assert_eq!(found, ["crates/softfault/src/a.rs:2: `punch_hole`: should have a row in docs/late.md"]);
        let copied = breaches("fn f() { ask::fill(&m, fill); mem::copy_frame(&m, to, from) }", TABLE);
        assert_eq!(copied, ["crates/softfault/src/a.rs:1: `copy_frame`: should have a row in docs/late.md"]);
        // Comments, tests and functions of the same name do not count.
        let others = "fn f() { ask::fill(&m, fill); bytes.fill(0); } // ask::swap_in(\n#[cfg(test)]\nmod tests {\n ask::swap_in( }";
        assert!(breaches(others, TABLE).is_empty());
    }

    #[test]
    fn each_row_has_a_call_and_tests() {
        assert_eq!(breaches("fn f() {}", TABLE), ["docs/late.md:3: `a.rs`: should call `fill`"]);
        let code = "fn f() { ask::fill(&m, fill); }";
        let gone = TABLE.replace("it_is", "it_was").replace("reads_…", "writes_…");
        let places = ["`it_was`", "`writes_…`"].map(|test| format!("docs/late.md:3: {test}: should be a test"));
        assert_eq!(breaches(code, &gone), places);
        assert_eq!(
            breaches(code, &TABLE.replace('`', "").replace("a.rs", "`a.rs`").replace("fill", "`fill`")),
            ["docs/late.md:3: `a.rs`: should name a test"]
        );
    }

    #[test]
    fn a_new_method_is_in_a_list() {
        let text = "pub unsafe trait Machine { fn fill(&self); fn park(&self); fn drain(&self); }".into();
        let found = unlisted_methods(&Source { path: MACHINE.into(), text });
        assert_eq!(
            found.iter().map(|breach| &*breach.what).collect::<Vec<&str>>(),
            ["`drain`: should be in a list of xtask/src/lint/late.rs"]
        );
    }
}
