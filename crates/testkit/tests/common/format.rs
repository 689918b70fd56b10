//! The page-table format of a suite: x86-64's, unless `formats.rs` includes the suite in
//! a module that has the name of another one.

use softfault::table::format::{Sv39, Sv48, X86_64};
use softfault_testkit::formats::{Tested, Vmsa48};

/// A format by its name.
pub struct Named<const N: usize>;

pub trait Choice {
    type Format: Tested;
}

impl Choice for Named<0> {
    type Format = X86_64;
}

impl Choice for Named<1> {
    type Format = Sv39;
}

impl Choice for Named<2> {
    type Format = Sv48;
}

impl Choice for Named<3> {
    type Format = Vmsa48;
}

const NAME: usize = if has(module_path!(), "::sv39::") {
    1
} else if has(module_path!(), "::sv48::") {
    2
} else if has(module_path!(), "::vmsa48::") {
    3
} else {
    0
};

const fn has(path: &str, part: &str) -> bool {
    let (path, part) = (path.as_bytes(), part.as_bytes());
    let mut start = 0;
    while start + part.len() <= path.len() {
        let mut nr_same = 0;
        while nr_same < part.len() && path[start + nr_same] == part[nr_same] {
            nr_same += 1;
        }
        if nr_same == part.len() {
            return true;
        }
        start += 1;
    }
    false
}

/// The format that the suite is compiled for.
pub type Format = <Named<NAME> as Choice>::Format;
pub type Hosted = softfault_host::Hosted<Format>;
pub type CpuGuard<'m> = softfault_host::CpuGuard<'m, Format>;
pub type Running<'a> = softfault_host::Running<'a, Format>;

/// Whether the suite runs in full. On other formats it is there for what they change.
pub const IS_FULL: bool = NAME == 0;

/// Repetitions where the suite in full has `nr` of them.
pub const fn fewer(nr: u64) -> u64 {
    if IS_FULL { nr } else { nr.div_ceil(8) }
}
