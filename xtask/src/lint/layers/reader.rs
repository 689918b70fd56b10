//! From the syntax tree of a file to its facts.
//!
//! Items under `#[cfg(test)]` are left out, attributes and visibilities name nothing.

use super::facts::{Call, Facts, Impl, Item, Method, Named, Segments, Use, join};
use super::tokens;
use crate::lint::is_for_tests;
use proc_macro2::Span;
use syn::visit::{self, Visit};

/// Reads a file as the module `module`.
pub fn read(text: &str, module: &str) -> Result<Facts, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader { facts: Facts::default(), module: module.into(), on: None };
    reader.facts.modules.push(module.into());
    reader.visit_file(&file);
    Ok(reader.facts)
}

fn line(span: Span) -> usize {
    span.start().line
}

/// The module in which something of `module` is visible.
fn seen_in(visibility: &syn::Visibility, module: &str) -> String {
    let outer = || module.rsplit_once("::").map_or("", |(outer, _)| outer).to_string();
    match visibility {
        syn::Visibility::Inherited => module.into(),
        syn::Visibility::Restricted(to) if to.path.is_ident("super") => outer(),
        syn::Visibility::Restricted(to) if to.path.is_ident("self") => module.into(),
        // `pub(in path)` counts as wider than it is.
        _ => String::new(),
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(i) => &i.attrs,
        syn::Item::Enum(i) => &i.attrs,
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Macro(i) => &i.attrs,
        syn::Item::Mod(i) => &i.attrs,
        syn::Item::Static(i) => &i.attrs,
        syn::Item::Struct(i) => &i.attrs,
        syn::Item::Trait(i) => &i.attrs,
        syn::Item::Type(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// `#[path = "../../other/src/name.rs"]`: the way leads through the folder of sources.
fn is_of_another_crate(attribute: &syn::Attribute) -> bool {
    let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(literal), .. }) = &attribute.meta else {
        return false;
    };
    matches!(&literal.lit, syn::Lit::Str(text) if text.value().contains("/src/"))
}

fn segments(path: &syn::Path) -> Segments {
    path.segments.iter().map(|s| s.ident.to_string()).collect()
}

/// The path of a type, through references; empty for one without a name.
fn type_path(ty: &syn::Type) -> Segments {
    match ty {
        syn::Type::Path(path) => segments(&path.path),
        syn::Type::Reference(reference) => type_path(&reference.elem),
        syn::Type::Paren(inner) => type_path(&inner.elem),
        _ => Vec::new(),
    }
}

/// The code that can use a member.
enum Seen<'a> {
    Everywhere,
    By(&'a syn::Visibility),
}

struct Reader {
    facts: Facts,
    module: String,
    /// The type of `Self`.
    on: Option<Segments>,
}

impl Reader {
    fn define(&mut self, ident: &syn::Ident, alias: Option<Segments>) {
        self.facts.items.push(Item { module: self.module.clone(), name: ident.to_string(), alias });
    }

    fn name(&mut self, mut segments: Segments, line: usize) {
        if segments.first().is_some_and(|s| s == "Self") {
            let Some(on) = self.on.as_ref().filter(|on| !on.is_empty()) else { return };
            segments.splice(0..1, on.iter().cloned());
        }
        self.facts.named.push(Named { module: self.module.clone(), segments, line });
    }

    /// The member of this name of an `impl` or a `trait`, on the type or trait `on`.
    fn member(&mut self, ident: &syn::Ident, has_receiver: bool, on: &Segments, of: Option<&Segments>, to: &Seen) {
        let seen_in = match to {
            // A trait's members are as visible as the trait.
            Seen::Everywhere => String::new(),
            Seen::By(_) if of.is_some() => String::new(),
            Seen::By(visibility) => seen_in(visibility, &self.module),
        };
        self.facts.methods.push(Method {
            module: self.module.clone(),
            name: ident.to_string(),
            on: on.clone(),
            of: of.cloned(),
            has_receiver,
            seen_in,
            line: line(ident.span()),
        });
    }

    fn import(&mut self, tree: &syn::UseTree, before: &Segments, public: bool) {
        let with = |ident: &syn::Ident| {
            let mut segments = before.clone();
            // `self` in braces is the module before them.
            if ident != "self" || segments.is_empty() {
                segments.push(ident.to_string());
            }
            segments
        };
        let (segments, name, span) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), public),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, public));
            }
            syn::UseTree::Name(name) => {
                let segments = with(&name.ident);
                let last = segments.last().cloned().unwrap_or_default();
                (segments, last, name.ident.span())
            }
            syn::UseTree::Rename(name) => (with(&name.ident), name.rename.to_string(), name.ident.span()),
            syn::UseTree::Glob(glob) => (before.clone(), "*".into(), glob.star_token.spans[0]),
        };
        self.facts.uses.push(Use { module: self.module.clone(), segments, name, public, line: line(span) });
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if is_for_tests(attributes(item)) {
            if let syn::Item::Mod(module) = item {
                self.facts.test_modules.push(join(&self.module, &module.ident.to_string()));
            }
            return;
        }
        match item {
            syn::Item::Const(i) => self.define(&i.ident, None),
            syn::Item::Enum(i) => self.define(&i.ident, None),
            syn::Item::Fn(i) => self.define(&i.sig.ident, None),
            syn::Item::Static(i) => self.define(&i.ident, None),
            syn::Item::Struct(i) => self.define(&i.ident, None),
            syn::Item::Trait(i) => self.define(&i.ident, None),
            syn::Item::Type(i) => self.define(&i.ident, Some(type_path(&i.ty)).filter(|path| !path.is_empty())),
            syn::Item::Union(i) => self.define(&i.ident, None),
            syn::Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => self.define(ident, None),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        // A file that is somewhere else would be taken for another module. One of
        // another crate is no file of this one.
        if let Some(attribute) = module.attrs.iter().find(|a| a.path().is_ident("path") && !is_of_another_crate(a)) {
            self.facts.moved.push(line(attribute.pound_token.span));
        }
        let outer = self.module.clone();
        self.module = join(&outer, &module.ident.to_string());
        if module.content.is_some() {
            self.facts.modules.push(self.module.clone());
        }
        visit::visit_item_mod(self, module);
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        // `use ::name` is a crate of that name.
        if item.leading_colon.is_none() {
            self.import(&item.tree, &Vec::new(), public);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let on = type_path(&item.self_ty);
        let of = item.trait_.as_ref().map(|(path, _)| segments(path));
        for member in &item.items {
            let (attrs, vis, ident, has_receiver) = match member {
                syn::ImplItem::Fn(f) => (&f.attrs, &f.vis, &f.sig.ident, f.sig.receiver().is_some()),
                syn::ImplItem::Const(c) => (&c.attrs, &c.vis, &c.ident, false),
                _ => continue,
            };
            if !is_for_tests(attrs) {
                self.member(ident, has_receiver, &on, of.as_ref(), &Seen::By(vis));
            }
        }
        if let Some((path, _)) = &item.trait_ {
            let arguments = path.segments.last().map(|s| type_arguments(&s.arguments)).unwrap_or_default();
            let line = line(item.impl_token.span);
            let module = self.module.clone();
            self.facts.impls.push(Impl { module, on: on.clone(), of: segments(path), arguments, line });
        }
        let outer = self.on.replace(on);
        visit::visit_item_impl(self, item);
        self.on = outer;
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        let on = vec![item.ident.to_string()];
        for member in &item.items {
            match member {
                syn::TraitItem::Fn(f) => {
                    self.member(&f.sig.ident, f.sig.receiver().is_some(), &on, None, &Seen::Everywhere);
                }
                syn::TraitItem::Const(c) => self.member(&c.ident, false, &on, None, &Seen::Everywhere),
                _ => {}
            }
        }
        let outer = self.on.replace(on);
        visit::visit_item_trait(self, item);
        self.on = outer;
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        if let Some(segments) = path.qself.as_ref().and_then(|q| qualified(q, &path.path)) {
            self.name(segments, path.path.segments.first().map_or(0, |s| line(s.ident.span())));
        }
        visit::visit_type_path(self, path);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        if let Some(segments) = path.qself.as_ref().and_then(|q| qualified(q, &path.path)) {
            self.name(segments, path.path.segments.first().map_or(0, |s| line(s.ident.span())));
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let at = path.segments.first().map_or(0, |s| line(s.ident.span()));
            self.name(segments(path), at);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        self.facts.calls.push(Call { name: call.method.to_string(), line: line(call.method.span()) });
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let found = tokens::scan(call.tokens.clone());
        for (segments, line) in found.paths {
            self.name(segments, line);
        }
        self.facts.calls.extend(found.calls);
        for (name, line) in found.methods {
            let (module, on, seen_in) = (self.module.clone(), Vec::new(), String::new());
            self.facts.methods.push(Method { module, name, on, of: None, has_receiver: true, seen_in, line });
        }
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

/// `<Type>::name` as `Type::name`; `<Type as Trait>::name` has the trait's path.
fn qualified(qself: &syn::QSelf, path: &syn::Path) -> Option<Segments> {
    let mut on = type_path(&qself.ty);
    if on.is_empty() {
        return None;
    }
    on.push(path.segments.last()?.ident.to_string());
    Some(on)
}

fn type_arguments(arguments: &syn::PathArguments) -> Vec<Segments> {
    let syn::PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    let ty = |a: &syn::GenericArgument| if let syn::GenericArgument::Type(ty) = a { Some(type_path(ty)) } else { None };
    list.args.iter().filter_map(ty).collect()
}
