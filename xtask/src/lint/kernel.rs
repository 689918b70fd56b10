//! All memory management of the reference kernel is the library's: it writes no
//! user page-table entry and keeps no list of mappings.
//!
//! The lint searches for words: the table formats' encoder, mappers of other crates, and
//! collections of mappings. `boot/` is exempt: it makes the kernel's own tables before the
//! library runs, and has no user addresses.

use super::{Breach, Source};

const KERNEL: &str = "crates/kernel/src/";
const BOOT: &str = "crates/kernel/src/port/boot/";
const WORDS: [(&str, &str); 9] = [
    ("table::format", "entries are written by the library alone"),
    ("::encode(", "entries are written by the library alone"),
    ("Entry::Leaf", "entries are written by the library alone"),
    ("structures::paging", "entries are written by the library alone"),
    ("PageTableEntry", "entries are written by the library alone"),
    ("OffsetPageTable", "entries are written by the library alone"),
    ("Vec<Vma", "the library keeps the mappings: ask AddressSpace::maps"),
    (", Vma>", "the library keeps the mappings: ask AddressSpace::maps"),
    ("Vec<PageRange", "the library keeps the mappings: ask AddressSpace::maps"),
];

/// Looks at the kernel's sources.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|s| s.path.starts_with(KERNEL) && s.is_rust() && !s.path.starts_with(BOOT)) {
        for (number, line) in source.code_lines() {
            // The format that the machine names as its own is no entry yet.
            if line.trim_start().starts_with("use softfault::table::format::X86_64;") {
                continue;
            }
            if let Some((word, why)) = WORDS.iter().find(|(word, _)| line.contains(word)) {
                breaches.push(source.breach(number, format!("`{word}`: {why}")));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_entries_and_lists_outside_boot() {
        let text = "use softfault::table::format::X86_64;\nlet word = X86_64::encode(entry, 0);\nstruct P { maps: Vec<Vma> }\n";
        let places = |path: &str| {
            let found = check(&[Source { path: path.into(), text: text.into() }]);
            found.into_iter().map(|b| b.place).collect::<Vec<_>>()
        };
        assert_eq!(
            places("crates/kernel/src/port/mm.rs"),
            ["crates/kernel/src/port/mm.rs:2", "crates/kernel/src/port/mm.rs:3"]
        );
        assert!(places("crates/kernel/src/port/boot/paging.rs").is_empty());
        assert!(places("crates/host/src/walk.rs").is_empty());
    }
}
