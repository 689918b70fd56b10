//! From a path as written to the file that defines what it names.
//!
//! Paths go through imports, re-exports, globs and type aliases. Visibility is
//! not looked at: the compiler does that. A name in a module that no item has,
//! such as one that a macro defines, counts as defined in the module's own file.

use super::facts::{Facts, Named, Segments, Use, join};
use super::reader;
use crate::lint::Source;
use std::collections::HashMap;

/// Imports of imports of imports; more is a circle.
const DEPTH: usize = 12;
/// Crates that are there without a line that says so.
const ALWAYS: [&str; 3] = ["core", "std", "alloc"];

/// A file of the crate, tests excepted.
pub struct File<'a> {
    /// From the crate's `src/`, without `.rs`.
    pub name: String,
    pub source: &'a Source,
    pub facts: Facts,
    /// Its module.
    pub module: String,
}

/// All files of a crate.
pub struct Names<'a> {
    pub files: Vec<File<'a>>,
    /// File of each module.
    modules: HashMap<String, usize>,
    /// Module and name.
    items: HashMap<(String, String), Option<Segments>>,
    uses: HashMap<String, Vec<(usize, usize)>>,
    /// Files that define this function or constant of this type: `module::Type`, name.
    functions: HashMap<(String, String), Vec<usize>>,
}

/// Something that a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub kind: Kind,
    /// Files that re-export it on the way.
    pub through: Vec<usize>,
}

/// The kind of item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A module of the crate, named as such, and its file.
    Module(String, usize),
    /// An item by its full path, or a function of a type; the file.
    Item(String, usize),
    /// In another crate.
    Outside,
    /// A generic parameter, a local name or a name of the prelude.
    Unknown,
}

/// One way of looking a path up.
#[derive(Clone, Default)]
struct Way {
    depth: usize,
    through: Vec<usize>,
    /// The import under way, which does not find itself.
    not: Option<(usize, usize)>,
    imported: bool,
}

impl<'a> Names<'a> {
    /// Reads the files below `src`, a folder with `/` at its end.
    pub fn read(sources: &'a [Source], src: &str) -> Result<Names<'a>, String> {
        let mut files = Vec::new();
        for source in sources.iter().filter(|s| s.path.starts_with(src) && s.is_rust() && !s.is_test()) {
            let name = source.path[src.len()..].trim_end_matches(".rs").to_string();
            let module = module_of(&name);
            let facts = reader::read(&source.text, &module).map_err(|e| format!("{}: {e}", source.path))?;
            if let Some(line) = facts.moved.first() {
                return Err(format!("{}:{line}: a module should be in the file that has its name", source.path));
            }
            files.push(File { name, source, facts, module });
        }
        let tests: Vec<String> = files.iter().flat_map(|f| f.facts.test_modules.clone()).collect();
        let is_in = |module: &str, test: &String| module == test || module.starts_with(&format!("{test}::"));
        files.retain(|f| !tests.iter().any(|test| is_in(&f.module, test)));
        let mut names = Names {
            files,
            modules: HashMap::new(),
            items: HashMap::new(),
            uses: HashMap::new(),
            functions: HashMap::new(),
        };
        names.index();
        Ok(names)
    }

    fn index(&mut self) {
        for (f, file) in self.files.iter().enumerate() {
            self.modules.extend(file.facts.modules.iter().map(|module| (module.clone(), f)));
            for item in &file.facts.items {
                self.items.insert((item.module.clone(), item.name.clone()), item.alias.clone());
            }
            for (u, import) in file.facts.uses.iter().enumerate() {
                self.uses.entry(import.module.clone()).or_default().push((f, u));
            }
        }
        let mut functions: HashMap<_, Vec<usize>> = HashMap::new();
        for (f, file) in self.files.iter().enumerate() {
            for method in file.facts.methods.iter().filter(|m| !m.on.is_empty()) {
                for on in self.types(&method.module, &method.on) {
                    functions.entry((on.0, method.name.clone())).or_default().push(f);
                }
            }
        }
        self.functions = functions;
    }

    /// The types of the crate that a path names: full path, file.
    pub fn types(&self, module: &str, segments: &[String]) -> Vec<(String, usize)> {
        let found = self.resolve(module, segments);
        let item = |target: Target| if let Kind::Item(path, file) = target.kind { Some((path, file)) } else { None };
        let mut types: Vec<_> = found.into_iter().filter_map(item).collect();
        // An alias is found beside what it stands for, which comes last.
        types.drain(..types.len().saturating_sub(1));
        types
    }

    /// The item that a path in code names.
    pub fn named(&self, named: &Named) -> Vec<Target> {
        self.resolve(&named.module, &named.segments)
    }

    /// The item that an import names.
    pub fn imported(&self, file: usize, import: usize) -> Vec<Target> {
        let facts = &self.files[file].facts.uses[import];
        let way = Way { not: Some((file, import)), ..Way::default() };
        let mut found = Vec::new();
        self.first(&facts.module, &facts.segments, &way, &mut found);
        found
    }

    fn resolve(&self, module: &str, segments: &[String]) -> Vec<Target> {
        let mut found = Vec::new();
        self.first(module, segments, &Way::default(), &mut found);
        found
    }

    /// Looks the first segment up, which may be any name of the module.
    fn first(&self, module: &str, segments: &[String], way: &Way, found: &mut Vec<Target>) {
        let Some(first) = segments.first().filter(|_| way.depth < DEPTH) else { return };
        match first.as_str() {
            "crate" => self.below("", &segments[1..], way, found),
            "self" => self.below(module, &segments[1..], way, found),
            "super" => self.below(parent(module), &segments[1..], way, found),
            name if ALWAYS.contains(&name) => found.push(Target::new(Kind::Outside, way)),
            _ => {
                if !self.member(module, segments, way, found) {
                    let kind = if way.imported { Kind::Outside } else { Kind::Unknown };
                    found.push(Target::new(kind, way));
                }
            }
        }
    }

    /// Looks segments up that follow a module.
    fn below(&self, module: &str, segments: &[String], way: &Way, found: &mut Vec<Target>) {
        match segments.first().map(String::as_str) {
            None => {
                found.extend(self.modules.get(module).map(|&file| Target::new(Kind::Module(module.into(), file), way)))
            }
            Some("super") => self.below(parent(module), &segments[1..], way, found),
            Some("self") => self.below(module, &segments[1..], way, found),
            Some(name) => {
                if !self.member(module, segments, way, found) {
                    // A macro makes it, or it is in a file that is left out.
                    let file = self.modules.get(module);
                    found.extend(file.map(|&file| Target::new(Kind::Item(join(module, name), file), way)));
                }
            }
        }
    }

    /// Looks segments up among what the module defines and imports.
    fn member(&self, module: &str, segments: &[String], way: &Way, found: &mut Vec<Target>) -> bool {
        let (name, rest) = (&segments[0], &segments[1..]);
        let before = found.len();
        let child = join(module, name);
        if self.modules.contains_key(&child) {
            self.below(&child, rest, way, found);
        }
        if let Some(alias) = self.items.get(&(module.to_string(), name.clone()))
            && (rest.is_empty() || found.len() == before)
        {
            self.item(module, name, alias.as_ref(), rest, way, found);
        }
        if found.len() == before {
            self.through_imports(module, segments, way, found);
        }
        found.len() > before
    }

    fn item(
        &self,
        module: &str,
        name: &str,
        alias: Option<&Segments>,
        rest: &[String],
        way: &Way,
        found: &mut Vec<Target>,
    ) {
        let Some(&file) = self.modules.get(module) else { return };
        let path = join(module, name);
        found.push(Target::new(Kind::Item(path.clone(), file), way));
        if let Some(function) = rest.first() {
            for &file in self.functions.get(&(path.clone(), function.clone())).into_iter().flatten() {
                found.push(Target::new(Kind::Item(join(&path, function), file), way));
            }
        }
        if let Some(alias) = alias.filter(|alias| alias.first().is_some_and(|a| a != name)) {
            let segments: Segments = alias.iter().chain(rest).cloned().collect();
            self.first(module, &segments, &way.deeper(), found);
            found.retain(|target| target.kind != Kind::Unknown);
        }
    }

    fn through_imports(&self, module: &str, segments: &[String], way: &Way, found: &mut Vec<Target>) {
        let imports = self.uses.get(module).into_iter().flatten();
        let (globs, named): (Vec<_>, Vec<_>) =
            imports.filter(|&&u| Some(u) != way.not).partition(|&&u| self.import(u).name == "*");
        for &at in named.into_iter().filter(|&&u| self.import(u).name == segments[0]) {
            let path: Segments = self.import(at).segments.iter().chain(&segments[1..]).cloned().collect();
            self.first(module, &path, &way.via(at), found);
        }
        for &at in globs {
            let mut way = way.via(at);
            way.imported = false;
            let mut whole = Vec::new();
            self.first(module, &self.import(at).segments, &way, &mut whole);
            for target in whole {
                if let Kind::Module(whole, _) = target.kind
                    && whole != module
                    && way.depth < DEPTH
                {
                    self.member(&whole, segments, &way, found);
                }
            }
        }
    }

    fn import(&self, (file, import): (usize, usize)) -> &Use {
        &self.files[file].facts.uses[import]
    }
}

impl Target {
    fn new(kind: Kind, way: &Way) -> Target {
        Target { kind, through: way.through.clone() }
    }
    /// The file of what is named, if it is in the crate.
    pub fn file(&self) -> Option<usize> {
        match self.kind {
            Kind::Module(_, file) | Kind::Item(_, file) => Some(file),
            Kind::Outside | Kind::Unknown => None,
        }
    }
}

impl Way {
    fn deeper(&self) -> Way {
        Way { depth: self.depth + 1, not: None, ..self.clone() }
    }
    fn via(&self, import: (usize, usize)) -> Way {
        let mut way = Way { depth: self.depth + 1, not: Some(import), imported: true, ..self.clone() };
        way.through.push(import.0);
        way
    }
}

/// `frame/mod` and `frame` are the module `frame`; `lib` and `main` are the top.
pub fn module_of(name: &str) -> String {
    let name = name.strip_suffix("/mod").unwrap_or(name);
    if ["lib", "main"].contains(&name) { String::new() } else { name.replace('/', "::") }
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(outer, _)| outer)
}
