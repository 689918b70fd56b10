//! The processes: started once, told what to run, ended when dropped.

use super::options::Options;
use super::work::Work;
use super::worker::{self, READY};
use crate::clearing::process::Process;
use crate::error::LabError;
use std::time::Duration;

/// From telling the first process to the common start: enough for the last one
/// to have read its line.
const LEAD: Duration = Duration::from_millis(3);

/// All of them.
pub struct Crew {
    workers: Vec<Process>,
    bytes_each: u64,
    gives_huge_pages: bool,
}

impl Crew {
    /// Starts them and waits until all have their memory.
    pub fn start(options: &Options, nr_processes: usize, cpus: &[usize]) -> Result<Crew, LabError> {
        let mut crew = Crew { workers: Vec::new(), bytes_each: options.mib << 20, gives_huge_pages: true };
        let against = if options.with_linux() { "linux" } else { "none" };
        for i in 0..nr_processes {
            let (mib, cpu) = (options.mib.to_string(), cpus[i % cpus.len()].to_string());
            let arguments = ["anon-w-seq", "--against", against, "--mib", &mib, "--worker", &cpu];
            crew.workers.push(Process::start(&arguments)?);
        }
        for worker in &mut crew.workers {
            let said = worker.line()?;
            crew.gives_huge_pages &= said == format!("{READY} true");
        }
        Ok(crew)
    }

    /// How many there are.
    pub fn nr_processes(&self) -> usize {
        self.workers.len()
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
        self.workers.iter_mut().try_for_each(|worker| worker.tell(line))
    }
}
