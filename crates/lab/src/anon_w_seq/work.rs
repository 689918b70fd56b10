//! The work of one process in a run.

use softfault::clear::ClearOrder;
use std::fmt;

/// The work of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Our clear in this order, then writing.
    Ours(ClearOrder),
    /// Writing fresh huge memory of the host's.
    Linux,
}

impl Work {
    /// The word in tables, in JSON and between the processes.
    pub fn name(self) -> &'static str {
        match self {
            Work::Ours(how) => how.name(),
            Work::Linux => "linux",
        }
    }
    /// Finds the work of that name.
    pub fn named(name: &str) -> Option<Work> {
        if name == Work::Linux.name() { Some(Work::Linux) } else { ClearOrder::named(name).map(Work::Ours) }
    }
    /// The word for whose memory it is.
    pub fn system(self) -> &'static str {
        if self == Work::Linux { "linux" } else { "softfault" }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for work in ClearOrder::ALL.map(Work::Ours).into_iter().chain([Work::Linux]) {
            assert_eq!(Work::named(work.name()), Some(work));
        }
        assert_eq!(Work::named("backward"), None);
    }
}
