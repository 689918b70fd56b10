//! The names and special properties of the rows.

/// The call of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The beginning of all, over memory that is zero.
    Boot,
    /// The same over memory of unknown content.
    BootUnknown,
    /// A touch of a small page.
    Touch4K,
    /// A touch where 64 KiB may come at once.
    Touch64K,
    /// A touch where 2 MiB may.
    Touch2M,
    /// Of a small process.
    Fork,
    /// Of a small process.
    Exit,
    /// Of all that a small process has.
    Munmap,
    /// Of 2 MiB.
    Collapse,
    /// Of 2 MiB.
    Mincore,
    /// The counters of the system.
    Vmstat,
    /// The resident pages of a process.
    Proc,
    /// A touch without a frame.
    Refusal,
}

impl What {
    /// In the order in which they run: a refusal needs memory that is used up.
    pub const ALL: [What; 13] = [
        What::Boot,
        What::BootUnknown,
        What::Touch4K,
        What::Touch64K,
        What::Touch2M,
        What::Fork,
        What::Exit,
        What::Munmap,
        What::Collapse,
        What::Mincore,
        What::Vmstat,
        What::Proc,
        What::Refusal,
    ];

    /// In the table.
    pub fn name(self) -> &'static str {
        match self {
            What::Touch4K => "touch 4 KiB",
            What::Touch64K => "touch 64 KiB",
            What::Touch2M => "touch 2 MiB",
            What::Proc => "/proc",
            What::BootUnknown => "boot, not zero",
            _ => self.key(),
        }
    }

    /// In JSON.
    pub fn key(self) -> &'static str {
        match self {
            What::Boot => "boot",
            What::BootUnknown => "boot_not_zero",
            What::Touch4K => "touch_4k",
            What::Touch64K => "touch_64k",
            What::Touch2M => "touch_2m",
            What::Fork => "fork",
            What::Exit => "exit",
            What::Munmap => "munmap",
            What::Collapse => "collapse",
            What::Mincore => "mincore",
            What::Vmstat => "vmstat",
            What::Proc => "proc",
            What::Refusal => "refusal",
        }
    }

    /// Whether it may visit each CPU, or the summaries of all memory.
    pub fn is_exempt(self) -> bool {
        matches!(self, What::Boot | What::BootUnknown | What::Vmstat | What::Proc)
    }

    /// Whether it waits for the CPUs that run its address space, so that only one does.
    pub fn has_own_space(self) -> bool {
        matches!(self, What::Fork | What::Exit | What::Munmap | What::Collapse | What::Mincore)
    }
}
