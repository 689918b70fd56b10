//! No file names what is in a layer above its own.

use super::edges::{How, edges};
use super::methods;
use super::names::{File, Names};
use super::table::Rules;
use crate::lint::Breach;

/// A breach, and the two files that it is about.
pub struct Finding {
    /// Both names; empty where it is about one file alone.
    pub files: (String, String),
    pub breach: Breach,
}

/// Layers of a crate's files.
pub struct Levels<'a> {
    rules: &'a Rules<'a>,
    of: Vec<usize>,
}

impl<'a> Levels<'a> {
    /// Of all files. One without a layer is taken to be in the highest.
    pub fn new(names: &Names, rules: &'a Rules) -> Levels<'a> {
        let of = |file: &File| level(&file.name, rules).unwrap_or(rules.layers.len() - 1);
        Levels { rules, of: names.files.iter().map(of).collect() }
    }
    /// A higher layer has a higher number.
    pub fn of(&self, file: usize) -> usize {
        self.of[file]
    }
    /// For messages.
    pub fn name(&self, file: usize) -> &str {
        self.rules.layers[self.of[file]].name
    }
}

/// Looks at a crate whose layers are written down.
pub fn check(names: &Names, levels: &Levels, rules: &Rules) -> Vec<Finding> {
    let mut findings: Vec<Finding> = stale_members(names, rules).into_iter().map(Finding::alone).collect();
    let without = names.files.iter().filter(|file| level(&file.name, rules).is_none());
    let lost = |file: &File| file.source.breach(1, "has no layer: should be in xtask/src/lint/layers/table.rs");
    findings.extend(without.map(|file| Finding::alone(lost(file))));
    for edge in edges(names).iter().filter(|e| levels.of(e.to) > levels.of(e.from)) {
        let verb = match edge.how {
            How::Names | How::Module => "names",
            How::ReExports => "re-exports",
            How::Through => "names, through the re-export there,",
        };
        let what = format!("{verb} `{}` of", edge.what);
        findings.push(upward(names, levels, edge.from, edge.line, edge.to, &what));
    }
    findings.extend(methods::check(names, levels, rules));
    findings
}

impl Finding {
    /// About one file.
    pub fn alone(breach: Breach) -> Finding {
        Finding { files: Default::default(), breach }
    }
    /// About two.
    pub fn between(names: &Names, from: usize, line: usize, to: usize, what: String) -> Finding {
        let files = (names.files[from].name.clone(), names.files[to].name.clone());
        Finding { files, breach: names.files[from].source.breach(line, what) }
    }
}

/// `what` says how `from` depends on `to`.
pub fn upward(names: &Names, levels: &Levels, from: usize, line: usize, to: usize, what: &str) -> Finding {
    let (lower, upper, whose) = (levels.name(from), levels.name(to), &names.files[to].name);
    let what = format!(
        "{what} {whose}.rs, layer {upper}, from layer {lower} below it: should be moved down, or be given by the \
         caller as an argument or a result"
    );
    Finding::between(names, from, line, to, what)
}

/// The layer of the longest entry that the file is in.
fn level(file: &str, rules: &Rules) -> Option<usize> {
    let fits = |member: &str| file.strip_prefix(member).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let entries = rules.layers.iter().enumerate().flat_map(|(i, layer)| layer.members.iter().map(move |m| (i, *m)));
    entries.filter(|(_, member)| fits(member)).max_by_key(|(_, member)| member.len()).map(|(i, _)| i)
}

/// Entries of the table that stand for no file.
fn stale_members(names: &Names, rules: &Rules) -> Vec<Breach> {
    let members = rules.layers.iter().flat_map(|layer| layer.members);
    let is_stale = |member: &&&str| {
        let fits = |name: &str| name.strip_prefix(**member).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        !names.files.iter().any(|f| fits(&f.name))
    };
    let place = || "xtask/src/lint/layers/table.rs".to_string();
    let stale = members.filter(is_stale);
    stale.map(|m| Breach { place: place(), what: format!("`{m}` is no file or folder of {}", rules.src) }).collect()
}
