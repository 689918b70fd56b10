//! Each way up is planted in a small crate of three layers, and has to be found.

use super::table::{KERNEL, Layer, Rules};
use super::{circles, layers};
use crate::lint::{Breach, Source};

const RULES: Rules<'static> = Rules {
    src: "src/",
    layers: &[
        Layer { name: "low", members: &["low", "high/value"] },
        Layer { name: "mid", members: &["mid"] },
        Layer { name: "high", members: &["high", "lib"] },
    ],
    open_traits: &["Open"],
    core_names: &[],
    facades: &["low/facade"],
};

/// The files of every planted crate.
const LOW: &str = "pub struct Low;\nimpl Low {\n    pub fn get(&self) {}\n}\npub trait Port {\n    fn ask(&self);\n    fn answer();\n}\npub trait Open {\n    fn told(&self);\n}\n";
const HIGH: &str = "use crate::low::Low;\npub struct High;\nimpl High {\n    pub fn get(&self) {}\n}\nimpl Low {\n    pub fn climb(&self) {}\n    pub fn make() {}\n    pub const TOP: u8 = 0;\n    fn own(&self) {}\n}\npub trait Up {\n    fn up(&self);\n}\nimpl Up for Low {\n    fn up(&self) {}\n}\npub fn work() {}\n";
const LIB: &str = "mod high;\nmod low;\nmod mid;\npub use high::High;\npub use low::Low;\n";

fn sources(more: &[(&str, &str)]) -> Vec<Source> {
    let mut files = vec![("low/mod", LOW), ("high/mod", HIGH), ("high/value", ""), ("mid", ""), ("lib", LIB)];
    for &(name, text) in more {
        files.retain(|(known, _)| *known != name);
        files.push((name, text));
    }
    files.iter().map(|(name, text)| Source { path: format!("src/{name}.rs"), text: (*text).into() }).collect()
}

fn breaches(more: &[(&str, &str)]) -> Vec<Breach> {
    layers(&sources(more), &RULES).unwrap().0.into_iter().map(|finding| finding.breach).collect()
}

/// Places in `low/a.rs`, which has this text, and what is said of them.
fn in_low(text: &str) -> Vec<Breach> {
    breaches(&[("low/a", text)])
}

fn places(breaches: &[Breach]) -> Vec<&str> {
    breaches.iter().map(|b| b.place.as_str()).collect()
}

#[test]
fn a_clean_crate_passes() {
    let mid = "use crate::low::{self, Low, Open};\nuse super::low::Port as P;\npub struct Mid;\nimpl Mid {\n    pub fn get(&self, low: &Low) { low.get(); low::helper(); }\n}\nimpl Open for Mid {\n    fn told(&self) {}\n}\nfn ask<T: P>(x: &T) { x.ask(); T::answer() }\n#[cfg(test)]\nmod tests {\n    use crate::high::High;\n}\n#[cfg(all(test, debug_assertions))]\nfn test(x: &crate::Low) { x.climb() }\n";
    let found =
        breaches(&[("mid", mid), ("low/tests", "use crate::high::High;\n"), ("low/a_tests", "use crate::High;\n")]);
    assert_eq!(found, []);
}

#[test]
fn an_upward_use_in_every_form() {
    for line in [
        "use crate::high::High;",
        "use crate::{low::Low, high::{self, High}};",
        "use crate::high::High as Other;",
        "use crate::high::*;",
        "use super::super::high::High;",
        "use crate::low::super::high::High;",
        "pub(crate) use crate::high::work;",
        "fn inner() { use crate::high::High; }",
        "mod inline { use super::super::super::high::High; }",
        "use crate::high;",
    ] {
        let found = in_low(&format!("//! Low.\n{line}\n"));
        assert!(
            !found.is_empty() && places(&found).iter().all(|place| *place == "src/low/a.rs:2"),
            "{line}: {found:?}"
        );
    }
    assert_eq!(places(&breaches(&[("mid", "use crate::high::High;\n")])), ["src/mid.rs:1"]);
    let what = &in_low("use crate::high::High;\n")[0].what;
    assert!(what.starts_with("names `high::High` of high/mod.rs, layer high, from layer low below it"), "{what}");
    assert!(what.contains("should be moved down, or be given by the caller"), "{what}");
}

#[test]
fn an_upward_path_in_code_types_and_macros() {
    for line in [
        "fn f() { crate::high::work() }",
        "fn f(x: &crate::high::High) {}",
        "fn f() -> Option<crate::high::High> { None }",
        "struct S<T: crate::high::Up>(T);",
        "impl crate::high::Up for S {}",
        "fn f() { assert!(matches!(0, x if x == crate::high::work())) }",
        "macro_rules! m { () => { $crate::high::work() } }",
        "macro_rules! m { () => { use crate::{low::Low, high::work}; } }",
        "fn f(x: &S) { <S as crate::high::Up>::up(x) }",
        "type H = crate::high::High;",
        "fn f() { super::super::high::made_by_a_macro!() }",
    ] {
        assert_eq!(places(&in_low(&format!("{line}\n")))[0], "src/low/a.rs:1", "{line}");
    }
}

#[test]
fn what_is_lower_may_be_in_a_folder_of_a_higher_layer() {
    assert_eq!(in_low("use crate::high::value::Number;\n"), []);
}

#[test]
fn an_upward_re_export_and_what_comes_through_one() {
    let found = in_low("pub use crate::high::High;\n");
    assert!(found[0].what.starts_with("re-exports `high::High` of high/mod.rs"), "{found:?}");
    // Through the crate's top, where both are named.
    assert_eq!(places(&in_low("use crate::High;\n"))[0], "src/low/a.rs:1");
    assert_eq!(places(&in_low("fn f(x: crate::High) {}\n"))[0], "src/low/a.rs:1");
    // A lower module that lifts it is refused, and so is who uses it from there.
    let found = breaches(&[("low/b", "pub use crate::high::High as H;\n"), ("low/a", "use super::b::H;\n")]);
    assert_eq!(places(&found), ["src/low/a.rs:1", "src/low/b.rs:1"]);
    let found = breaches(&[("low/b", "pub use crate::high::*;\n"), ("low/a", "use super::b::*;\nfn f() { work() }\n")]);
    assert!(places(&found).contains(&"src/low/a.rs:2"), "{found:?}");
    // A low item has to be named where it is.
    let found = breaches(&[("high/b", "pub use crate::low::Low;\n"), ("low/a", "use crate::high::b::Low;\n")]);
    assert!(found[0].what.contains("through the re-export there"), "{found:?}");
}

#[test]
fn an_upward_call_of_a_method() {
    for line in [
        "fn f(x: &super::Low) { x.climb() }",
        "fn f(x: &super::Low) { super::Low::climb(x) }",
        "fn f() { super::Low::make() }",
        "fn f() { assert!(x.climb()) }",
        "fn f() { g(crate::low::Low::climb) }",
        "type Other = super::Low;\nfn f() { Other::make() }",
        "impl super::Low { fn f(&self) { Self::make() } }",
        "fn f() { <super::Low>::make() }",
        "const X: u8 = super::Low::TOP;",
    ] {
        let found = in_low(&format!("{line}\n"));
        assert!(found.iter().all(|b| b.place.starts_with("src/low/a.rs")) && found.len() == 1, "{line}: {found:?}");
        assert!(found[0].what.contains("layer high, from layer low below it: should be"), "{found:?}");
    }
    // Seen by nobody below.
    assert_eq!(in_low("fn f(x: &X) { x.own() }\n"), []);
    // A type above has it alone: a caller has such a value without naming its type.
    let mid = "pub struct Mid;\nimpl Mid {\n    pub fn rare(&self) {}\n}\n";
    let found = breaches(&[("mid", mid), ("low/a", "fn f() { x.rare() }\n"), ("low/facade", "fn f() { x.rare() }\n")]);
    assert_eq!(places(&found), ["src/low/a.rs:1"]);
    assert!(found[0].what.contains("`rare` (or is it of `core`?"), "{found:?}");
    let made = "macro_rules! make { ($on:ty) => { impl $on { pub fn rare(&mut self, x: u8) {} } } }\n";
    assert_eq!(places(&breaches(&[("mid", made), ("low/a", "fn f() { x.rare() }\n")])), ["src/low/a.rs:1"]);
}

#[test]
fn an_upward_call_through_a_trait() {
    let found = in_low("use crate::high::Up;\nfn f(x: &super::Low) { x.up() }\n");
    assert_eq!(places(&found), ["src/low/a.rs:1", "src/low/a.rs:2"]);
    assert_eq!(places(&in_low("fn f(x: &super::Low) { crate::high::Up::up(x) }\n"))[0], "src/low/a.rs:1");
    // A trait of the lower layer that only the higher one implements, for any type.
    let implemented =
        "use crate::low::Port;\nimpl Port for crate::low::Low {\n    fn ask(&self) {}\n    fn answer() {}\n}\n";
    for text in [implemented, &implemented.replace("crate::low::Low", "super::High")] {
        let found = breaches(&[("high/b", text), ("low/a", "fn f(x: &super::Low) { x.ask() }\n")]);
        assert_eq!(places(&found), ["src/high/b.rs:2"]);
        assert!(found[0].what.contains("layer high, and low/mod.rs is in layer low below it"), "{found:?}");
        assert!(found[0].what.contains("should be in the trait's layer"), "{found:?}");
    }
    let open = "use crate::low::{Low, Open};\nimpl Open for Low {\n    fn told(&self) {}\n}\n";
    assert_eq!(breaches(&[("high/b", open), ("low/a", "fn f(x: &super::Low) { x.told() }\n")]), []);
}

#[test]
fn a_method_name_in_two_layers() {
    let added = "use crate::low::Low;\nimpl Low {\n    pub fn get(&self) {}\n}\n";
    let found = breaches(&[("high/b", added)]);
    assert_eq!(places(&found), ["src/high/b.rs:3"]);
    assert!(found[0].what.contains("`get` is in layer high here and in layer low in low/mod.rs:3"), "{found:?}");
    assert!(found[0].what.contains("one should have another name"), "{found:?}");
    let private = added.replace("pub fn", "fn");
    assert_eq!(breaches(&[("high/b", &private)]), []);
}

#[test]
fn a_foreign_trait_has_to_be_in_the_layer_of_its_type() {
    let found = breaches(&[("high/b", "impl Drop for crate::low::Low {\n    fn drop(&mut self) {}\n}\n")]);
    assert_eq!(places(&found), ["src/high/b.rs:1"]);
    let from = "use super::High;\nimpl From<High> for crate::low::Low {\n    fn from(_: High) -> Self {}\n}\n";
    assert_eq!(breaches(&[("high/b", from)]), []);
    let lower = "use crate::low::Low;\nimpl PartialEq<Low> for Low {\n    fn eq(&self, _: &Low) -> bool {}\n}\n";
    assert_eq!(places(&breaches(&[("high/b", lower)])), ["src/high/b.rs:2"]);
}

#[test]
fn a_file_without_a_layer_and_a_layer_without_a_file() {
    let found = breaches(&[("elsewhere", "//! Lost.\n")]);
    assert_eq!((places(&found), found.len()), (vec!["src/elsewhere.rs:1"], 1));
    let rules = Rules { layers: &[Layer { name: "all", members: &["low", "high", "mid", "lib", "gone"] }], ..RULES };
    let found = layers(&sources(&[]), &rules).unwrap().0;
    assert!(found.len() == 1 && found[0].breach.what.starts_with("`gone`"));
    assert!(layers(&sources(&[("low/a", "fn {")]), &RULES).is_err());
    assert!(layers(&sources(&[("low/a", "#[path = \"b.rs\"]\nmod c;\n")]), &RULES).is_err());
    let shared = "#[path = \"../../other/src/b.rs\"]\nmod c;\n";
    assert_eq!(in_low(shared), []);
    let for_tests = "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n";
    assert!(layers(&sources(&[("low/a", for_tests)]), &RULES).is_ok());
}

#[test]
fn a_name_of_core_that_no_call_needs_leaves_the_table() {
    let rules = Rules { core_names: &["rare"], ..RULES };
    let mid = ("mid", "pub struct Mid;\nimpl Mid {\n    pub fn rare(&self) {}\n}\n");
    assert_eq!(layers(&sources(&[mid, ("low/a", "fn f() { x.rare() }\n")]), &rules).unwrap().0.len(), 0);
    assert_eq!(layers(&sources(&[mid]), &rules).unwrap().0.len(), 1);
}

/// Circles among files of these texts.
fn circles_of(files: &[(&str, &str)]) -> usize {
    let source = |(name, text): &(&str, &str)| Source { path: format!("src/{name}.rs"), text: (*text).into() };
    circles(&files.iter().map(source).collect::<Vec<_>>(), "src/").unwrap().len()
}

#[test]
fn a_circle_of_two_files_and_of_three() {
    let one = ("a", "use crate::b::B;\npub struct A;\n");
    assert_eq!(circles_of(&[one, ("b", "pub struct B;\n")]), 0);
    assert_eq!(circles_of(&[one, ("b", "pub struct B(crate::a::A);\n")]), 1);
    assert_eq!(
        circles_of(&[one, ("b", "use crate::c::C;\npub struct B;\n"), ("c", "pub struct C(crate::a::A);\n")]),
        1
    );
    // A method that the other file adds to a type of a third.
    let added = ("b", "pub struct B;\nimpl crate::c::C {\n    pub fn added(&self) {}\n}\nuse crate::a::A;\n");
    assert_eq!(circles_of(&[("a", "pub struct A;\nfn f(c: &C) { c.added() }\n"), added, ("c", "pub struct C;\n")]), 1);
}

#[test]
fn circles_within_a_layer_are_told_beside_what_goes_up() {
    let files = [
        ("low/a", "use super::b::B;\npub struct A;\n"),
        ("low/b", "pub struct B(super::a::A);\n"),
        ("mid", "use crate::high::High;\n"),
    ];
    let (findings, circles) = layers(&sources(&files), &RULES).unwrap();
    assert_eq!((findings.len(), circles.len()), (1, 1));
    assert!(circles[0].what.starts_with("2 files in a circle"), "{circles:?}");
    assert!(circles[0].what.contains("low/b.rs:1 names `low::a::A` of low/a.rs"), "{circles:?}");
}

#[test]
fn a_parent_and_its_children() {
    // Common types above, calls down: no circle.
    let parent = "mod child;\npub use child::Child;\npub struct Common;\nfn run() { child::go() }\n";
    let child = "use super::Common;\npub struct Child;\npub fn go() {}\n";
    assert_eq!(circles_of(&[("a/mod", parent), ("a/child", child)]), 0);
    // An item that the parent only lifts is the child's; siblings may not form a circle.
    let lifting = "mod child;\nmod other;\npub use child::Child;\npub use other::Other;\n";
    let other = ("a/other", "use super::Child;\npub struct Other;\n");
    assert_eq!(circles_of(&[("a/mod", lifting), ("a/child", "pub struct Child;\n"), other]), 0);
    let child = ("a/child", "use super::Other;\npub struct Child;\n");
    assert_eq!(circles_of(&[("a/mod", lifting), child, other]), 1);
    // A use of the parent's type does not depend on what the parent lifts.
    let lifts = ("a/mod", "mod child;\npub use child::Child;\npub struct Common;\n");
    let child = ("a/child", "use crate::b::B;\npub struct Child;\n");
    assert_eq!(circles_of(&[lifts, child, ("b", "pub struct B(crate::a::Common);\n")]), 0);
    // Out of the folder and back to the parent that calls in.
    let calls = ("a/mod", "mod child;\npub struct Common;\nfn run() { child::go() }\n");
    let out = ("a/child", "use crate::b::B;\npub fn go() {}\n");
    assert_eq!(circles_of(&[calls, out, ("b", "pub struct B(crate::a::Common);\n")]), 1);
}

/// The reference kernel with these files beside empty ones.
fn kernel_of(files: &[(&str, &str)]) -> Vec<Breach> {
    let main = ("main", "mod linux;\nmod port;\n");
    let fixed = [main, ("linux/mod", ""), ("linux/thread", "pub struct Task;\n"), ("port/mod", ""), ("port/mm", "")];
    let fixed = fixed.iter().filter(|(name, _)| !files.iter().any(|(other, _)| other == name));
    let source =
        |(name, text): &(&str, &str)| Source { path: format!("crates/kernel/src/{name}.rs"), text: (*text).into() };
    let rules = Rules { core_names: &[], ..KERNEL };
    super::kernel(&fixed.chain(files).map(source).collect::<Vec<_>>(), &rules).unwrap()
}

#[test]
fn the_kernels_port_names_nothing_of_its_personality() {
    assert_eq!(kernel_of(&[("linux/signal", "use crate::port::mm;\nuse super::thread::Task;\n")]), []);
    for line in
        ["use crate::linux::thread::Task;", "fn f(_: &crate::linux::thread::Task) {}", "use crate::linux::thread;"]
    {
        let found = kernel_of(&[("port/trap", &format!("//! Traps.\n{line}\n"))]);
        assert_eq!(places(&found), ["crates/kernel/src/port/trap.rs:2"], "{line}");
        assert!(found[0].what.contains("layer linux, from layer port below it"), "{line}: {}", found[0].what);
    }
}

#[test]
fn neither_half_of_the_kernel_has_a_circle() {
    let circle = |half: &str| {
        let file = |other: &str, own: &str| format!("use crate::{half}::{other}::{other}_;\npub struct {own}_;\n");
        let (a, b) = (file("b", "a"), file("a", "b"));
        kernel_of(&[(&format!("{half}/a"), &a), (&format!("{half}/b"), &b)])
    };
    for half in ["linux", "port"] {
        let found = circle(half);
        assert_eq!(found.len(), 1, "{half}: {found:?}");
        assert!(found[0].what.starts_with("2 files in a circle"), "{half}: {}", found[0].what);
    }
}
