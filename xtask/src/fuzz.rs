//! `cargo xtask fuzz`: the fuzz targets, without cargo-fuzz and on stable Rust.
//!
//! libFuzzer is linked by the crate `fuzz`; the passes that tell it which code runs are options of the stable compiler. No
//! sanitizer is used: the core has few places with `unsafe`, and the runs are several times as many.
//!
//! | file | content |
//! | --- | --- |
//! | `coverage.rs` | lines of the sources that a corpus runs |

mod coverage;

use crate::shell::{self, Line};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Compiled into the targets: counters, the table of functions, and compared numbers.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Bytes of an input. Longer ones find nothing that several short ones do not.
const MOST_BYTES: u32 = 512;

/// The options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Options {
    /// The action
    what: What,
    /// The target
    #[arg(default_value = "memory", value_parser = ["calls", "memory", "parsers"])]
    target: String,
    /// How long to search, or to count runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Run each input of the corpus once
    Replay,
    /// Count the runs in a second, of inputs of 256 bytes from the corpus
    Rate,
    /// Print the lines of the sources that the corpus runs
    Coverage,
    /// Look for new inputs and findings with libFuzzer
    Search,
    /// Make the corpus of the inputs that were found and itself, without those that add nothing
    Merge,
}

/// Does what the options say.
pub fn run(options: &Options) -> Result<(), String> {
    let Options { target, seconds, .. } = options;
    match options.what {
        What::Replay => shell::run(&runner(&format!("replay {target} {}", corpus(target)))),
        What::Rate => shell::run(&runner(&format!("rate {target} {} --seconds {seconds}", corpus(target)))),
        What::Coverage => coverage::run(target),
        What::Search => search(target, *seconds),
        What::Merge => merge(target),
    }
}

fn corpus(target: &str) -> String {
    format!("fuzz/corpus/{target}")
}

/// The program that runs inputs without a fuzzer.
fn runner(arguments: &str) -> Line {
    shell::cargo(&format!("run --quiet --release -p softfault-testkit --bin fuzz -- {arguments}"))
}

/// Builds the target with libFuzzer.
fn built(target: &str) -> Result<PathBuf, String> {
    let host = shell::host_triple()?;
    // With a target, the flags are not for build scripts.
    let build = format!("build --release --target {host} --bin {target}");
    shell::run(&shell::cargo(&build).within("fuzz").with("RUSTFLAGS", RUSTFLAGS))?;
    Ok(shell::top().join(format!("fuzz/target/{host}/release/{target}")))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// A folder below `fuzz/target`, made if it is not there.
fn folder(name: &str, target: &str) -> Result<PathBuf, String> {
    let path = shell::top().join("fuzz/target").join(name).join(target);
    fs::create_dir_all(&path).map_err(failed(&path))?;
    Ok(path)
}

fn search(target: &str, seconds: u64) -> Result<(), String> {
    let (program, found) = (built(target)?, folder("found", target)?);
    let artifacts = shell::top().join("fuzz/artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(failed(&artifacts))?;
    let options = format!(
        "{} {} -max_total_time={seconds} -max_len={MOST_BYTES} -artifact_prefix={}/ -print_final_stats=1",
        found.display(),
        corpus(target),
        artifacts.display()
    );
    shell::run(&Line::new(&program.to_string_lossy(), &options))
}

/// libFuzzer names files by their contents, so that a second merge changes nothing.
fn merge(target: &str) -> Result<(), String> {
    let (program, found, merged) = (built(target)?, folder("found", target)?, folder("merged", target)?);
    fs::remove_dir_all(&merged).and_then(|()| fs::create_dir(&merged)).map_err(failed(&merged))?;
    let from = shell::top().join(corpus(target));
    let options =
        format!("-set_cover_merge=1 -max_len={MOST_BYTES} {} {} {}", merged.display(), from.display(), found.display());
    shell::run(&Line::new(&program.to_string_lossy(), &options))?;
    fs::remove_dir_all(&from).and_then(|()| fs::create_dir_all(&from)).map_err(failed(&from))?;
    for entry in fs::read_dir(&merged).map_err(failed(&merged))? {
        let path = entry.map_err(failed(&merged))?.path();
        let to = from.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &to).map_err(failed(&to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn toml(path: &Path) -> toml::Table {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).parse().unwrap()
    }

    /// The names of a lock file's packages that are this project's, each with those that it depends on.
    fn locked(folder: &str) -> Vec<(String, BTreeSet<String>)> {
        let lock = toml(&shell::top().join(folder).join("Cargo.lock"));
        let own = lock["package"].as_array().unwrap().iter().filter(|package| package.get("source").is_none());
        let names = |package: &toml::Value| {
            let all = package.get("dependencies").and_then(toml::Value::as_array).cloned().unwrap_or_default();
            all.iter().map(|name| name.as_str().unwrap().split(' ').next().unwrap().to_owned()).collect()
        };
        own.map(|package| (package["name"].as_str().unwrap().to_owned(), names(package))).collect()
    }

    /// A workspace that the gate does not build would keep a lock file that names packages of last year.
    #[test]
    fn the_lock_file_of_the_targets_is_not_stale() {
        let crates = fs::read_dir(shell::top().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let manifests: Vec<toml::Table> =
            crates.chain([shell::top().join("fuzz")]).map(|folder| toml(&folder.join("Cargo.toml"))).collect();
        let locked = locked("fuzz");
        assert!(locked.len() > 4, "{locked:?}");
        for (name, dependencies) in locked {
            let manifest = manifests.iter().find(|manifest| manifest["package"]["name"].as_str() == Some(&name));
            let manifest = manifest.unwrap_or_else(|| panic!("{name} is no package"));
            let wanted: BTreeSet<String> = manifest["dependencies"].as_table().unwrap().keys().cloned().collect();
            assert_eq!(dependencies, wanted, "{name}: `cargo update --workspace` in fuzz");
        }
    }

    /// A target has a program, and a corpus that the gate replays.
    #[test]
    fn each_target_has_a_program_and_a_corpus() {
        let manifest = toml(&shell::top().join("fuzz/Cargo.toml"));
        for program in manifest["bin"].as_array().unwrap() {
            let name = program["name"].as_str().unwrap();
            let folder = shell::top().join(corpus(name));
            let bytes: u64 = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
            assert!((1..512 << 10).contains(&bytes), "{name}: {bytes} bytes");
        }
    }
}
