//! Advice of madvise(2).

use crate::errno::op_error;

op_error! {
    /// Why a number is no [`Advice`].
    AdviceError {
        Unknown: EINVAL = "advice: should be one of MADV_*",
    }
}

/// Declares the enum and both conversions from one table.
macro_rules! advices {
    ($($name:ident = $number:literal, $linux:literal, $doc:literal;)*) => {
        /// Advice of a program about its memory (`MADV_*`). Advice that Linux knows and
        /// that is not here is refused, as by a Linux that is built without it.
        ///
        /// Source: madvise(2).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum Advice {
            $(#[doc = concat!("`", $linux, "`: ", $doc)] $name = $number,)*
        }

        impl Advice {
            /// All, in the order of Linux's numbers.
            pub const ALL: &[Advice] = &[$(Advice::$name),*];

            /// The advice with Linux's number `advice`. The system call takes an int: the
            /// high half does not count.
            ///
            /// # Errors
            ///
            /// [`AdviceError::Unknown`].
            pub const fn from_linux(advice: u64) -> Result<Advice, AdviceError> {
                match advice as u32 {
                    $($number => Ok(Advice::$name),)*
                    _ => Err(AdviceError::Unknown),
                }
            }
            /// As Linux's headers spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Advice::$name => $linux),* }
            }
        }
    };
}

advices! {
    Normal = 0, "MADV_NORMAL", "no order of accesses is expected; takes `Random` and `Sequential` back.";
    Random = 1, "MADV_RANDOM", "accesses come in any order.";
    Sequential = 2, "MADV_SEQUENTIAL", "accesses come in order.";
    WillNeed = 3, "MADV_WILLNEED", "accesses come soon. There are no files to read ahead: the range is checked.";
    DontNeed = 4, "MADV_DONTNEED", "the contents are not needed; the pages go at once.";
    Free = 8, "MADV_FREE", "the contents may go when memory is short, until the next store.";
    Remove = 9, "MADV_REMOVE", "makes a hole in the object: see [`Machine::punch_hole`](crate::Machine::punch_hole).";
    DontFork = 10, "MADV_DONTFORK", "not in a child.";
    DoFork = 11, "MADV_DOFORK", "takes `DontFork` back.";
    HugePage = 14, "MADV_HUGEPAGE", "huge pages are wanted.";
    NoHugePage = 15, "MADV_NOHUGEPAGE", "huge pages are refused.";
    DontDump = 16, "MADV_DONTDUMP", "left out of core dumps.";
    DoDump = 17, "MADV_DODUMP", "takes `DontDump` back.";
    WipeOnFork = 18, "MADV_WIPEONFORK", "zeroes in a child.";
    KeepOnFork = 19, "MADV_KEEPONFORK", "takes `WipeOnFork` back.";
    Cold = 20, "MADV_COLD", "first to be reclaimed: uses of pages of files are forgotten.";
    PageOut = 21, "MADV_PAGEOUT", "to be reclaimed now: pages of files are written and dropped.";
    PopulateRead = 22, "MADV_POPULATE_READ", "pages are brought in as by loads.";
    PopulateWrite = 23, "MADV_POPULATE_WRITE", "pages are brought in as by stores.";
    DontNeedLocked = 24, "MADV_DONTNEED_LOCKED", "as `DontNeed`, of locked pages too.";
    Collapse = 25, "MADV_COLLAPSE", "makes huge pages of what is there, now.";
    GuardInstall = 102, "MADV_GUARD_INSTALL", "the pages go, and an access to one is refused.";
    GuardRemove = 103, "MADV_GUARD_REMOVE", "takes guards away.";
}

impl Advice {
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self as u64
    }
}
