//! Checks that `docs/commands.md` has a row for each subcommand of `softfault` and `cargo xtask`, with its options.
//!
//! A row is `| command | purpose | options |`. The lint reads the subcommands in the enum of each `main.rs`, and the
//! options in the structs that its variants and `#[command(flatten)]` name. Positional arguments and hidden options do
//! not count.

use super::{Breach, Source};
use std::collections::{BTreeSet, HashMap};
use syn::{Field, Fields, Item, Type};

const DOCUMENT: &str = "docs/commands.md";
/// A command, the folder of its source, and the enum of its subcommands.
const COMMANDS: [(&str, &str, &str); 2] =
    [("softfault", "crates/lab/src/", "Command"), ("cargo xtask", "xtask/src/", "Task")];

/// The structs of a command's sources, by the module at the top and their name.
type Structs = HashMap<(String, String), Fields>;

/// Compares both, in both directions.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let Some(document) = sources.iter().find(|s| s.path == DOCUMENT) else { return Vec::new() };
    let wanted: Vec<(String, BTreeSet<String>)> = COMMANDS.iter().flat_map(|of| subcommands(sources, of)).collect();
    let rows = rows(&document.text);
    let mut breaches = Vec::new();
    for (command, options) in &wanted {
        match rows.iter().find(|(_, of, _)| of == command) {
            None => breaches.push(document.breach(1, format!("`{command}`: should have a row {}", listed(options)))),
            Some((line, _, found)) if found != options => {
                breaches
                    .push(document.breach(*line, format!("`{command}`: should have the options {}", listed(options))));
            }
            Some(_) => {}
        }
    }
    let is_gone = |of: &&str| wanted.iter().all(|(command, _)| command != of);
    let gone = rows.iter().filter(|(_, of, _)| is_gone(of));
    breaches.extend(gone.map(|(line, of, _)| document.breach(*line, format!("`{of}`: should be a command"))));
    breaches
}

fn listed(options: &BTreeSet<String>) -> String {
    let quoted: Vec<String> = options.iter().map(|option| format!("`{option}`")).collect();
    quoted.join(" ")
}

/// Line, command and options of each row that names a command first.
fn rows(text: &str) -> Vec<(usize, &str, BTreeSet<String>)> {
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some((command, rest)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")) else { continue };
        if COMMANDS.iter().any(|(of, ..)| command.starts_with(of)) {
            let options = rest.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or("");
            let options = options.split('`').filter(|word| word.starts_with("--")).map(String::from).collect();
            rows.push((i + 1, command, options));
        }
    }
    rows
}

/// Each subcommand in full, and its options.
fn subcommands(sources: &[Source], (command, folder, name): &(&str, &str, &str)) -> Vec<(String, BTreeSet<String>)> {
    let mut structs = Structs::new();
    let mut variants = Vec::new();
    for source in sources.iter().filter(|s| s.path.starts_with(folder) && s.is_rust() && !s.is_test()) {
        let module = source.path[folder.len()..].split(['/', '.']).next().unwrap_or("").to_owned();
        for item in syn::parse_file(&source.text).map(|file| file.items).unwrap_or_default() {
            match item {
                Item::Struct(item) => drop(structs.insert((module.clone(), item.ident.to_string()), item.fields)),
                Item::Enum(item) if module == "main" && item.ident == name => variants.extend(item.variants),
                _ => {}
            }
        }
    }
    let full = |variant: &syn::Variant| format!("{command} {}", kebab(&variant.ident.to_string()));
    let all = variants.iter().map(|variant| {
        let mut options = BTreeSet::new();
        match &variant.fields {
            Fields::Unnamed(fields) => {
                fields.unnamed.iter().for_each(|f| flatten(&structs, "main", &f.ty, &mut options))
            }
            fields => fields.iter().for_each(|field| add(&structs, "main", field, &mut options)),
        }
        (full(variant), options)
    });
    all.collect()
}

/// Adds the options of the struct that `ty` names: `pft::Options`, or a struct of the same module, or the only one of
/// that name.
fn flatten(structs: &Structs, module: &str, ty: &Type, options: &mut BTreeSet<String>) {
    let Type::Path(path) = ty else { return };
    let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
    let (name, outer) = (names[names.len() - 1].clone(), names.first().filter(|_| names.len() > 1));
    let of = (outer.cloned().unwrap_or(module.to_owned()), name);
    let found = structs.get_key_value(&of).or_else(|| structs.iter().find(|((_, name), _)| *name == of.1));
    for ((module, _), field) in found.iter().flat_map(|(key, fields)| fields.iter().map(move |field| (key, field))) {
        add(structs, module, field, options);
    }
}

/// Adds the option of a field, or those that it flattens.
fn add(structs: &Structs, module: &str, field: &Field, options: &mut BTreeSet<String>) {
    let has = |attribute: &str, word: &str| words(field, attribute).iter().any(|(key, _)| key == word);
    if has("command", "flatten") {
        return flatten(structs, module, &field.ty, options);
    }
    let arg = words(field, "arg");
    let (Some((_, given)), Some(ident)) = (arg.iter().find(|(key, _)| key == "long"), &field.ident) else { return };
    if !has("arg", "hide") {
        options.insert(format!("--{}", given.clone().unwrap_or(kebab(&ident.to_string()))));
    }
}

/// The words of an attribute, with their values if these are strings.
fn words(field: &Field, attribute: &str) -> Vec<(String, Option<String>)> {
    let mut words = Vec::new();
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident(attribute)) {
        let parsed = attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(|ident| ident.to_string()).unwrap_or_default();
            let value = match () {
                () if meta.input.peek(syn::Token![=]) => Some(meta.value()?.parse::<syn::Expr>()?),
                () if meta.input.peek(syn::token::Paren) => Some(meta.input.parse()?),
                () => None,
            };
            words.push((key, value.as_ref().and_then(string)));
            Ok(())
        });
        debug_assert!(parsed.is_ok(), "{parsed:?}");
    }
    words
}

fn string(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// As clap names it: `anon-w-seq` of `AnonWSeq`, `dry-run` of `dry_run`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(if c == '_' { '-' } else { c.to_ascii_lowercase() });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "enum Command { Pft(pft::Options), AnonWSeq { #[arg(long)] all: bool, rest: Vec<String> } }";
    const PFT: &str = r#"
        pub struct Options {
            /// Help
            #[arg(short, long = "size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9))]
            gib: f64,
            #[arg(long, hide = true)]
            worker: Option<u32>,
            #[arg(last = true)]
            command: Vec<String>,
            #[command(flatten)]
            pub repeated: Repeated,
        }"#;
    const SHARED: &str = "pub struct Repeated { #[arg(long, conflicts_with_all = [\"a\"])] dry_run: bool }";

    fn places(document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let lab = |path: &str, text: &str| source(&format!("crates/lab/src/{path}"), text);
        let sources = [source(DOCUMENT, document), lab("main.rs", MAIN), lab("pft/options.rs", PFT)];
        let found = check(&[&sources[..], &[lab("bench/options.rs", SHARED)]].concat());
        found.into_iter().map(|breach| format!("{}: {}", breach.place, breach.what)).collect()
    }

    #[test]
    fn each_command_has_a_row_with_its_options() {
        let good = "x `--not`\n| `softfault pft` | `--no` option | `--size`, `--dry-run` |\n| `softfault anon-w-seq` | | `--all` |\n";
        assert_eq!(places(good), Vec::<String>::new());
        let lacks = good.replace("`--size`, ", "");
        assert_eq!(
            places(&lacks),
            [format!("{DOCUMENT}:2: `softfault pft`: should have the options `--dry-run` `--size`")]
        );
        let old = good.replace("anon-w-seq", "fly");
        let [missing, gone] = &places(&old)[..] else { panic!("two") };
        assert!(missing.contains("`softfault anon-w-seq`: should have a row `--all`"), "{missing}");
        assert!(gone.contains(":3: `softfault fly`: should be a command"), "{gone}");
    }
}
