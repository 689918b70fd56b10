//! `fuzz COMMAND TARGET PATHS`: runs the inputs of a fuzz target without a fuzzer. `cargo xtask fuzz` calls it.

use clap::Parser;
use softfault_testkit::fuzz::{TARGETS, Target};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
enum Command {
    /// Run each input once, a file or all files of a folder
    Replay { target: String, paths: Vec<PathBuf> },
    /// Run inputs again and again, and print the number of runs in a second
    Rate {
        target: String,
        paths: Vec<PathBuf>,
        /// Bytes of an input: those of a file, and of the files that follow it
        #[arg(long, default_value_t = 256)]
        bytes: usize,
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Replay { target, paths } => replay(&target, &paths),
        Command::Rate { target, paths, bytes, seconds } => rate(&target, &paths, bytes, Duration::from_secs(seconds)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Result<Target, String> {
    let found = TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target);
    found.ok_or_else(|| format!("{name}: should be one of {}", TARGETS.map(|(known, _)| known).join(", ")))
}

/// The inputs with their names, in the order of the names.
fn inputs(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if path.is_dir() {
            for entry in path.read_dir().map_err(failed)? {
                files.push(entry.map_err(failed)?.path());
            }
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    let read = |path: PathBuf| match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    let inputs: Vec<_> = files.into_iter().map(read).collect::<Result<_, _>>()?;
    if inputs.is_empty() { Err("should have at least one input".into()) } else { Ok(inputs) }
}

fn replay(name: &str, paths: &[PathBuf]) -> Result<(), String> {
    let (target, inputs) = (named(name)?, inputs(paths)?);
    for (path, bytes) in &inputs {
        target(bytes).map_err(|found| format!("{}: {found}", path.display()))?;
    }
    println!("{name}: {} inputs", inputs.len());
    Ok(())
}

fn rate(name: &str, paths: &[PathBuf], nr_bytes: usize, least: Duration) -> Result<(), String> {
    let (target, inputs) = (named(name)?, inputs(paths)?);
    let all: Vec<u8> = inputs.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    let mut start = 0;
    let mut cut = Vec::new();
    for (_, bytes) in &inputs {
        cut.push(all.iter().cycle().skip(start).take(nr_bytes).copied().collect::<Vec<u8>>());
        start += bytes.len();
    }
    let (begun, cpu_begun, mut nr_runs) = (Instant::now(), cpu_time()?, 0);
    while begun.elapsed() < least {
        for bytes in &cut {
            target(bytes)?;
        }
        nr_runs += cut.len();
    }
    let per_second = |time: Duration| nr_runs as f64 / time.as_secs_f64();
    let (wall, cpu) = (per_second(begun.elapsed()), per_second(cpu_time()?.saturating_sub(cpu_begun)));
    println!("{name}: {nr_runs} runs of {nr_bytes} bytes: {wall:.0} a second, {cpu:.0} a second of CPU time");
    Ok(())
}

/// The CPU time of this process and all threads that it has had, in ticks of 10 ms; others' work does not count.
fn cpu_time() -> Result<Duration, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("stat: {error}"))?;
    // proc(5): the fields 14 and 15. The second one, the name, ends with the last parenthesis.
    let ticks: Option<Vec<u64>> = text
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().skip(11).take(2).filter_map(|number| number.parse().ok()).collect());
    match ticks.as_deref() {
        Some([user, system]) => Ok(Duration::from_millis(10 * (user + system))),
        _ => Err(format!("stat: {text:?}")),
    }
}
