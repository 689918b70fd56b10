//! The fuzz targets `memory` and `parsers` without a fuzzer: every file of their corpora, and strings of bytes that are new.
//! `corpus.rs` has the target `calls`.

use softfault_testkit::fuzz::TARGETS;
use softfault_testkit::random::Random;
use std::path::Path;

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

fn run(name: &str, what: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    if let Err(found) = target(bytes) {
        panic!("{name}, {what}: {found}\n{bytes:?}");
    }
}

/// All inputs of the corpus, some of them changed, and bytes at random.
fn replay(name: &str, least: usize) {
    let files = corpus(name);
    assert!(files.len() >= least, "the corpus of {name} has {} files", files.len());
    let mut random = Random::new(43);
    for (nr, (file, mut bytes)) in files.into_iter().enumerate() {
        run(name, &file, &bytes);
        if nr.is_multiple_of(4) && !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.number() as u8;
            run(name, "changed", &bytes);
        }
    }
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.number() as u8).collect();
        run(name, "random", &bytes);
    }
}

#[test]
fn inputs_of_memory() {
    replay("memory", 100);
}

#[test]
fn inputs_of_parsers() {
    replay("parsers", 30);
}
