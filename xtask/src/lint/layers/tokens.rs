//! Paths, calls and methods in what is given to a macro.
//!
//! A macro's arguments have no syntax tree, so their tokens are searched: names
//! joined by `::` are a path, a name after a dot and before parentheses is a call.
//! So the lint sees what `assert!`, `matches!` and the bodies of `macro_rules!` name.

use super::facts::{Call, Segments};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The items that the tokens name.
#[derive(Default)]
pub struct Found {
    pub paths: Vec<(Segments, usize)>,
    pub calls: Vec<Call>,
    /// Functions with a `self`.
    pub methods: Vec<(String, usize)>,
}

/// Searches tokens, those in brackets of any kind too.
pub fn scan(tokens: TokenStream) -> Found {
    let mut found = Found::default();
    scan_into(tokens, &mut found);
    found
}

fn scan_into(tokens: TokenStream, found: &mut Found) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut i = 0;
    while i < trees.len() {
        match &trees[i] {
            TokenTree::Group(group) => scan_into(group.stream(), found),
            TokenTree::Ident(ident) => {
                let (name, line) = (ident.to_string(), ident.span().start().line);
                if is_punct(&trees, i.wrapping_sub(1), '.') && !is_punct(&trees, i.wrapping_sub(2), '.') {
                    if is_parentheses(&trees, i + 1) || is_colons(&trees, i + 1) {
                        found.calls.push(Call { name, line });
                    }
                } else if name == "fn" {
                    if let Some(method) = method(&trees, i + 1) {
                        found.methods.push((method, line));
                    }
                } else {
                    let mut segments = vec![name];
                    while let Some(next) = segment(&trees, i + 1) {
                        segments.push(next);
                        i += 3;
                    }
                    if let Some(group) = braces(&trees, i + 1) {
                        // `use a::{b, c}` in the body of a macro.
                        let inside = scan(group.stream()).paths.into_iter();
                        found.paths.extend(inside.map(|(rest, line)| ([&segments[..], &rest].concat(), line)));
                        i += 3;
                    } else {
                        found.paths.push((segments, line));
                    }
                }
            }
            _ => {}
        }
        i += 1;
    }
}

/// The name after `::` at `i`.
fn segment(trees: &[TokenTree], i: usize) -> Option<String> {
    match (is_colons(trees, i), trees.get(i + 2)) {
        (true, Some(TokenTree::Ident(ident))) => Some(ident.to_string()),
        _ => None,
    }
}

/// The tokens in braces after `::` at `i`.
fn braces(trees: &[TokenTree], i: usize) -> Option<&Group> {
    match (is_colons(trees, i), trees.get(i + 2)) {
        (true, Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

/// The name of a function at `i` that has a receiver.
fn method(trees: &[TokenTree], i: usize) -> Option<String> {
    let Some(TokenTree::Ident(name)) = trees.get(i) else { return None };
    let group = trees[i..].iter().find_map(|t| if let TokenTree::Group(g) = t { Some(g) } else { None })?;
    let mut head = group.stream().into_iter().take_while(|t| !matches!(t, TokenTree::Punct(p) if p.as_char() == ','));
    head.any(|t| matches!(&t, TokenTree::Ident(i) if i == "self")).then(|| name.to_string())
}

fn is_punct(trees: &[TokenTree], i: usize, c: char) -> bool {
    matches!(trees.get(i), Some(TokenTree::Punct(p)) if p.as_char() == c)
}

fn is_colons(trees: &[TokenTree], i: usize) -> bool {
    is_punct(trees, i, ':') && is_punct(trees, i + 1, ':')
}

fn is_parentheses(trees: &[TokenTree], i: usize) -> bool {
    matches!(trees.get(i), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis)
}
