//! No function of the core takes a `bool`: `f(x, true)` does not explain itself at the call.
//! An enum of two values does.

use super::{Breach, Source, is_for_tests};
use syn::visit::{self, Visit};

/// Where the rule holds.
const CORE: &str = "crates/softfault/src/";

/// Functions that may take one, and why. Setters `with_*` may always.
const ALLOWED: [(&str, &str); 3] = [
    ("set_thp_disable", "a setter, as prctl(2) has it"),
    ("zero_if", "makes the named value of a comparison"),
    ("demand", "an assertion: the argument is a condition"),
];

/// Looks at every function of the core.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    sources.iter().filter(|s| s.is_rust() && !s.is_test() && s.path.starts_with(CORE)).flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Breach> {
    let file = match syn::parse_file(&source.text) {
        Ok(file) => file,
        Err(error) => return vec![source.breach(error.span().start().line, format!("should be Rust: {error}"))],
    };
    let mut finder = Finder { source, breaches: Vec::new() };
    finder.visit_file(&file);
    finder.breaches
}

struct Finder<'s> {
    source: &'s Source,
    breaches: Vec<Breach>,
}

fn may_take_one(name: &str) -> bool {
    name.starts_with("with_") || ALLOWED.iter().any(|(allowed, _)| *allowed == name)
}

fn is_bool(argument: &syn::FnArg) -> bool {
    let syn::FnArg::Typed(argument) = argument else { return false };
    matches!(&*argument.ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let name = signature.ident.to_string();
        if signature.inputs.iter().any(is_bool) && !may_take_one(&name) {
            let what = format!("`{name}` takes a `bool`: should be an enum of two named values");
            self.breaches.push(self.source.breach(signature.ident.span().start().line, what));
        }
    }
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = Source { path: format!("{CORE}a.rs"), text: text.into() };
        check(&[source]).into_iter().map(|breach| breach.place).collect()
    }

    #[test]
    fn every_kind_of_function() {
        for text in [
            "fn f(x: u8, yes: bool) {}",
            "pub(crate) fn f(\n    yes: bool,\n) {}",
            "impl A { fn f(&self, yes: bool) {} }",
            "impl B for A { fn f(yes: bool) {} }",
            "trait B { fn f(&self, yes: bool); }",
            "trait B { fn f(&self, yes: bool) {} }",
            "mod a { fn f(yes: bool) {} }",
            "fn g() { fn f(yes: bool) {} }",
        ] {
            assert_eq!(found(text), [format!("{CORE}a.rs:1")], "{text}");
        }
    }

    #[test]
    fn what_may_take_one() {
        for text in [
            "impl A { fn with_name(self, yes: bool) -> A { self } }",
            "const fn zero_if(is_zero: bool) -> Content { of(is_zero) }",
            "fn f(x: u8) -> bool { let g = |yes: bool| yes; g(true) }",
            "struct A { yes: bool }",
            "#[cfg(test)]\nfn f(yes: bool) {}",
            "#[cfg(test)]\nmod tests { fn f(yes: bool) {} }",
            "impl A { #[cfg(test)]\nfn f(yes: bool) {} }",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
        let elsewhere = Source { path: "crates/host/src/a.rs".into(), text: "fn f(yes: bool) {}".into() };
        assert_eq!(check(&[elsewhere]), []);
    }
}
