//! The project's own lints, one file each.
//!
//! A lint reads the project's files and returns the places that break its rule. Most lints
//! search text; `flags` and `layers` read the syntax tree.

mod cases;
mod clock;
mod commands;
mod flags;
mod growth;
mod kernel;
mod late;
mod layers;
mod paths;
mod prose;
mod repeats;
mod safe_calls;
mod shape;
mod sync;
mod unsafety;

use crate::shell;

/// A file of the project.
#[derive(Clone)]
pub struct Source {
    /// From the top of the checkout, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A place that breaks a rule.
#[derive(PartialEq, Eq, Debug)]
pub struct Breach {
    /// `path:line`.
    pub place: String,
    /// The finding, and what it should be.
    pub what: String,
}

impl Source {
    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
    /// Whether it is only there for tests.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
    }
    /// Lines with their numbers, without `//` comments and without what follows
    /// `#[cfg(test)]` on an inline module (which our files have at their end).
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let inline = |i: usize| lines[i].trim() == "#[cfg(test)]" && lines.get(i + 1).is_some_and(|l| is_inline_mod(l));
        let end = (0..lines.len()).find(|&i| inline(i)).unwrap_or(lines.len());
        lines.into_iter().take(end).enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
    }
    /// A breach at a line.
    pub fn breach(&self, line: usize, what: impl Into<String>) -> Breach {
        Breach { place: format!("{}:{line}", self.path), what: what.into() }
    }
}

/// `#[cfg(test)]`, and `#[cfg(all(test, ...))]`.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let condition = |a: &syn::Attribute| match &a.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().replace(' ', ""),
        _ => String::new(),
    };
    attributes.iter().map(condition).any(|c| c == "test" || c.starts_with("all(test,"))
}

fn is_inline_mod(line: &str) -> bool {
    line.trim().starts_with("mod ") && line.trim().ends_with('{')
}

/// The options of `cargo xtask lint`.
#[derive(clap::Args)]
pub struct Options {
    /// Instead: what breaks the layers of the core, counted by pairs of files
    #[arg(long)]
    layers: bool,
}

/// Runs what the options say.
pub fn run_with(options: &Options) -> Result<(), String> {
    if options.layers { layers::report(&sources()?) } else { run() }
}

/// Runs all rules and prints what breaks them.
pub fn run() -> Result<(), String> {
    let sources = sources()?;
    let rules = [
        sync::check,
        unsafety::check,
        kernel::check,
        paths::check,
        prose::check,
        repeats::check,
        safe_calls::check,
        shape::check,
        flags::check,
        growth::check,
        cases::check,
        clock::check,
        commands::check,
        layers::check,
        late::check,
    ];
    let breaches: Vec<Breach> = rules.iter().flat_map(|rule| rule(&sources)).collect();
    tell(&breaches)
}

fn tell(breaches: &[Breach]) -> Result<(), String> {
    for breach in breaches {
        println!("{}: {}", breach.place, breach.what);
    }
    if breaches.is_empty() { Ok(()) } else { Err(format!("{} places break a rule of the project", breaches.len())) }
}

fn sources() -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for path in shell::project_files()? {
        let bytes = std::fs::read(shell::top().join(&path)).map_err(|e| format!("{path}: {e}"))?;
        // A file that is no text has no rules.
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source { path, text });
        }
    }
    Ok(sources)
}
