//! Checks that `docs/late.md` has a row for each call of a method of `Machine` that stores, reads or copies bytes.
//!
//! The core decides on such a call in a section, or under a lock, and makes it later. A removal may return in between, so each
//! place has to say who waits, or how a late answer is recognised, and which test shows that. A row is `| file | call | ... |
//! tests |`, where the file is below `crates/softfault/src/`, and the call is `` `method` in `function` ``. A new method of `Machine` goes into
//! one of the two lists here.
//!
//! All such calls are in `machine/ask.rs`, and its functions are called by their path: `ask::fill`. So the lint finds each of them. It
//! objects to any other way: a method of that name, a path to it, an import.

use super::{Breach, Source, is_for_tests};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Ident, Item, TraitItem, UseTree};

const DOCUMENT: &str = "docs/late.md";
const CORE: &str = "crates/softfault/src/";
const MACHINE: &str = "crates/softfault/src/machine.rs";
/// Passes all of them on.
const PASSES_ON: &str = "crates/softfault/src/machine/ask.rs";

/// Methods that store, read or copy bytes, or ask for leave to.
const WITH_BYTES: [&str; 8] =
    ["copy_frame", "fill", "may_store", "notify", "punch_hole", "swap_in", "swap_out", "write_back"];
/// Of these, the ones that can be called without `unsafe`. No other method of the core has such a name.
const SAFE: [&str; 3] = ["may_store", "notify", "punch_hole"];
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
/// Functions of the core that copy frames, by the machine's method or without it: their modules, and names.
const COPIERS: [&str; 3] = ["mem", "program", "stream"];
const COPIES: [&str; 2] = ["copy_frame", "copy_frames"];

/// A file below the core's source, the name of a method, and the function that calls it.
type Place = (String, String, String);

/// Compares calls and rows, in both directions.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let Some(document) = sources.iter().find(|s| s.path == DOCUMENT) else { return Vec::new() };
    let mut breaches: Vec<Breach> = sources.iter().filter(|s| s.path == MACHINE).flat_map(unlisted_methods).collect();
    let rows = rows(&document.text);
    let mut called = BTreeSet::new();
    for source in sources.iter().filter(|s| is_of_core(s)) {
        let calls = Calls::of(source);
        breaches.extend(calls.breaches);
        for (line, place) in calls.found {
            if !rows.iter().any(|row| row.place == place) && !called.contains(&place) {
                let (_, method, function) = &place;
                let what = format!("`{method}` in `{function}`: should have a row in {DOCUMENT}");
                breaches.push(source.breach(line, what));
            }
            called.insert(place);
        }
    }
    for row in &rows {
        let (file, method, function) = &row.place;
        if !called.contains(&row.place) {
            breaches.push(document.breach(row.line, format!("`{file}`: should call `{method}` in `{function}`")));
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
        let (method, function) = cells.get(1)?.split_once(" in ")?;
        let (file, method, function) = (quoted(cells.first()?)?, quoted(method)?, quoted(function)?);
        let tests = cells.last()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        file.ends_with(".rs").then_some(Row { line: i + 1, place: (file, method, function), tests })
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

/// The calls of a file.
struct Calls<'s> {
    source: &'s Source,
    /// Around what is visited; the innermost is the last.
    functions: Vec<String>,
    /// Of `unsafe` blocks.
    depth: usize,
    found: Vec<(usize, Place)>,
    /// Calls that are made in another way.
    breaches: Vec<Breach>,
}

impl Calls<'_> {
    fn of(source: &Source) -> Calls<'_> {
        let mut calls = Calls { source, functions: Vec::new(), depth: 0, found: Vec::new(), breaches: Vec::new() };
        match syn::parse_file(&source.text) {
            Ok(file) => calls.visit_file(&file),
            Err(error) => {
                calls.breaches.push(source.breach(error.span().start().line, format!("should be Rust: {error}")));
            }
        }
        calls
    }

    fn object(&mut self, at: &Ident, name: &str) {
        let what = format!("`{name}`: should be called by its path in machine/ask.rs, for {DOCUMENT}");
        self.breaches.push(self.source.breach(line_of(at), what));
    }

    fn within(&mut self, name: &Ident, visit: impl FnOnce(&mut Self)) {
        self.functions.push(name.to_string());
        visit(self);
        self.functions.pop();
    }

    /// Names that are imported, each with the module before it.
    fn import(&mut self, module: Option<&Ident>, tree: &UseTree) {
        let of_ask = module.filter(|module| *module == "ask");
        let is_one = |name: &Ident| of_ask.is_some() && name != "self" || COPIES.iter().any(|copy| name == copy);
        match (tree, of_ask) {
            (UseTree::Path(path), _) => self.import(Some(&path.ident), &path.tree),
            (UseTree::Group(group), _) => group.items.iter().for_each(|tree| self.import(module, tree)),
            (UseTree::Glob(_), Some(ask)) => self.object(ask, "ask::*"),
            (UseTree::Name(name), _) if is_one(&name.ident) => self.object(&name.ident, &name.ident.to_string()),
            (UseTree::Rename(rename), _) if rename.ident == "ask" || of_ask.is_some() || is_one(&rename.ident) => {
                self.object(&rename.ident, &rename.ident.to_string());
            }
            (UseTree::Glob(_) | UseTree::Name(_) | UseTree::Rename(_), _) => {}
        }
    }
}

fn line_of(name: &Ident) -> usize {
    name.span().start().line
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            self.within(&function.sig.ident, |this| visit::visit_item_fn(this, function));
        }
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.within(&function.sig.ident, |this| visit::visit_impl_item_fn(this, function));
        }
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.within(&function.sig.ident, |this| visit::visit_trait_item_fn(this, function));
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(None, &item.tree);
    }
    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.depth += 1;
        visit::visit_expr_unsafe(self, block);
        self.depth -= 1;
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        if SAFE.contains(&&*name) || self.depth > 0 && WITH_BYTES.contains(&&*name) {
            self.object(&call.method, &name);
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<&Ident> = path.path.segments.iter().map(|segment| &segment.ident).collect();
        let [.., of, at] = &*names else { return };
        let (module, name) = (of.to_string(), at.to_string());
        let (is_asked, has_bytes) = (module == "ask", WITH_BYTES.contains(&&*name));
        if is_asked && has_bytes || COPIERS.contains(&&*module) && COPIES.contains(&&*name) {
            let file = self.source.path[CORE.len()..].to_owned();
            let place = (file, name, self.functions.last().cloned().unwrap_or_default());
            self.found.push((line_of(at), place));
        } else if !is_asked && (SAFE.contains(&&*name) || has_bytes && is_of_machine(path, &module)) {
            self.object(at, &name);
        }
    }
    /// Nobody looks into macros, so no call is there.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let text = call.tokens.to_string().replace(' ', "");
        let safe = SAFE.iter().map(|name| format!(".{name}("));
        if let Some(found) = safe.chain(["ask::".to_owned()]).find(|part| text.contains(part.as_str())) {
            let name = call.path.segments.last().map(|segment| &segment.ident);
            name.into_iter().for_each(|name| self.object(name, &found));
        }
    }
}

/// Whether the path is to a method of the trait, or of a type that implements it: `M::fill`, `<M as Machine>::fill`.
fn is_of_machine(path: &syn::ExprPath, module: &str) -> bool {
    path.qself.is_some() || ["M", "Machine"].contains(&module)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| place | call | decided | done | late | tests |\n\
        | --- | --- | --- | --- | --- | --- |\n\
        | `a.rs` | `fill` in `f` | section | outside | freed | `it_is`, models `reads_…` |\n";
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

    /// After the call that has a row.
    fn found(code: &str) -> Vec<String> {
        breaches(&format!("fn f() {{ ask::fill(&m, fill); }}\n{code}"), TABLE)
    }

    #[test]
    fn each_call_has_a_row() {
        assert!(breaches("fn f() { ask::fill(&m, fill); }", TABLE).is_empty());
        assert!(breaches("impl A { fn f() { g(|| machine::ask\n::fill(&m, fill)); } }", TABLE).is_empty());
        let row = |line, call| format!("crates/softfault/src/a.rs:{line}: {call}: should have a row in docs/late.md");
        assert_eq!(found("fn g() {\n ask::punch_hole(&m, hole); }"), [row(3, "`punch_hole` in `g`")]);
        assert_eq!(found("fn g() { mem::copy_frame(&m, to, from) }"), [row(2, "`copy_frame` in `g`")]);
        assert_eq!(found("fn g() { with(ask::swap_in) }"), [row(2, "`swap_in` in `g`")]);
        // Comments, tests and functions of the same name do not count.
        assert!(found("fn g() { bytes.fill(0); Slot::fill(1); } // ask::swap_in(").is_empty());
        assert!(found("#[cfg(test)]\nmod tests { fn g() { ask::swap_in(); m.notify(); } }").is_empty());
        assert!(found("fn g(")[0].starts_with("crates/softfault/src/a.rs:2: should be Rust: "));
    }

    /// A second call in a file that has a row for another one.
    #[test]
    fn each_function_has_a_row() {
        let row = "crates/softfault/src/a.rs:2: `fill` in `g`: should have a row in docs/late.md";
        assert_eq!(found("fn g() { ask::fill(&m, fill); }"), [row]);
        assert_eq!(found("impl A { fn g() { loop { ask::fill(&m, fill); } } }"), [row]);
    }

    #[test]
    fn no_call_is_made_in_another_way() {
        for (code, name) in [
            ("fn g() { let m = &vm.machine; m.may_store(file, pages); }", "may_store"),
            ("fn g() { self.machine.punch_hole(hole); }", "punch_hole"),
            ("fn g() { self\n.machine()\n.notify(space, notice); }", "notify"),
            ("fn g() { unsafe { m.fill(fill) } }", "fill"),
            ("fn g() { M::punch_hole(&m, hole); }", "punch_hole"),
            ("fn g() { Hosted::may_store(&m, file, pages); }", "may_store"),
            ("fn g() { unsafe { Machine::swap_in(&m, slot, to) } }", "swap_in"),
            ("fn g() { with(<M as Machine>::write_back) }", "write_back"),
            ("use crate::machine::ask::fill;", "fill"),
            ("use crate::machine::ask::{self, swap_in as read};", "swap_in"),
            ("use crate::{machine::ask::*};", "ask::*"),
            ("fn g() { use super::ask as a; a::fill(&m, fill); }", "ask"),
            ("use crate::mem::{self, copy_frame};", "copy_frame"),
            ("fn g() { assert!(ask::fill(&m, fill)); }", "ask::"),
            ("fn g() { debug_assert!(m . may_store(file, pages)); }", ".may_store("),
        ] {
            let what = format!(": `{name}`: should be called by its path in machine/ask.rs, for docs/late.md");
            let found = found(code);
            assert!(found.len() == 1 && found[0].ends_with(&what), "{code}: {found:?}");
        }
        assert!(found("use crate::machine::{Machine, ask};\nuse crate::machine::ask::{self};").is_empty());
    }

    #[test]
    fn each_row_has_a_call_and_tests() {
        assert_eq!(breaches("fn f() {}", TABLE), ["docs/late.md:3: `a.rs`: should call `fill` in `f`"]);
        let code = "fn f() { ask::fill(&m, fill); }";
        let gone = TABLE.replace("it_is", "it_was").replace("reads_…", "writes_…");
        let places = ["`it_was`", "`writes_…`"].map(|test| format!("docs/late.md:3: {test}: should be a test"));
        assert_eq!(breaches(code, &gone), places);
        let without = TABLE.replace("`it_is`, models `reads_…`", "it is");
        assert_eq!(breaches(code, &without), ["docs/late.md:3: `a.rs`: should name a test"]);
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
