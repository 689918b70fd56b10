//! Lines of the sources that a corpus runs.
//!
//! The runner is built with the compiler's counters into a folder of its own, and runs the corpus. The LLVM of the toolchain
//! reads the counters, because the format changes with its version.

use super::{corpus, failed};
use crate::shell::{self, Line};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "target/fuzz-coverage";
/// Folders whose lines count, by target, and the least share of them that a corpus has to run, in percent.
const COUNTED: [(&str, &str, f64); 3] = [
    ("memory", "crates/softfault/src/fault/", 70.0),
    ("memory", "crates/softfault/src/space/ops/", 70.0),
    ("parsers", "crates/kernel/src/linux/", 70.0),
];

/// The output of `llvm-cov export`, as far as it is read.
#[derive(Deserialize)]
struct Export {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    filename: PathBuf,
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    lines: Lines,
}

#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Lines {
    count: u64,
    covered: u64,
}

/// Prints the lines of each counted file, and of each folder.
///
/// # Errors
///
/// A folder of which the corpus runs too little, or a program that failed.
pub fn run(target: &str) -> Result<(), String> {
    let folder = shell::top().join(FOLDER);
    let build = "build -p softfault-testkit --bin fuzz";
    let flags = "-Cinstrument-coverage";
    shell::run(&shell::cargo(build).with("RUSTFLAGS", flags).with("CARGO_TARGET_DIR", &folder.to_string_lossy()))?;
    let program = folder.join("debug/fuzz").to_string_lossy().into_owned();
    let (raw, merged) = (folder.join("run.profraw"), folder.join("run.profdata"));
    _ = fs::remove_file(&raw);
    let replay = Line::new(&program, &format!("replay {target} {}", corpus(target)));
    shell::run(&replay.with("LLVM_PROFILE_FILE", &raw.to_string_lossy()))?;
    let (raw, merged) = (raw.display(), merged.display());
    shell::run(&Line::new(&tool("llvm-profdata")?, &format!("merge -sparse {raw} -o {merged}")))?;
    let export = format!("export --summary-only --instr-profile={merged} {program}");
    let text = shell::output_of(&Line::new(&tool("llvm-cov")?, &export))?;
    let export: Export = serde_json::from_str(&text).map_err(|error| format!("llvm-cov: {error}"))?;
    let files: Vec<(String, Lines)> = export.data.iter().flat_map(|data| &data.files).map(named).collect();
    print(target, &files)
}

/// The program of the toolchain that compiles.
fn tool(name: &str) -> Result<String, String> {
    let sysroot = shell::output_of(&Line::new("rustc", "--print sysroot"))?;
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    let found = fs::read_dir(&targets).map_err(failed(&targets))?.flatten();
    let found = found.map(|entry| entry.path().join("bin").join(name)).find(|path| path.is_file());
    let missing = || format!("{name} is missing: `rustup component add llvm-tools` installs it");
    found.map(|path| path.to_string_lossy().into_owned()).ok_or_else(missing)
}

/// The file's path in the checkout, without steps up.
fn named(file: &File) -> (String, Lines) {
    let path = fs::canonicalize(&file.filename).unwrap_or_else(|_| file.filename.clone());
    let path = path.strip_prefix(shell::top()).unwrap_or(&path);
    (path.to_string_lossy().into_owned(), file.summary.lines)
}

fn print(target: &str, files: &[(String, Lines)]) -> Result<(), String> {
    let mut low = Vec::new();
    for (_, counted, least) in COUNTED.iter().filter(|(of, ..)| *of == target) {
        let below: Vec<&(String, Lines)> = files.iter().filter(|(path, _)| path.starts_with(counted)).collect();
        below.iter().for_each(|(path, lines)| println!("{:5.1} % of {:5} lines  {path}", lines.percent(), lines.count));
        let sum = below.iter().fold(Lines::default(), |sum, (_, lines)| sum.with(*lines));
        println!("{:5.1} % of {:5} lines  all of {counted}\n", sum.percent(), sum.count);
        if sum.count == 0 || sum.percent() < *least {
            low.push(format!("{:.1} % of {counted}, should be {least} %", sum.percent()));
        }
    }
    if low.is_empty() { Ok(()) } else { Err(format!("the corpus of {target} runs {}", low.join("; "))) }
}

impl Lines {
    fn with(self, more: Lines) -> Lines {
        Lines { count: self.count + more.count, covered: self.covered + more.covered }
    }

    /// Of no lines none is run.
    fn percent(self) -> f64 {
        if self.count == 0 { 0.0 } else { 100.0 * self.covered as f64 / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_run_too_little_is_named() {
        let file = |path: &str, covered| (path.to_owned(), Lines { count: 100, covered });
        let files = |covered| {
            let fault = COUNTED[0].1;
            vec![
                file(&format!("{fault}a.rs"), 90),
                file(&format!("{fault}b.rs"), covered),
                file(&format!("{}c.rs", COUNTED[1].1), 70),
            ]
        };
        assert_eq!(print("memory", &files(50)), Ok(()));
        let why = print("memory", &files(49)).unwrap_err();
        assert_eq!(why, "the corpus of memory runs 69.5 % of crates/softfault/src/fault/, should be 70 %");
        assert!(print("memory", &files(50)[..2]).unwrap_err().contains("0.0 % of crates/softfault/src/space/ops/"));
    }

    #[test]
    fn what_llvm_cov_writes() {
        let text = r#"{"data":[{"files":[{"filename":"/nowhere/a.rs","summary":{"lines":{"count":4,"covered":1,"percent":25}}}]}],"type":"x"}"#;
        let export: Export = serde_json::from_str(text).unwrap();
        let (path, lines) = named(&export.data[0].files[0]);
        assert_eq!((path.as_str(), lines, lines.percent()), ("/nowhere/a.rs", Lines { count: 4, covered: 1 }, 25.0));
    }
}
