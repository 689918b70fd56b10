//! Calls by name: `x.name(...)` shows no path, so the name has to tell the layer.
//!
//! A method is *native* if its `impl` is in the layer of its type, and *added* if
//! it is in a layer above. A lower layer cannot call a native method of a higher
//! one: for that it needs a value of the type, and every way to get one (a
//! parameter, a field, a result) names the type, which is seen. A generic
//! parameter has the methods of its bounds alone. An added method is different:
//! any code that has a value of the lower type, and sees the method, can call it. So
//! - nobody below calls a method by the name of an added one that is visible there;
//!   not a method of `core` either, since the call looks the same;
//! - for the same reason no layer in which an added method of a higher one is
//!   visible has, or sees below it, another method of that name;
//! - a name that has only native methods may be in two layers (`len`, `new`, `get`);
//!   if it is only in layers above a call, the call is refused all the same (a call
//!   on `Vm` in a layer below it names nothing), unless the table says that `core`
//!   has the name, too.
//!
//! A trait counts as a type whose native methods it declares. An implementation in a
//! layer above the trait would be called from the trait's layer without a name: the
//! table has to call the trait open. A foreign trait is implemented in the layer of
//! the type or of an argument of the trait: operators and `Drop` call without a name.

use super::names::{Kind, Names};
use super::table::Rules;
use super::upward::{Finding, Levels, upward};
use crate::lint::Breach;
use std::collections::{HashMap, HashSet};

/// Where a method of some name is.
struct Definition {
    file: usize,
    line: usize,
    is_added: bool,
    /// Whether it can be called with a dot.
    has_receiver: bool,
    /// The module in which it is visible.
    seen_in: String,
}

impl Definition {
    fn is_seen_by(&self, names: &Names, file: usize) -> bool {
        let module = &names.files[file].module;
        self.seen_in.is_empty() || *module == self.seen_in || module.starts_with(&format!("{}::", self.seen_in))
    }
}

type Definitions<'a> = HashMap<&'a str, Vec<Definition>>;

/// All that is said above.
pub fn check(names: &Names, levels: &Levels, rules: &Rules) -> Vec<Finding> {
    let definitions = definitions(names, levels);
    let mut findings = in_two_layers(names, levels, &definitions);
    findings.extend(upward_calls(names, levels, rules, &definitions));
    findings.extend(traits(names, levels, rules));
    findings
}

fn definitions<'a>(names: &'a Names, levels: &Levels) -> Definitions<'a> {
    let mut definitions = Definitions::new();
    for (file, read) in names.files.iter().enumerate() {
        for method in &read.facts.methods {
            // A method of a trait is called through the trait.
            if method.of.is_some() {
                continue;
            }
            let owners = names.types(&method.module, &method.on);
            let is_added = owners.iter().any(|&(_, owner)| levels.of(file) > levels.of(owner));
            let (has_receiver, seen_in) = (method.has_receiver, method.seen_in.clone());
            let of_name = definitions.entry(method.name.as_str()).or_default();
            of_name.push(Definition { file, line: method.line, is_added, has_receiver, seen_in });
        }
    }
    definitions
}

fn in_two_layers(names: &Names, levels: &Levels, definitions: &Definitions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, of_name) in definitions {
        for added in of_name.iter().filter(|d| d.is_added && d.has_receiver) {
            let below = (0..names.files.len()).filter(|&f| levels.of(f) < levels.of(added.file));
            let callers: Vec<usize> = below.filter(|&f| added.is_seen_by(names, f)).collect();
            let can_be_meant = |other: &&Definition| {
                let caller = |&f: &usize| levels.of(other.file) <= levels.of(f) && other.is_seen_by(names, f);
                other.has_receiver && callers.iter().any(caller)
            };
            if let Some(other) = of_name.iter().find(can_be_meant) {
                let (here, there) = (levels.name(added.file), levels.name(other.file));
                let place = format!("{}.rs:{}", names.files[other.file].name, other.line);
                let what = format!(
                    "method `{name}` is in layer {here} here and in layer {there} in {place}: one should have another \
                     name, a call `x.{name}()` does not tell which it is"
                );
                findings.push(Finding::between(names, added.file, added.line, other.file, what));
            }
        }
    }
    findings
}

fn upward_calls(names: &Names, levels: &Levels, rules: &Rules, definitions: &Definitions) -> Vec<Finding> {
    let (mut findings, mut known, mut used) = (Vec::new(), HashSet::new(), HashSet::new());
    let is_facade = |name: &str| rules.facades.iter().any(|f| name.starts_with(f));
    for (from, file) in names.files.iter().enumerate() {
        let dots = file.facts.calls.iter().map(|call| (call.name.as_str(), call.line, true));
        // `T::name` of a generic parameter, or of a type that is not the crate's.
        let by_name =
            |n: &&super::facts::Named| n.segments.len() > 1 && names.named(n).iter().all(|t| t.kind == Kind::Unknown);
        let paths =
            file.facts.named.iter().filter(by_name).map(|n| (n.segments.last().unwrap().as_str(), n.line, false));
        for (name, line, with_dot) in dots.chain(paths) {
            let Some(of_name) = definitions.get(name) else { continue };
            let fitting = || of_name.iter().filter(|d| (d.has_receiver || !with_dot) && d.is_seen_by(names, from));
            if fitting().any(|d| levels.of(d.file) <= levels.of(from)) {
                continue;
            }
            let added = fitting().filter(|d| d.is_added).min_by_key(|d| levels.of(d.file));
            if is_facade(&file.name) || added.is_none() && rules.core_names.contains(&name) {
                used.insert(name);
                continue;
            }
            let to = added.or_else(|| fitting().min_by_key(|d| levels.of(d.file)));
            if let Some(to) = to.filter(|_| known.insert((from, line, name))) {
                let hint = if added.is_none() { " (or is it of `core`? then CORE_NAMES of table.rs)" } else { "" };
                let what = format!("calls method `{name}`{hint} of");
                findings.push(upward(names, levels, from, line, to.file, &what));
            }
        }
    }
    let unused = rules.core_names.iter().filter(|name| !used.contains(*name));
    let what = |name: &str| format!("`{name}`: no call needs it among the names of `core`");
    let stale = unused.map(|name| Breach { place: "xtask/src/lint/layers/table.rs".into(), what: what(name) });
    findings.extend(stale.map(Finding::alone));
    findings
}

/// Implementations of traits that are out of place.
fn traits(names: &Names, levels: &Levels, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, read) in names.files.iter().enumerate() {
        let level = levels.of(file);
        for item in &read.facts.impls {
            let of = |path: &[String]| names.types(&item.module, path).pop().map(|(_, file)| file);
            let is_open = item.of.last().is_some_and(|name| rules.open_traits.contains(&name.as_str()));
            let (whose, advice) = match of(&item.of) {
                // A trait of the crate.
                Some(_) if is_open => continue,
                Some(of) => (of, "should be in the trait's layer, or the trait in `open_traits` of table.rs"),
                None if item.arguments.iter().filter_map(|a| of(a)).any(|a| levels.of(a) == level) => continue,
                None => match of(&item.on) {
                    Some(on) => (on, "should be in the type's layer"),
                    None => continue,
                },
            };
            if levels.of(whose) < level {
                let (name, on) = (item.of.join("::"), item.on.join("::"));
                let (upper, lower) = (levels.name(file), levels.name(whose));
                let what = format!(
                    "implements `{name}` for `{on}` in layer {upper}, and {}.rs is in layer {lower} below it, where it \
                     can be called without a name: {advice}",
                    names.files[whose].name
                );
                findings.push(Finding::between(names, file, item.line, whose, what));
            }
        }
    }
    findings
}
