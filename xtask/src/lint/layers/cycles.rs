//! No circles of modules.
//!
//! A file depends on another if it names something that the other defines, or
//! calls a method by a name that the other alone defines, for a type of a third.
//! Not counted are
//! - `mod` and `pub use`: a parent that declares its children and lifts their names
//!   does not depend on them, as long as its own code does not name them;
//! - what a child names of its parents' own files: that a folder's common types are
//!   in its `mod.rs`, which also calls into the folder, is how folders are built.
//!   A way from a child up to its parent and down to the child is no circle,
//!   then; one that leaves the folder and comes back to the parent is.

use super::edges::{Edge, How, edges};
use super::names::Names;
use crate::lint::Breach;
use std::collections::{HashMap, HashSet};

/// One breach for each circle of dependences, from a file to a file, that `counts` counts.
pub fn check(names: &Names, counts: impl Fn(usize, usize) -> bool) -> Vec<Breach> {
    let mut counted = edges(names);
    counted.extend(calls(names));
    counted.retain(|edge| matches!(edge.how, How::Names) && !is_child(names, edge.from, edge.to));
    counted.retain(|edge| counts(edge.from, edge.to));
    components(names.files.len(), &counted).iter().map(|circle| breach(names, &counted, circle)).collect()
}

/// Whether `to` is the file of a module around `from`.
fn is_child(names: &Names, from: usize, to: usize) -> bool {
    let (child, outer) = (&names.files[from].module, &names.files[to].module);
    outer.is_empty() || child.starts_with(&format!("{outer}::"))
}

/// Calls of methods that one file alone defines, and not the type's.
fn calls(names: &Names) -> Vec<Edge> {
    let mut by_name: HashMap<&str, HashSet<(usize, bool)>> = HashMap::new();
    for (file, read) in names.files.iter().enumerate() {
        for method in read.facts.methods.iter().filter(|m| m.has_receiver && m.of.is_none()) {
            let is_elsewhere = names.types(&method.module, &method.on).iter().any(|&(_, owner)| owner != file);
            by_name.entry(&method.name).or_default().insert((file, is_elsewhere));
        }
    }
    let mut edges = Vec::new();
    for (from, file) in names.files.iter().enumerate() {
        for call in &file.facts.calls {
            let Some(files) = by_name.get(call.name.as_str()).filter(|files| files.len() == 1) else { continue };
            for &(to, _) in files.iter().filter(|&&(to, is_elsewhere)| is_elsewhere && to != from) {
                edges.push(Edge { from, to, line: call.line, what: format!("{}()", call.name), how: How::Names });
            }
        }
    }
    edges
}

/// Strongly connected components of more than one file.
fn components(nr_files: usize, edges: &[Edge]) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); nr_files];
    edges.iter().for_each(|edge| next[edge.from].push(edge.to));
    let reached: Vec<HashSet<usize>> = (0..nr_files).map(|file| reach(file, &next)).collect();
    let mut components: Vec<Vec<usize>> = Vec::new();
    for file in 0..nr_files {
        if reached[file].contains(&file) && !components.iter().any(|c| c.contains(&file)) {
            components
                .push((0..nr_files).filter(|&o| reached[file].contains(&o) && reached[o].contains(&file)).collect());
        }
    }
    components
}

/// Files that can be reached in one step or more.
fn reach(from: usize, next: &[Vec<usize>]) -> HashSet<usize> {
    let (mut reached, mut open) = (HashSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(next[file].iter().filter(|&&to| reached.insert(to)));
    }
    reached
}

fn breach(names: &Names, edges: &[Edge], circle: &[usize]) -> Breach {
    let name = |file: usize| &names.files[file].name;
    let inside = edges.iter().filter(|e| circle.contains(&e.from) && circle.contains(&e.to));
    let mut known = HashSet::new();
    let steps: Vec<String> = inside
        .filter(|e| known.insert((e.from, e.to)))
        .map(|e| format!("\n    {}.rs:{} names `{}` of {}.rs", name(e.from), e.line, e.what, name(e.to)))
        .collect();
    let what = format!(
        "{} files in a circle: what both sides need should be in a file below them{}",
        circle.len(),
        steps.concat()
    );
    names.files[circle[0]].source.breach(1, what)
}
