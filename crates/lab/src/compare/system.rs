//! The two systems that are compared.

use clap::ValueEnum;
use std::fmt;

/// The system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum System {
    /// The reference kernel.
    Softfault,
    /// Debian's Linux.
    Linux,
}

impl System {
    /// Its value of the key `system`.
    pub fn key(self) -> &'static str {
        match self {
            System::Softfault => "softfault",
            System::Linux => "linux",
        }
    }
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            System::Softfault => "the reference kernel",
            System::Linux => "Linux",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
