//! No doc comment begins with "What": it names the thing, or says with a verb what a function does.

use super::{Breach, Source};

/// Looks at every line of documentation, tests included.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    sources.iter().filter(|s| s.is_rust()).flat_map(check_file).collect()
}

fn check_file(source: &Source) -> impl Iterator<Item = Breach> {
    let found = source.text.lines().enumerate().filter(|(_, line)| begins_with_what(line));
    found.map(|(i, _)| source.breach(i + 1, "begins with \"What\": should name the thing, or begin with a verb"))
}

/// A later line of a comment that begins so begins a sentence, too.
fn begins_with_what(line: &str) -> bool {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    text.is_some_and(|text| text.trim_start().starts_with("What "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[Source { path: path.into(), text: text.into() }]).into_iter().map(|breach| breach.place).collect()
    }

    #[test]
    fn each_kind_of_doc_comment() {
        assert_eq!(found("a.rs", "//! What it does.\n\nfn f() {}\n"), ["a.rs:1"]);
        assert_eq!(found("tests/a.rs", "/// Result.\nstruct A {\n    ///  What it is.\n}\n"), ["tests/a.rs:3"]);
        assert_eq!(found("a.rs", "/// Two sentences.\n/// What the second says.\nfn f() {}\n"), ["a.rs:2"]);
    }

    #[test]
    fn everything_else() {
        for text in [
            "/// Returns what it is.\n",
            "/// `What` names it.\n",
            "/// Whatever it is.\n",
            "let text = \"/// What it is.\";\n",
            "enum What { A }\n",
        ] {
            assert_eq!(found("a.rs", text), [""; 0], "{text}");
        }
        assert_eq!(found("a.md", "/// What it is.\n"), [""; 0]);
    }
}
