//! The processes: started once, told what to run, ended when dropped.

use super::options::Options;
use super::rows::Work;
use super::worker::{self, READY};
use crate::error::LabError;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// From telling the first process to the common start: enough for the last one
/// to have read its line.
const LEAD: Duration = Duration::from_millis(3);

struct Worker {
    child: Child,
    /// Taken when it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// All of them.
pub struct Crew {
    workers: Vec<Worker>,
    bytes_each: u64,
    gives_huge_pages: bool,
}

impl Crew {
    /// Starts them and waits until all have their memory.
    pub fn start(options: &Options, cpus: &[usize]) -> Result<Crew, LabError> {
        let mut crew = Crew { workers: Vec::new(), bytes_each: options.mib << 20, gives_huge_pages: true };
        for i in 0..options.nr_processes()? {
            crew.workers.push(Worker::start(options, cpus[i % cpus.len()])?);
        }
        for worker in &mut crew.workers {
            let said = worker.line()?;
            crew.gives_huge_pages &= said == format!("{READY} true");
        }
        Ok(crew)
    }

    /// Whether the host gives every one of them huge pages.
    pub fn gives_huge_pages(&self) -> bool {
        self.gives_huge_pages
    }

    /// One run of all: what they write in a second, until the last one is done.
    pub fn bytes_per_s(&mut self, work: Work) -> Result<f64, LabError> {
        self.tell(work.name())?;
        for worker in &mut self.workers {
            worker.line()?;
        }
        // Where processes share CPUs, one reads its line later.
        let start = worker::now()? + LEAD * self.workers.len().div_ceil(8) as u32;
        self.tell(&start.as_nanos().to_string())?;
        let mut last_ns: f64 = 0.0;
        for worker in &mut self.workers {
            let said = worker.line()?;
            let ns: f64 = said.parse().map_err(|_| LabError::subsystem("a process of anon-w-seq said", &said))?;
            last_ns = last_ns.max(ns);
        }
        Ok((self.workers.len() as u64 * self.bytes_each) as f64 / (last_ns / 1e9))
    }

    fn tell(&mut self, line: &str) -> Result<(), LabError> {
        for worker in &mut self.workers {
            let input = worker.input.as_mut().expect("it is taken only on drop");
            writeln!(input, "{line}").map_err(|e| LabError::host("telling a process what to run", e))?;
        }
        Ok(())
    }
}

impl Worker {
    fn start(options: &Options, cpu: usize) -> Result<Worker, LabError> {
        let own = std::env::current_exe().map_err(|e| LabError::host("the path of this program", e))?;
        let against = if options.with_linux() { "linux" } else { "none" };
        let mut command = Command::new(own);
        command.args(["anon-w-seq", "--against", against, "--mib", &options.mib.to_string()]);
        command.args(["--worker", &cpu.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| LabError::host("starting a process", e))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Worker { child, input, output })
    }

    /// What it says next; what went wrong it has said on standard error.
    fn line(&mut self) -> Result<String, LabError> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(LabError::host("a process of anon-w-seq", "it ended before its work was done")),
            Ok(_) => Ok(line.trim().to_string()),
            Err(e) => Err(LabError::host("reading what a process says", e)),
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.input = None);
        for worker in &mut self.workers {
            // Its input has ended, and with it the process.
            let _ = worker.child.wait();
        }
    }
}
