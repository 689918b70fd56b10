//! Every atomic and every shared cell of the core comes from `sync`: others would be
//! invisible to the model checker and the recorder.

use super::{Breach, Source};

const CORE: &str = "crates/softfault/src/";
/// The facade, and the bytes of programs, which are no cells of the core.
const EXCEPTED: [&str; 3] =
    ["crates/softfault/src/sync.rs", "crates/softfault/src/sync/", "crates/softfault/src/program.rs"];
/// Ways to share mutable memory without the facade.
const WORDS: [&str; 8] =
    ["sync::atomic", "AtomicU", "AtomicI", "AtomicBool", "AtomicPtr", "UnsafeCell", "core::cell", "static mut"];

/// Looks at the core's sources, its tests excepted.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let in_core = |s: &&Source| s.path.starts_with(CORE) && s.is_rust() && !s.is_test();
    let outside = |s: &&Source| !EXCEPTED.iter().any(|path| s.path.starts_with(path));
    let mut breaches = Vec::new();
    for source in sources.iter().filter(in_core).filter(outside) {
        for (number, line) in source.code_lines() {
            if let Some(word) = WORDS.iter().find(|word| line.contains(**word)) {
                breaches.push(source.breach(number, format!("`{word}`: should be a Word of crate::sync")));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&[Source { path: path.into(), text: text.into() }]).into_iter().map(|b| b.place).collect()
    }

    #[test]
    fn finds_atomics_outside_the_facade_only() {
        let text = "//! core::sync::atomic is not used\nuse core::sync::atomic::AtomicU64;\n";
        assert_eq!(places("crates/softfault/src/vm.rs", text), ["crates/softfault/src/vm.rs:2"]);
        assert!(places("crates/softfault/src/sync/machine.rs", text).is_empty());
        assert!(places("crates/softfault/src/space/tree/tests.rs", text).is_empty());
        assert!(places("crates/host/src/tlb.rs", text).is_empty());
    }

    #[test]
    fn tests_inside_a_file_may() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::sync::atomic::AtomicU64;\n}\n";
        assert!(places("crates/softfault/src/vm.rs", text).is_empty());
    }
}
