//! Checks the library's package: licences, README, CHANGELOG, metadata and every file that
//! its documentation cites are in it, what is for tests is off by default, and it builds.
//!
//! Licences and documents are symbolic links to the files at the top; cargo follows them.

use crate::shell;
use std::path::{Component, Path, PathBuf};

const CRATE: &str = "crates/softfault";
const LIST: &str = "package --list --allow-dirty -p softfault";
/// Builds what was packed, in a folder of its own. Offline: by now everything that the
/// library depends on is there.
const PACK: &str = "package --quiet --allow-dirty --offline -p softfault";
const FILES: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"];
const KEYS: [&str; 7] =
    ["description", "license", "repository", "documentation", "readme", "rust-version", "metadata.docs.rs"];
/// Folders of the package that documentation cites files of.
const CITED: [&str; 2] = ["docs/", "examples/"];

/// Looks at the package and builds it.
pub fn check() -> Result<(), String> {
    let listed = shell::output_of(&shell::cargo(LIST))?;
    let files: Vec<&str> = listed.lines().collect();
    let read = |file: &str| std::fs::read_to_string(shell::top().join(CRATE).join(file)).unwrap_or_default();
    let mut wrong: Vec<String> = missing(&files, read).collect();
    wrong.extend(missing_keys(&read("Cargo.toml"))?);
    wrong.extend(on_by_default(&read("Cargo.toml"))?);
    wrong.iter().for_each(|what| println!("{CRATE}: {what}"));
    if !wrong.is_empty() {
        return Err(format!("{} things are missing in the library's package", wrong.len()));
    }
    shell::run(&shell::cargo(PACK))
}

/// Files that should be in the package: those of every package, and those that files
/// in it cite.
fn missing<'a>(files: &'a [&'a str], read: impl Fn(&str) -> String + 'a) -> impl Iterator<Item = String> + 'a {
    let needed = FILES.iter().filter(|file| !files.contains(file)).map(|file| format!("should have {file}"));
    let cited = files.iter().flat_map(move |&file| {
        let text = read(file);
        let cited = if file.ends_with(".md") { linked(file, &text) } else { named(file, &text) };
        let mut lost: Vec<String> = cited.into_iter().filter(|cited| !files.contains(&cited.as_str())).collect();
        lost.extend(sources_named(&text).filter(|source| !is_source(files, file, source)).map(String::from));
        lost.into_iter().map(move |cited| format!("{file} cites {cited}, which should be in the package"))
    });
    needed.chain(cited)
}

/// Files of the package that a source names.
fn named(file: &str, text: &str) -> Vec<String> {
    if !file.ends_with(".rs") {
        return Vec::new();
    }
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-./".contains(c));
    let is_file = |word: &&str| CITED.iter().any(|folder| word.starts_with(folder)) && word.contains('.');
    words.map(|word| word.trim_end_matches('.')).filter(is_file).map(String::from).collect()
}

/// Sources that a text names between backticks, such as `table/walk.rs`.
fn sources_named(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_/.".contains(c);
    text.split('`').filter(move |word| word.ends_with(".rs") && word.chars().all(is_name))
}

/// Whether `file` can mean a file of the package by that: from the top, from the
/// sources' top, from its own folder or from the folder below it.
fn is_source(files: &[&str], file: &str, source: &str) -> bool {
    let is_document = file.ends_with(".md");
    let below = file.trim_end_matches(".rs");
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let places =
        [source.to_string(), format!("src/{source}"), format!("{folder}/{source}"), format!("{below}/{source}")];
    // Documents are about the whole project.
    is_document || places.iter().any(|place| files.contains(&place.as_str()))
}

/// Files that a document links, from the top of the package.
fn linked(file: &str, text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
    let local = targets.filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '));
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    local.map(|target| plain(&folder.join(target))).collect()
}

/// Without `..`.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir && plain.parent().is_some() {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain.to_string_lossy().into_owned()
}

/// Keys of `[package]` that are not there.
fn missing_keys(manifest: &str) -> Result<Vec<String>, String> {
    let manifest: toml::Table = manifest.parse().map_err(|e| format!("{CRATE}/Cargo.toml: {e}"))?;
    let package = manifest.get("package");
    let has = |key: &&&str| {
        let step = |value: Option<&'_ toml::Value>, part| value.and_then(|v| v.get(part)).cloned();
        key.split('.').fold(package.cloned(), |value, part| step(value.as_ref(), part)).is_some()
    };
    Ok(KEYS.iter().filter(|key| !has(key)).map(|key| format!("Cargo.toml should have package.{key}")).collect())
}

/// Parts of the library that a build may leave out. They may be on where nobody asks for them; what is for tests and the
/// laboratory may not.
const PARTS: [&str; 2] = ["files", "hugetlb"];

/// Other features that are on where nobody asks for them.
fn on_by_default(manifest: &str) -> Result<Vec<String>, String> {
    let manifest: toml::Table = manifest.parse().map_err(|e| format!("{CRATE}/Cargo.toml: {e}"))?;
    let on = manifest.get("features").and_then(|features| features.get("default")).and_then(|on| on.as_array());
    let on = on.into_iter().flatten().filter(|on| !on.as_str().is_some_and(|on| PARTS.contains(&on)));
    Ok(on.map(|feature| format!("Cargo.toml should not have feature {feature} on by default")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_on_by_default() {
        assert_eq!(on_by_default("[features]\nhooks = []\n"), Ok(vec![]));
        assert_eq!(on_by_default("[package]\n"), Ok(vec![]));
        let on = on_by_default("[features]\ndefault = ['files', 'hooks']\nfiles = []\nhooks = []\n").unwrap();
        assert_eq!(on_by_default(include_str!("../../crates/softfault/Cargo.toml")), Ok(vec![]));
        assert_eq!(on, ["Cargo.toml should not have feature \"hooks\" on by default"]);
    }

    #[test]
    fn names_what_is_missing() {
        let read = |file: &str| match file {
            "src/lib.rs" => "//! See `docs/a.md`, docs/b.md. Not https://example.org/docs/c.md or docs/.\n".into(),
            "src/a.rs" => "//! `a/b.rs`, `lib.rs`, `a.rs` and `b.rs`; not `c.rs`.\n".into(),
            "src/a/b.rs" => "//! `lib.rs` and `src/a.rs`.\n".into(),
            "docs/a.md" => "[b](b.md#x) [up](../README.md) [web](https://example.org) [here](#y)".to_string(),
            _ => String::new(),
        };
        let files = ["CHANGELOG.md", "LICENSE-MIT", "README.md", "docs/a.md", "src/a.rs", "src/a/b.rs", "src/lib.rs"];
        let found: Vec<String> = missing(&files, read).collect();
        let lost = |file: &str, cited: &str| format!("{file} cites {cited}, which should be in the package");
        let needed = "should have LICENSE-APACHE".to_string();
        let cited = [lost("docs/a.md", "docs/b.md"), lost("src/a.rs", "c.rs"), lost("src/lib.rs", "docs/b.md")];
        assert_eq!((&found[0], &found[1..]), (&needed, &cited[..]));
    }

    #[test]
    fn names_the_keys_that_are_missing() {
        let whole = "[package]\ndescription = ''\nlicense.workspace = true\nrepository = ''\ndocumentation = ''\nreadme = ''\nrust-version = ''\n[package.metadata.docs.rs]\ntargets = []\n";
        assert_eq!(missing_keys(whole), Ok(vec![]));
        let less = missing_keys(&whole.replace(".docs.rs", ".docs").replace("readme", "r")).unwrap();
        assert_eq!(less, ["Cargo.toml should have package.readme", "Cargo.toml should have package.metadata.docs.rs"]);
    }
}
