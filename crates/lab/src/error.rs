//! The errors of experiments, and their exit codes.

use std::fmt;
use std::process::ExitCode;

/// Why an experiment has no result.
#[derive(Debug)]
pub enum LabError {
    /// An argument that parses and yet cannot be meant.
    Argument {
        /// As it is typed: `--gib`.
        name: &'static str,
        /// The value that was typed.
        given: String,
        /// The condition that it should meet.
        wanted: String,
    },
    /// The host refused something: memory, a thread, a file.
    Host {
        /// The action that was refused.
        what: String,
        /// The host's reason.
        why: String,
    },
    /// The subsystem did not do what the experiment rests on.
    Subsystem {
        /// The action that failed.
        what: String,
        /// The subsystem's reason.
        why: String,
    },
    /// A machine in QEMU could not be started, or a program in it did not come to its end.
    Machine {
        /// The exit code, as of `softfault run`.
        code: u8,
        /// The reason.
        why: String,
    },
}

impl LabError {
    /// A [`LabError::Host`].
    pub fn host(what: impl Into<String>, why: impl fmt::Display) -> LabError {
        LabError::Host { what: what.into(), why: why.to_string() }
    }
    /// A [`LabError::Subsystem`].
    pub fn subsystem(what: impl Into<String>, why: impl fmt::Display) -> LabError {
        LabError::Subsystem { what: what.into(), why: why.to_string() }
    }
    /// 2 for what the caller typed, the code of a machine, 1 for the rest.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            LabError::Argument { .. } => 2,
            LabError::Machine { code, .. } => *code,
            LabError::Host { .. } | LabError::Subsystem { .. } => 1,
        })
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Argument { name, given, wanted } => write!(f, "{name} {given}: {wanted}"),
            LabError::Host { what, why } => write!(f, "the host refused: {what}: {why}"),
            LabError::Subsystem { what, why } => write!(f, "{what}: {why}"),
            LabError::Machine { why, .. } => f.write_str(why),
        }
    }
}
