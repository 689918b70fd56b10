//! The items of a crate by their paths, so that a mutant says what it changes and not where that is.
//!
//! A path is the end of the item's own: `Fault::attempt` is the method wherever the file lies, as long as the crate has
//! one such method. `fault::Fault::attempt` has the module, too, and `Visit::Drop::drop` the trait of a method. Items for
//! tests have no paths.

use crate::lint::is_for_tests;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function, a constant, a type, or a macro.
#[derive(Debug)]
pub struct Item {
    /// From the top of the checkout.
    pub file: String,
    /// Modules, the type of a method, the name.
    path: Vec<String>,
    /// The trait of a method.
    of_trait: Option<String>,
    /// The item's bytes in the file, with comments and attributes.
    pub range: Range<usize>,
}

/// The items of some files.
#[derive(Default)]
pub struct Items(Vec<Item>);

impl Items {
    /// Those of the crate in this folder of `crates`.
    pub fn of_crate(top: &Path, name: &str) -> Result<Items, String> {
        let mut items = Items::default();
        for file in sources(top, &format!("crates/{name}/src"))? {
            let text = std::fs::read_to_string(top.join(&file)).map_err(|e| format!("{file}: {e}"))?;
            items.add(&file, &text)?;
        }
        Ok(items)
    }

    /// Reads one more file.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        let tree = syn::parse_file(text).map_err(|e| format!("{file}: {e}"))?;
        if !is_for_tests(&tree.attrs) {
            let mut reader = Reader { items: self, file, path: modules(file), of_trait: None };
            reader.visit_file(&tree);
        }
        Ok(())
    }

    /// The one item whose path ends so.
    pub fn one(&self, path: &str) -> Result<&Item, String> {
        let name = path.rsplit("::").next();
        let of_name = self.0.iter().filter(|item| item.path.last().map(String::as_str) == name);
        let found: Vec<&Item> = of_name.filter(|item| item.ends_with(path)).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("`{path}` is no item")),
            _ => {
                let all: Vec<String> = found.iter().map(|item| item.full()).collect();
                Err(format!("`{path}` is one of {}", all.join(", ")))
            }
        }
    }

    /// The innermost item with these bytes of a file.
    pub fn around(&self, file: &str, bytes: &Range<usize>) -> Option<&Item> {
        let has = |item: &&Item| item.file == file && item.range.start <= bytes.start && bytes.end <= item.range.end;
        self.0.iter().filter(has).min_by_key(|item| item.range.len())
    }

    /// The shortest path that names this item alone; the whole path if others have the same.
    pub fn name(&self, item: &Item) -> String {
        let short = (item.nr_own()..=item.path.len()).map(|nr| item.path[item.path.len() - nr..].join("::"));
        short.chain([item.full()]).find(|path| self.one(path).is_ok()).unwrap_or_else(|| item.full())
    }
}

impl Item {
    /// How many parts say something without the modules: a method has its type.
    fn nr_own(&self) -> usize {
        let is_type = |part: &String| part.starts_with(char::is_uppercase);
        if self.path.len() > 1 && is_type(&self.path[self.path.len() - 2]) { 2 } else { 1 }
    }

    /// The path, with the trait before the name.
    fn full(&self) -> String {
        let mut parts = self.path.clone();
        parts.splice(parts.len() - 1..parts.len() - 1, self.of_trait.clone());
        parts.join("::")
    }

    fn ends_with(&self, path: &str) -> bool {
        let ends = |own: &str| own == path || own.strip_suffix(path).is_some_and(|rest| rest.ends_with("::"));
        ends(&self.path.join("::")) || ends(&self.full())
    }
}

/// The Rust files below a folder, but for those of tests.
pub fn sources(top: &Path, folder: &str) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(top.join(folder)).map_err(|e| format!("{folder}: {e}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| format!("{folder}: {e}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() && name != "tests" {
            files.extend(sources(top, &path)?);
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The module of a file: `fault::empty` of `crates/softfault/src/fault/empty.rs`.
fn modules(file: &str) -> Vec<String> {
    let within = file.split_once("/src/").map_or(file, |(_, within)| within).trim_end_matches(".rs");
    let parts = within.split('/').filter(|part| !["mod", "lib", "main"].contains(part));
    parts.map(String::from).collect()
}

struct Reader<'a> {
    items: &'a mut Items,
    file: &'a str,
    path: Vec<String>,
    of_trait: Option<String>,
}

impl Reader<'_> {
    fn add(&mut self, name: &syn::Ident, of: &impl Spanned) {
        let path = self.path.iter().cloned().chain([name.to_string()]).collect();
        let (file, of_trait) = (self.file.into(), self.of_trait.clone());
        self.items.0.push(Item { file, path, of_trait, range: of.span().byte_range() });
    }

    /// Reads what is within something of that name.
    fn within(&mut self, name: String, of_trait: Option<String>, read: impl FnOnce(&mut Self)) {
        self.path.push(name);
        let outer = std::mem::replace(&mut self.of_trait, of_trait);
        read(self);
        self.of_trait = outer;
        self.path.pop();
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Const, Enum, Fn, Impl, Macro, Mod, Static, Struct, Trait};
        match item {
            Const(i) => self.add(&i.ident, i),
            Static(i) => self.add(&i.ident, i),
            Enum(i) => self.add(&i.ident, i),
            Struct(i) => self.add(&i.ident, i),
            Macro(i) => i.ident.iter().for_each(|name| self.add(name, i)),
            Fn(i) if !is_for_tests(&i.attrs) => self.add(&i.sig.ident, i),
            Mod(i) if !is_for_tests(&i.attrs) => {
                self.within(i.ident.to_string(), None, |reader| visit::visit_item_mod(reader, i));
            }
            Trait(i) => self.within(i.ident.to_string(), None, |reader| visit::visit_item_trait(reader, i)),
            Impl(i) if !is_for_tests(&i.attrs) => {
                let of_trait = i.trait_.as_ref().and_then(|(path, _)| Some(path.segments.last()?.ident.to_string()));
                self.within(type_name(&i.self_ty), of_trait, |reader| visit::visit_item_impl(reader, i));
            }
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(i) if !is_for_tests(&i.attrs) => self.add(&i.sig.ident, i),
            syn::ImplItem::Const(i) => self.add(&i.ident, i),
            _ => {}
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        match item {
            syn::TraitItem::Fn(i) => self.add(&i.sig.ident, i),
            syn::TraitItem::Const(i) => self.add(&i.ident, i),
            _ => {}
        }
    }
}

/// The last part of a type's name; of a type without one, its text.
fn type_name(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map_or(String::new(), |s| s.ident.to_string()),
        syn::Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
const MOST: u64 = 3;
impl Fault<'_> {
    /// Tries once.
    fn attempt(&self) { look(); }
    fn end(&self) {}
}
impl Drop for Fault<'_> {
    fn drop(&mut self) {}
}
fn end() {}
#[cfg(test)]
mod tests {
    fn attempt() {}
}
";

    fn items() -> Items {
        let mut items = Items::default();
        items.add("crates/softfault/src/fault/mod.rs", TEXT).unwrap();
        items
    }

    #[test]
    fn the_end_of_a_path_is_enough() {
        let items = items();
        let text = |path: &str| items.one(path).map(|item| &TEXT[item.range.clone()]);
        assert_eq!(text("Fault::attempt").unwrap(), "/// Tries once.\n    fn attempt(&self) { look(); }");
        assert_eq!(text("attempt"), text("fault::Fault::attempt"));
        assert_eq!(text("MOST").unwrap(), "const MOST: u64 = 3;");
        assert_eq!(text("Fault::Drop::drop"), text("Fault::drop"));
        assert_eq!(text("tempt").unwrap_err(), "`tempt` is no item");
        assert_eq!(text("end").unwrap_err(), "`end` is one of fault::Fault::end, fault::end");
    }

    #[test]
    fn a_name_is_as_short_as_it_can_be() {
        let items = items();
        let at = TEXT.find("look").unwrap();
        let around = items.around("crates/softfault/src/fault/mod.rs", &(at..at + 4)).unwrap();
        assert_eq!(items.name(around), "Fault::attempt");
        assert_eq!(items.name(items.one("fault::end").unwrap()), "fault::end");
        assert!(items.around("crates/softfault/src/fault/mod.rs", &(0..TEXT.len())).is_none());
    }
}
