//! Runs the model checks: as many test binaries at a time as there are CPUs, one test at a time in each.
//!
//! `cargo test` runs one binary after the other. Most binaries of models have one test that takes most of
//! their time, so with `cargo test` one CPU does all the work at the end of each.

use crate::shell::{self, Line};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};

/// Builds the binaries; cargo's arguments.
const BUILD: &str =
    "test --release -p softfault-modelled -p softfault-shuffled --no-run --message-format=json-render-diagnostics";

/// Binaries that take longest, longest first. They start first, so that the last one to end is a short one. A
/// name that no longer exists does no harm.
const LONGEST: [&str; 9] = [
    "huge_pages",
    "clusters",
    "frames_and_thieves",
    "members",
    "object_moves",
    "object_and_discard",
    "swap",
    "folio_moves",
    "moves",
];

/// A test binary.
struct Binary {
    name: String,
    executable: PathBuf,
    /// The folder of its package, in which cargo would run it.
    package: PathBuf,
}

/// The outcome of a binary: what it wrote, and its status.
struct Ended<'a> {
    binary: &'a Binary,
    text: String,
    result: Result<ExitStatus, String>,
}

/// Builds and runs all models. Calls `see` with each line of their output.
pub fn run(mut see: impl FnMut(&str)) -> Result<(), String> {
    let binaries = binaries()?;
    let queue = Mutex::new(binaries.iter());
    let (sender, ended) = mpsc::channel();
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || work(queue, &sender));
        }
        drop(sender);
        for Ended { binary, text, result } in ended {
            println!("     Running {}", binary.name);
            text.lines().for_each(|line| {
                println!("{line}");
                see(line);
            });
            match result {
                Ok(status) if status.success() => {}
                Ok(status) => failed.push(format!("{}: {status}", binary.name)),
                Err(why) => failed.push(format!("{}: {why}", binary.name)),
            }
        }
    });
    if failed.is_empty() { Ok(()) } else { Err(failed.join(", ")) }
}

/// Runs binaries until none is left.
fn work<'a>(queue: &Mutex<std::slice::Iter<'a, Binary>>, ended: &Sender<Ended<'a>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(binary) = next else { return };
        let output = Command::new(&binary.executable)
            .arg("--test-threads=1")
            .current_dir(&binary.package)
            .env("CARGO_MANIFEST_DIR", &binary.package)
            .output();
        let (text, result) = match output {
            Ok(output) => {
                let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                (format!("{out}{err}"), Ok(output.status))
            }
            Err(why) => (String::new(), Err(why.to_string())),
        };
        if ended.send(Ended { binary, text, result }).is_err() {
            return;
        }
    }
}

/// Builds the binaries and lists them, the longest first.
fn binaries() -> Result<Vec<Binary>, String> {
    let line: Line = shell::cargo(BUILD);
    let mut binaries: Vec<Binary> = shell::output_of(&line)?.lines().filter_map(binary_of).collect();
    if binaries.is_empty() {
        return Err(format!("{}: names no test binary", line.text()));
    }
    binaries.sort_by_key(|binary| LONGEST.iter().position(|name| *name == binary.name).unwrap_or(LONGEST.len()));
    Ok(binaries)
}

/// A message of cargo's, as far as it is needed here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Reads the binary from a line of cargo's output, if the line names one.
fn binary_of(line: &str) -> Option<Binary> {
    let message: Message = serde_json::from_str(line).ok().filter(|m: &Message| m.reason == "compiler-artifact")?;
    let package = message.manifest_path.parent().map(Path::to_path_buf)?;
    Some(Binary { name: message.target?.name, executable: message.executable?, package })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_messages_of_cargo() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml","target":{"kind":["test"],"name":"swap"},"executable":"/t/swap-1"}"#;
        let found = binary_of(line).unwrap();
        assert_eq!((found.name.as_str(), found.executable, found.package), ("swap", "/t/swap-1".into(), "/a/b".into()));
        assert!(binary_of(&line.replace("\"/t/swap-1\"", "null")).is_none(), "a library");
        assert!(binary_of(&line.replace("compiler-artifact", "build-script-executed")).is_none());
        assert!(binary_of("no message").is_none());
    }

    #[test]
    fn a_binary_that_fails_is_seen() {
        let binary = |name: &str, executable: &str| Binary {
            name: name.into(),
            executable: executable.into(),
            package: "/".into(),
        };
        let all = [binary("good", "true"), binary("bad", "false"), binary("missing", "/nowhere/at/all")];
        let (sender, ended) = mpsc::channel();
        work(&Mutex::new(all.iter()), &sender);
        drop(sender);
        let good = |e: Ended<'_>| (e.binary.name.clone(), e.result.is_ok_and(|status| status.success()));
        let results: Vec<(String, bool)> = ended.iter().map(good).collect();
        assert_eq!(results, [("good".into(), true), ("bad".into(), false), ("missing".into(), false)]);
    }
}
