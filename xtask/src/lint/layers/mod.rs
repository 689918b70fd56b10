//! Checks which files may name which: layers of the core, and no circles of modules.
//!
//! Seen are, in every file that is not for tests alone:
//! - `use` in all its forms, and what is used through a re-export: it counts for
//!   the file that defines it, and the file that re-exports it counts, too;
//! - paths in code, in types and in the arguments of macros;
//! - `Type::function`, which counts for the file whose `impl` has the function;
//! - calls by name, `x.name(...)`; see `methods.rs`.
//!
//! Not seen are: calls through operators, `Deref` and `Drop` (so an implementation of
//! a foreign trait has to be in the layer of its type), what a higher layer passes
//! down on purpose (closures, function pointers, values behind a foreign trait such
//! as `Iterator`), items and methods whose names a macro puts together, and modules
//! that a macro declares.

mod cycles;
mod edges;
mod facts;
mod methods;
mod names;
mod reader;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod upward;

use super::{Breach, Source};
use names::Names;
use std::collections::BTreeMap;
use table::{CORE, KERNEL, Rules};
use upward::{Finding, Levels};

/// Crates without circles of modules.
const ACYCLIC: [&str; 2] = ["crates/host/src/", "crates/lab/src/"];

/// Whether the gate looks at the core, too; else `cargo xtask lint --layers` alone does.
const CORE_IS_CHECKED: bool = true;

/// The part of the gate. Reading the crates takes most of the time of all lints, so each has a thread.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    std::thread::scope(|scope| {
        let mut parts: Vec<_> =
            ACYCLIC.iter().map(|src| scope.spawn(move || or_breach(circles(sources, src), src))).collect();
        if CORE_IS_CHECKED {
            parts.push(scope.spawn(|| or_breach(core(sources), CORE.src)));
        }
        parts.push(scope.spawn(|| or_breach(kernel(sources, &KERNEL), KERNEL.src)));
        parts.into_iter().flat_map(|part| part.join().expect("a lint panicked")).collect()
    })
}

/// The core: its layers, and the circles within them.
fn core(sources: &[Source]) -> Result<Vec<Breach>, String> {
    let (findings, circles) = layers(sources, &CORE)?;
    Ok(findings.into_iter().map(|finding| finding.breach).chain(circles).collect())
}

/// The reference kernel: its port names nothing of its personality, and no files of either form a circle.
fn kernel(sources: &[Source], rules: &Rules) -> Result<Vec<Breach>, String> {
    let names = Names::read(sources, rules.src)?;
    let levels = Levels::new(&names, rules);
    let findings = upward::check(&names, &levels, rules).into_iter().map(|finding| finding.breach);
    let circles = cycles::check(&names, |from, to| levels.of(from) == levels.of(to));
    Ok(findings.chain(circles).collect())
}

/// Prints what breaks the layers of the core: each place, sorted by the two files that
/// it is about, the pairs with the most first; then the circles.
pub fn report(sources: &[Source]) -> Result<(), String> {
    let (findings, circles) = layers(sources, &CORE)?;
    let mut pairs: BTreeMap<&(String, String), Vec<&Breach>> = BTreeMap::new();
    for finding in &findings {
        pairs.entry(&finding.files).or_default().push(&finding.breach);
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|(_, breaches)| std::cmp::Reverse(breaches.len()));
    for ((from, to), breaches) in &pairs {
        println!("{} {from} -> {to}", breaches.len());
        breaches.iter().for_each(|b| println!("    {}: {}", b.place, b.what));
    }
    circles.iter().for_each(|b| println!("{}: {}", b.place, b.what));
    println!("{} places in {} pairs of files, {} circles in a layer", findings.len(), pairs.len(), circles.len());
    if findings.is_empty() && circles.is_empty() { Ok(()) } else { Err("the core breaks its layers".into()) }
}

/// The breaches of the layers of a crate, and the circles of files within a layer. Where
/// nothing breaks the layers there are no others.
fn layers(sources: &[Source], rules: &Rules) -> Result<(Vec<Finding>, Vec<Breach>), String> {
    let names = Names::read(sources, rules.src)?;
    let levels = Levels::new(&names, rules);
    let mut findings = upward::check(&names, &levels, rules);
    findings.sort_by(|a, b| a.breach.place.cmp(&b.breach.place));
    Ok((findings, cycles::check(&names, |from, to| levels.of(from) == levels.of(to))))
}

/// Circles among all files of a crate.
fn circles(sources: &[Source], src: &str) -> Result<Vec<Breach>, String> {
    Ok(cycles::check(&Names::read(sources, src)?, |_, _| true))
}

fn or_breach(found: Result<Vec<Breach>, String>, src: &str) -> Vec<Breach> {
    found.unwrap_or_else(|error| vec![Breach { place: src.into(), what: error }])
}
