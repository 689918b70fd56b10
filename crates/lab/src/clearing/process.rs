//! A process of this program beside it, which is told what to do and answers, a
//! line each: for experiments that need memory of its own.

use crate::error::LabError;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// It ends when this is dropped.
pub struct Process {
    child: Child,
    /// Taken when it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// This program with these arguments.
    pub fn start(arguments: &[&str]) -> Result<Process, LabError> {
        let own = std::env::current_exe().map_err(|e| LabError::host("the path of this program", e))?;
        let mut command = Command::new(own);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| LabError::host("starting a process", e))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Process { child, input, output })
    }

    /// A line that it hears.
    pub fn tell(&mut self, line: &str) -> Result<(), LabError> {
        let input = self.input.as_mut().expect("it is taken only on drop");
        writeln!(input, "{line}").map_err(|e| LabError::host("telling a process what to run", e))
    }

    /// Its next line; it prints errors on standard error.
    pub fn line(&mut self) -> Result<String, LabError> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(LabError::host("a process of the experiment", "it ended before its work was done")),
            Ok(_) => Ok(line.trim().to_string()),
            Err(e) => Err(LabError::host("reading what a process says", e)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        // Its input has ended, and with it the process.
        let _ = self.child.wait();
    }
}

/// In the process: the next line it is told, if there is one.
pub fn hear() -> Result<Option<String>, LabError> {
    std::io::stdin().lines().next().transpose().map_err(|e| LabError::host("reading what to run", e))
}

/// In the process: an answer.
pub fn say(line: &str) -> Result<(), LabError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| LabError::host("writing to the command", e))
}
