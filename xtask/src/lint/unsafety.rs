//! `unsafe` occurs only in named files, and each block cites the invariant that makes it
//! sound.

use super::{Breach, Source};
use std::collections::HashSet;

const CORE: &str = "crates/softfault/src/";
/// The core's files that may say `unsafe`. A new one needs a reason that holds
/// in review: views of frames, how they are zeroed, the bytes of programs, the trait that ports
/// promise and the calls of its methods that name memory, the machine of the unit tests, the model's facade, the declarations
/// that a structure consists of words, what a scheduler promises that changes
/// spaces, what a test promises that pretends a count or calls a checker, and what a page-table format
/// promises.
const ALLOWED: [&str; 21] = [
    "crates/softfault/src/check.rs",
    "crates/softfault/src/check/in_test.rs",
    "crates/softfault/src/check/zero.rs",
    "crates/softfault/src/mem.rs",
    "crates/softfault/src/mem/pieces.rs",
    "crates/softfault/src/mem/stream.rs",
    "crates/softfault/src/mem/ways.rs",
    "crates/softfault/src/program.rs",
    "crates/softfault/src/testing.rs",
    "crates/softfault/src/machine.rs",
    "crates/softfault/src/machine/ask.rs",
    "crates/softfault/src/sync/modelled.rs",
    "crates/softfault/src/sync/shuffled/buffer.rs",
    "crates/softfault/src/space/tree/layout.rs",
    "crates/softfault/src/words.rs",
    "crates/softfault/src/space/active.rs",
    "crates/softfault/src/hooks/pretend.rs",
    "crates/softfault/src/table/format.rs",
    "crates/softfault/src/table/format/x86_64.rs",
    "crates/softfault/src/table/format/riscv.rs",
    "crates/softfault/src/table/format/toy.rs",
];
/// Which invariants a crate may cite: its own and the core's.
const LETTERS: [(&str, &str); 6] = [
    ("crates/softfault/", "I"),
    ("crates/host/", "EI"),
    ("crates/kernel/", "KI"),
    ("crates/lab/", "LI"),
    ("crates/model/", "NI"),
    ("crates/testkit/", "NI"),
];
const INVARIANTS: &str = "docs/invariants.md";

/// Looks for `unsafe` out of place and for `SAFETY` without an invariant.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let known = sources.iter().find(|s| s.path == INVARIANTS).map_or("", |s| s.text.as_str());
    let mut breaches = Vec::new();
    let mut unwritten = HashSet::new();
    for source in sources.iter().filter(|s| s.is_rust()) {
        if source.path.starts_with(CORE) && !source.is_test() && !ALLOWED.contains(&source.path.as_str()) {
            let unsafe_lines = source.code_lines().filter(|(_, line)| has_word(line, "unsafe"));
            breaches.extend(
                unsafe_lines.map(|(n, _)| {
                    source.breach(n, "`unsafe`: should be in a file that xtask/src/lint/unsafety.rs names")
                }),
            );
        }
        if let Some((_, letters)) = LETTERS.iter().find(|(folder, _)| source.path.starts_with(folder)) {
            breaches.extend(uncited(source, letters, known, &mut unwritten));
        }
    }
    breaches
}

/// `SAFETY` comments that cite no invariant, or one that is written nowhere;
/// each of the latter is told of once.
fn uncited(source: &Source, letters: &str, known: &str, unwritten: &mut HashSet<String>) -> Vec<Breach> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let mut breaches = Vec::new();
    for (i, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("// SAFETY:")) {
        let text: Vec<&str> = lines[i..].iter().copied().take_while(|line| line.starts_with("//")).collect();
        let text = text.join(" ");
        let cited = citations(&text, letters);
        if cited.is_empty() && !text.starts_with("// SAFETY: as above") {
            breaches.push(source.breach(i + 1, format!("SAFETY: should cite an invariant ({letters} and a number)")));
        }
        for name in cited.into_iter().filter(|name| !has_word(known, name)) {
            if unwritten.insert(name.clone()) {
                breaches.push(source.breach(i + 1, format!("SAFETY: {name} should be written down in {INVARIANTS}")));
            }
        }
    }
    breaches
}

/// Words made of one of the letters and a number.
fn citations(text: &str, letters: &str) -> Vec<String> {
    let is_citation = |word: &&str| {
        word.starts_with(|c| letters.contains(c)) && word.len() > 1 && word[1..].bytes().all(|b| b.is_ascii_digit())
    };
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_citation).map(String::from).collect()
}

/// Whether `word` occurs in the text, and not as a part of another word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(path: &str, text: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let known = source(INVARIANTS, "- **I1** the direct map\n- **E2** bytes\n");
        check(&[known, source(path, text)]).into_iter().map(|b| b.what).collect()
    }

    #[test]
    fn unsafe_has_its_files() {
        let text = "// SAFETY: I1: it is there.\nlet x = unsafe { *p };\n";
        assert!(what("crates/softfault/src/mem.rs", text).is_empty());
        assert_eq!(what("crates/softfault/src/vm.rs", text).len(), 1);
        assert!(what("crates/softfault/src/vm.rs", "#![deny(unsafe_code)] // unsafe is elsewhere\n").is_empty());
    }

    #[test]
    fn safety_cites_an_invariant_that_is_written_down() {
        assert!(what("crates/softfault/src/mem.rs", "// SAFETY: this holds since\n// I1 does.\n").is_empty());
        assert_eq!(what("crates/softfault/src/mem.rs", "// SAFETY: trust me.\n").len(), 1);
        assert!(what("crates/softfault/src/mem.rs", "// SAFETY: as above; the length too.\n").is_empty());
        assert_eq!(what("crates/softfault/src/mem.rs", "// SAFETY: I12.\n").len(), 1, "I12 is written nowhere");
        assert_eq!(what("crates/softfault/src/mem.rs", "// SAFETY: E2.\n").len(), 1, "not the core's to cite");
        assert!(what("crates/host/src/arena.rs", "// SAFETY: E2 and I1.\n").is_empty());
    }
}
