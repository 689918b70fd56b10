//! Each safe public function of the core and of the hosted machine is called by `safe_calls` with values of another `Vm`, of
//! another machine, of what has ended, and with numbers at the ends of their ranges; or its type is in a table that says why
//! not.
//!
//! Public is what a user can name: the public modules, and what `lib.rs` lifts. A test names a function by a string,
//! `"Type::function"`, or `"module::function"` if it is of no type, and calls it in the same file.

use super::{Breach, Source, is_for_tests};
use std::collections::BTreeMap;
use syn::{ImplItem, Item, TraitItem, Visibility};

/// Where the tests are that call them.
const TESTS: &str = "crates/testkit/tests/safe_calls/";
/// The folders of the sources, with `/` at their ends.
const CRATES: [&str; 2] = ["crates/softfault/src/", "crates/host/src/"];
/// Parts of the core that a user does not have: builds for tests alone, and `hooks`, of which nothing is promised.
const LEFT_OUT: [&str; 9] = [
    "crates/softfault/src/hooks",
    "crates/softfault/src/check/in_test.rs",
    "crates/softfault/src/sync/",
    "crates/softfault/src/testing.rs",
    "crates/host/src/testing.rs",
    "crates/softfault/src/space/tree",
    "crates/softfault/src/mem",
    "crates/softfault/src/frame/desc.rs",
    "crates/softfault/src/source/members",
];
/// Types whose functions no test need name, each with its reason.
const EXEMPT: &[(&str, &str)] = &[
    ("Format", "a promise of the implementor; `conformance::check` tests it"),
    ("conformance::check", "calls the caller's format, and a walk that the caller writes"),
    ("HostFile", "called by the hosted machine, implemented by the caller"),
    ("HostFill::keep", "the fill comes out as it went in"),
    ("HostedConfig", "settings: `Hosted::new` reads and refuses them"),
    ("ObjectHole", "only the core makes one, for the length of a callback"),
    ("Machine::punch_hole", "takes what only the core makes"),
    ("ObjectPart", "an argument of `mmap_object`, which reads and refuses it"),
    ("SubpoolLimits", "an argument of `new_hugetlb_subpool`, which reads and refuses it"),
    ("Vma", "a report: the page that is asked for has to lie in it"),
    ("ClearTable", "a report of a measurement"),
    ("BatchPlan", "a constant of an enum"),
    ("BatchPlans", "compares the caller's numbers"),
    ("ZeroCost", "holds the caller's numbers"),
    ("FaultQuestion", "holds the caller's values"),
    ("fault", "pure functions of a question: every answer is sound"),
    ("clear::usual", "a pure function of an order"),
    ("format", "pure functions of a word or a level, which has to be one of the format's"),
    ("Word", "a cell of the caller's; those of the core are no caller's"),
    ("bytes", "cells of the caller's: `bytes/tests.rs` asks beyond their ends"),
    ("VmStat", "a report: counters by name"),
    ("Fragmentation", "a report"),
    ("LockKind", "compares two names"),
    ("Access", "one name to another"),
    ("Zeroing", "a constant of an enum"),
    ("ClearOrder", "a constant of an enum; its plan is called"),
    ("FolioOrders", "two numbers that `new` has checked"),
    ("AroundOrder", "a number that `new` has checked"),
    ("Orders", "a set of small numbers"),
    ("FaultLocking", "a constant of an enum"),
    ("HugetlbLocking", "a constant of an enum"),
    ("Advice", "numbers of Linux"),
    ("MapFlags", "numbers of Linux"),
    ("MlockFlags", "numbers of Linux"),
    ("MlockallFlags", "numbers of Linux"),
    ("MremapFlags", "numbers of Linux"),
    ("MsyncFlags", "numbers of Linux"),
    ("Prot", "numbers of Linux"),
    ("VmaFlags", "bits of a report"),
    ("AccessError", "the number of an error"),
    ("PinError", "the number of an error"),
    ("AddMemoryRefusal", "the counter of a refusal"),
    ("CollapseRefusal", "the name of a refusal"),
    ("CompactRefusal", "the counter of a refusal"),
    ("MigrateRefusal", "the counter of a refusal"),
    ("OfflineRefusal", "the counter of a refusal"),
    ("PoisonRefusal", "the counter of a refusal"),
    ("RemoveMemoryRefusal", "the counter of a refusal"),
    ("SwapRefusal", "the counter of a refusal"),
    ("TailDescsRefusal", "the counter of a refusal"),
];

/// A function: its file, line and name.
struct Function<'s> {
    source: &'s Source,
    line: usize,
    is_safe: bool,
}

/// Functions that no test calls, tests of functions that there are not, and exemptions that nothing needs.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut functions = BTreeMap::new();
    for root in CRATES {
        match Reader::read(sources, root) {
            Ok(found) => functions.extend(found),
            Err(breach) => breaches.push(breach),
        }
    }
    let tests: Vec<&Source> = sources.iter().filter(|s| s.is_rust() && s.path.starts_with(TESTS)).collect();
    let is_called = |name: &str| {
        let call = format!("{}(", name.rsplit("::").next().unwrap_or(name));
        tests.iter().any(|test| test.text.contains(&format!("\"{name}\"")) && test.text.contains(&call))
    };
    let exemption = |name: &str| {
        EXEMPT.iter().position(|(of, _)| name == *of || name.rsplit_once("::").is_some_and(|(ty, _)| ty == *of))
    };
    let mut needed = vec![false; EXEMPT.len()];
    for (name, function) in functions.iter().filter(|(_, function)| function.is_safe) {
        match exemption(name) {
            _ if is_called(name) => {}
            Some(at) => needed[at] = true,
            None => breaches.push(function.source.breach(
                function.line,
                format!("`{name}` is public: {TESTS} should call it, or xtask/src/lint/safe_calls.rs say why not"),
            )),
        }
    }
    for ((of, _), _) in EXEMPT.iter().zip(needed).filter(|(_, needed)| !needed) {
        breaches.push(Breach {
            place: TESTS.into(),
            what: format!("xtask/src/lint/safe_calls.rs names `{of}`: nothing needs that"),
        });
    }
    breaches
}

/// The names that users of a crate have.
struct Reader<'s> {
    sources: &'s [Source],
    root: &'s str,
    /// Types and traits.
    types: Vec<String>,
    functions: BTreeMap<String, Function<'s>>,
}

impl<'s> Reader<'s> {
    fn read(sources: &'s [Source], root: &'s str) -> Result<BTreeMap<String, Function<'s>>, Breach> {
        let mut reader = Reader { sources, root, types: Vec::new(), functions: BTreeMap::new() };
        reader.read_module("lib", true)?;
        let is_in = |s: &&Source| {
            s.is_rust()
                && !s.is_test()
                && s.path.starts_with(root)
                && !LEFT_OUT.iter().any(|out| s.path.starts_with(out))
        };
        for source in sources.iter().filter(is_in) {
            for item in &parse(source)?.items {
                reader.read_methods(source, item);
            }
        }
        Ok(reader.functions)
    }

    fn file(&self, module: &str) -> Option<&'s Source> {
        let paths = [format!("{}{module}.rs", self.root), format!("{}{module}/mod.rs", self.root)];
        self.sources.iter().find(|s| paths.contains(&s.path))
    }

    /// The public items of a module, and of the public modules in it.
    fn read_module(&mut self, module: &str, is_root: bool) -> Result<(), Breach> {
        let Some(source) = self.file(module).filter(|s| !LEFT_OUT.iter().any(|out| s.path.starts_with(out))) else {
            return Ok(());
        };
        for item in &parse(source)?.items {
            match item {
                Item::Use(item) if is_public(&item.vis) => names_of(&item.tree, &mut self.types),
                Item::Mod(item) if is_public(&item.vis) && item.content.is_none() && !is_for_tests(&item.attrs) => {
                    let inner = if is_root { item.ident.to_string() } else { format!("{module}/{}", item.ident) };
                    self.read_module(&inner, false)?;
                }
                Item::Struct(item) if is_public(&item.vis) => self.types.push(item.ident.to_string()),
                Item::Enum(item) if is_public(&item.vis) => self.types.push(item.ident.to_string()),
                Item::Trait(item) if is_public(&item.vis) => self.types.push(item.ident.to_string()),
                Item::Fn(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                    let of = module.rsplit('/').next().unwrap_or(module);
                    self.add(source, of, &item.sig);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, source: &'s Source, of: &str, signature: &syn::Signature) {
        let line = signature.ident.span().start().line;
        let function = Function { source, line, is_safe: !matches!(signature.safety, syn::Safety::Unsafe(_)) };
        self.functions.insert(format!("{of}::{}", signature.ident), function);
    }

    /// The public functions of a public type, or of a public trait.
    fn read_methods(&mut self, source: &'s Source, item: &Item) {
        match item {
            Item::Impl(item) if item.trait_.is_none() && !is_for_tests(&item.attrs) => {
                let Some(of) = type_name(&item.self_ty).filter(|of| self.types.contains(of)) else { return };
                for inner in &item.items {
                    if let ImplItem::Fn(function) = inner
                        && is_public(&function.vis)
                        && !is_for_tests(&function.attrs)
                    {
                        self.add(source, &of, &function.sig);
                    }
                }
            }
            Item::Trait(item) if self.types.contains(&item.ident.to_string()) => {
                for inner in &item.items {
                    if let TraitItem::Fn(function) = inner {
                        self.add(source, &item.ident.to_string(), &function.sig);
                    }
                }
            }
            _ => {}
        }
    }
}

fn parse(source: &Source) -> Result<syn::File, Breach> {
    syn::parse_file(&source.text)
        .map_err(|error| source.breach(error.span().start().line, format!("should be Rust: {error}")))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn names_of(tree: &syn::UseTree, names: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => names_of(&path.tree, names),
        syn::UseTree::Name(name) => names.push(name.ident.to_string()),
        syn::UseTree::Rename(name) => names.push(name.ident.to_string()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| names_of(tree, names)),
        _ => {}
    }
}

fn type_name(ty: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "pub use a::Handle;\npub mod names;\nmod a;\n";
    const A: &str = "pub struct Handle;\nimpl Handle {\n    pub fn read(&self) {}\n    fn own(&self) {}\n    pub unsafe fn raw(&self) {}\n}\nimpl Hidden {\n    pub fn all(&self) {}\n}\n";
    const NAMES: &str =
        "pub fn of(at: u64) -> u64 { at }\npub trait Port {\n    fn ask(&self);\n    unsafe fn store(&self);\n}\n";

    fn missing(tests: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let core = |name: &str, text: &str| source(&format!("{}{name}.rs", CRATES[0]), text);
        let sources = [
            core("lib", LIB),
            core("a", A),
            core("names", NAMES),
            source("crates/host/src/lib.rs", "//! Nothing.\n"),
            source(&format!("{TESTS}main.rs"), tests),
        ];
        let of_functions = |breach: Breach| breach.place.starts_with(CRATES[0]).then_some(breach.what);
        let name = |what: String| what.split('`').nth(1).unwrap_or_default().to_string();
        check(&sources).into_iter().filter_map(of_functions).map(name).collect()
    }

    #[test]
    fn a_function_that_no_test_calls_is_found() {
        assert_eq!(missing(""), ["Handle::read", "Port::ask", "names::of"]);
        let tests = "call(\"Handle::read\", || handle.read());\ncall(\"Port::ask\", || port.ask());\n";
        assert_eq!(missing(tests), ["names::of"]);
        assert_eq!(missing("call(\"Handle::read\", || {});\n").len(), 3, "it is named, and not called");
    }
}
