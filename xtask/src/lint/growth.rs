//! Types that can grow: a public enum, or a struct with public fields, is
//! `#[non_exhaustive]`, or the table says why it never gets another variant or field.
//!
//! Every `pub` type counts, also in a module that is not public: what only the crate
//! needs says `pub(crate)`. A tuple struct of one field is a name for a number and is
//! left out, and so is what only builds for tests have. Of a macro, an enum is looked
//! at: its tokens have to say `non_exhaustive`.

use super::{Breach, Source, is_for_tests};

/// A library whose users match and make values.
struct Library {
    /// The folder of its sources, with `/` at its end.
    src: &'static str,
    /// Its types that are closed, and why.
    closed: &'static [(&'static str, &'static str)],
    /// Facades that only builds for tests have.
    left_out: &'static [&'static str],
}

const LIBRARIES: [Library; 2] = [
    Library {
        src: "crates/softfault/src/",
        closed: &[
            ("Access", "the kinds of access that hardware reports; a port makes it for each fault"),
            ("PageRange", "a range is two ends"),
            ("FrameRange", "a range is a beginning and a length"),
            ("SpaceTag", "what a base register is loaded with; machines keep it as a key"),
            ("Mapping", "a place is a space and a page"),
            ("Entry", "a format has to say how each state is encoded"),
            ("Leaf", "a format has to encode each field"),
            ("Kept", "a format has to keep each kind in a Busy word"),
            ("Step", "a walk of the hardware faults, goes on or ends"),
        ],
        left_out: &["sync/modelled.rs", "sync/recording.rs", "sync/shuffled.rs", "testing.rs"],
    },
    Library {
        src: "crates/host/src/",
        closed: &[("PageFault", "what hardware says of a fault: an address and an access")],
        left_out: &[],
    },
];

/// Types that are neither open nor in the table, and lines of the table without a type.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    LIBRARIES.iter().flat_map(|library| check_library(sources, library)).collect()
}

fn check_library(sources: &[Source], library: &Library) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| is_in(source, library)) {
        match syn::parse_file(&source.text) {
            Ok(file) => file.items.iter().for_each(|item| read(item, &mut |ty| found.push((source, ty)))),
            Err(error) => breaches.push(source.breach(1, error.to_string())),
        }
    }
    let why = |name: &str| library.closed.iter().find(|(closed, _)| *closed == name);
    for (source, ty) in &found {
        let name = &ty.name;
        let what = match (ty.is_open, why(name)) {
            (false, None) => format!("`{name}` should be `#[non_exhaustive]`, or xtask/src/lint/growth.rs say why not"),
            (true, Some(_)) => format!("`{name}` is `#[non_exhaustive]`: xtask/src/lint/growth.rs should not name it"),
            _ => continue,
        };
        breaches.push(source.breach(ty.line, what));
    }
    for (name, _) in library.closed.iter().filter(|(name, _)| found.iter().all(|(_, ty)| ty.name != *name)) {
        breaches.push(Breach {
            place: library.src.into(),
            what: format!("xtask/src/lint/growth.rs names `{name}`, which is no public type"),
        });
    }
    breaches
}

fn is_in(source: &Source, library: &Library) -> bool {
    let path = source.path.strip_prefix(library.src);
    path.is_some_and(|path| source.is_rust() && !source.is_test() && !library.left_out.contains(&path))
}

/// A type that users can match or make.
struct Type {
    name: String,
    line: usize,
    is_open: bool,
}

fn read(item: &syn::Item, found: &mut dyn FnMut(Type)) {
    match item {
        syn::Item::Enum(item) if is_public(&item.vis) => found(of(&item.ident, &item.attrs)),
        syn::Item::Struct(item) if is_public(&item.vis) && can_be_made(&item.fields) => {
            found(of(&item.ident, &item.attrs));
        }
        syn::Item::Mod(item) if !is_for_tests(&item.attrs) => {
            item.content.iter().flat_map(|(_, items)| items).for_each(|item| read(item, found));
        }
        syn::Item::Macro(item) => {
            let tokens = item.mac.tokens.to_string();
            if let Some((_, rest)) = tokens.split_once("pub enum ") {
                let name = rest.split(['{', '<']).next().unwrap_or_default().trim().into();
                found(Type {
                    name,
                    line: item.mac.delimiter.span().open().start().line,
                    is_open: tokens.contains("non_exhaustive"),
                });
            }
        }
        _ => {}
    }
}

fn of(name: &syn::Ident, attributes: &[syn::Attribute]) -> Type {
    let is_open = attributes.iter().any(|a| a.path().is_ident("non_exhaustive"));
    Type { name: name.to_string(), line: name.span().start().line, is_open }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// Whether it has public fields, and is more than a name for a number.
fn can_be_made(fields: &syn::Fields) -> bool {
    let is_newtype = matches!(fields, syn::Fields::Unnamed(fields) if fields.unnamed.len() == 1);
    !is_newtype && fields.iter().any(|field| is_public(&field.vis))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: Library =
        Library { src: "a/src/", closed: &[("Closed", "it is"), ("Range", "two ends")], left_out: &["facade.rs"] };
    /// The items that the table names.
    const BASE: &str = "pub enum Closed { A }\npub struct Range { pub start: u8, pub end: u8 }\n";

    fn breaches(path: &str, text: &str) -> Vec<Breach> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        check_library(&[source("a/src/base.rs", BASE), source(path, text)], &LIBRARY)
    }

    fn places(text: &str) -> Vec<String> {
        breaches("a/src/b.rs", text).into_iter().map(|b| b.place).collect()
    }

    #[test]
    fn what_can_be_matched_or_made_is_open_or_says_why_not() {
        assert_eq!(places("\npub enum New { A }\n"), ["a/src/b.rs:2"]);
        assert_eq!(places("pub struct New { pub a: u8, b: u8 }\n"), ["a/src/b.rs:1"]);
        assert_eq!(places("pub struct Pair(pub u8, pub u8);\n"), ["a/src/b.rs:1"]);
        assert_eq!(places("pub mod inner { pub enum New { A } }\n"), ["a/src/b.rs:1"]);
        assert_eq!(
            places("#[cfg(any(test, feature = \"hooks\"))]\nmod inner { pub enum New { A } }\n"),
            ["a/src/b.rs:2"]
        );
        assert_eq!(places("macro_rules! m { () => { pub enum New { A } } }\n"), ["a/src/b.rs:1"]);
    }

    #[test]
    fn open_types_and_those_that_nobody_outside_makes_are_fine() {
        for text in [
            "#[derive(Clone)]\n#[non_exhaustive]\npub enum New { A }\n",
            "#[non_exhaustive]\npub struct New { pub a: u8 }\n",
            "macro_rules! m { () => { #[non_exhaustive] pub enum New { A } } }\n",
            "pub struct New { a: u8, pub(crate) b: u8 }\n",
            "pub struct Number(pub u64);\npub struct Name;\n",
            "pub(crate) enum New { A }\nenum Own { A }\n",
            "#[cfg(test)]\nmod tests { pub enum New { A } }\n",
        ] {
            assert_eq!(places(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn other_files_are_left_out() {
        let text = "pub enum New { A }\n";
        for path in ["b/src/b.rs", "a/src/b_tests.rs", "a/src/facade.rs", "a/src/b.md"] {
            assert_eq!(breaches(path, text), [], "{path}");
        }
    }

    #[test]
    fn the_table_names_types_that_are_there_and_closed() {
        let gone =
            check_library(&[Source { path: "a/src/b.rs".into(), text: BASE.replace("Range", "Other") }], &LIBRARY);
        let whats: Vec<&str> = gone.iter().map(|b| b.what.as_str()).collect();
        assert!(whats[0].starts_with("`Other` should be"), "{whats:?}");
        assert!(whats[1].contains("names `Range`, which is no public type"), "{whats:?}");
        let open = BASE.replace("pub enum", "#[non_exhaustive]\npub enum");
        let opened = check_library(&[Source { path: "a/src/b.rs".into(), text: open }], &LIBRARY);
        assert_eq!(opened.len(), 1, "{opened:?}");
        assert!(opened[0].what.contains("should not name it"), "{opened:?}");
    }
}
