//! Does the recorder miss a write? The same run is told twice: by the recording
//! facade, and by valgrind, which sees every store of the process.
//!
//! ```text
//! cargo run --release -p softfault-recorded --example trace_check
//! ```
//! A child does the work under `valgrind --tool=lackey --trace-mem=yes`; here its
//! stores into the machine's memory and into the `Vm` are held against what its
//! recorder wrote down: the same words, in the same order, by the same CPUs. Other
//! stores must be whole pages of content, which are no shared cells.
//! `--plant` makes the child write one word behind the recorder's back: the
//! command fails then, or it would prove nothing.
//!
//! Neighbours: `work` is the child, `compare` the judge.

mod compare;
mod work;

use compare::{Told, Traced};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plants = arguments.iter().any(|a| a == "--plant");
    if arguments.iter().any(|a| a == work::ARGUMENT) {
        work::run(plants);
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = arguments.iter().find(|a| *a != "--plant") {
        eprintln!("{unknown}: the only argument is --plant");
        return ExitCode::from(2);
    }
    match check(plants) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("trace_check: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(plants: bool) -> Result<bool, String> {
    let mut child = start(plants)?;
    let errors = child.stderr.take().ok_or("no standard error")?;
    // Both pipes have to be drained at once, or the child waits for ever.
    let trace = std::thread::spawn(move || stores(errors));
    let mut told = String::new();
    child.stdout.take().ok_or("no standard output")?.read_to_string(&mut told).map_err(|e| e.to_string())?;
    let trace = trace.join().map_err(|_| "the reader of the trace failed")?;
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("valgrind ended with {status}: {}", trace.last_words));
    }
    Ok(compare::judge(&Told::parse(&told)?, &trace))
}

fn start(plants: bool) -> Result<Child, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(own)
        .arg(work::ARGUMENT)
        .args(plants.then_some("--plant"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("valgrind: {e}; on Debian: apt-get install valgrind"))
}

/// The stores of a trace: ` S 1ffefffe78,8` stores, ` M 04a2b0c0,8` loads and
/// stores.
fn stores(errors: impl Read) -> Traced {
    let mut traced = Traced::default();
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        match line.strip_prefix(" S ").or_else(|| line.strip_prefix(" M ")).and_then(|store| store.split_once(',')) {
            Some((addr, bytes)) => match (u64::from_str_radix(addr, 16), bytes.parse()) {
                (Ok(addr), Ok(bytes)) => traced.stores.push((addr, bytes)),
                _ => traced.last_words = line,
            },
            None if line.starts_with("==") => traced.last_words = line,
            None => {}
        }
    }
    traced
}
