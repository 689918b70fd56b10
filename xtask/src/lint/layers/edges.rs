//! Which file names which other file, and by what.

use super::names::{Kind, Names, Target};
use std::collections::HashSet;

/// One file names something of another.
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub line: usize,
    /// Full path of what is named.
    pub what: String,
    pub how: How,
}

/// In which way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// `use`, or a path in code.
    Names,
    /// `pub use`: for others.
    ReExports,
    /// `use` of a module as such.
    Module,
    /// It is named through a re-export there.
    Through,
}

/// All of a crate, each item once for each file that names it.
pub fn edges(names: &Names) -> Vec<Edge> {
    let (mut edges, mut known) = (Vec::new(), HashSet::new());
    let mut add = |from: usize, line: usize, how: How, target: &Target| {
        let (Some(to), Some(what)) = (target.file(), path_of(target)) else { return };
        let through = target.through.iter().map(|&file| (file, How::Through));
        for (to, how) in through.chain([(to, how)]) {
            if to != from && known.insert((from, to, what.clone(), how)) {
                edges.push(Edge { from, to, line, what: what.clone(), how });
            }
        }
    };
    for (from, file) in names.files.iter().enumerate() {
        for (u, import) in file.facts.uses.iter().enumerate() {
            for target in names.imported(from, u) {
                let how = match target.kind {
                    _ if import.public => How::ReExports,
                    Kind::Module(..) => How::Module,
                    _ => How::Names,
                };
                add(from, import.line, how, &target);
            }
        }
        for named in &file.facts.named {
            let targets = names.named(named);
            // A module is named on the way to what is in it.
            for target in targets.iter().filter(|t| !matches!(t.kind, Kind::Module(..))) {
                add(from, named.line, How::Names, target);
            }
        }
    }
    edges
}

fn path_of(target: &Target) -> Option<String> {
    match &target.kind {
        Kind::Item(path, _) => Some(path.clone()),
        Kind::Module(module, _) if module.is_empty() => Some("crate".into()),
        Kind::Module(module, _) => Some(module.clone()),
        Kind::Outside | Kind::Unknown => None,
    }
}
