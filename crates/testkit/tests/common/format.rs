//! The page-table format of a suite: x86-64's, unless `formats.rs` includes the suite in
//! a module that has the name of another one.

use softfault::table::format::{Sv39, Sv48, X86_64};
use softfault_testkit::formats::Tested;

/// A format by its number.
pub struct Number<const N: u32>;

pub trait Choice {
    type Format: Tested;
}

impl Choice for Number<0> {
    type Format = X86_64;
}

impl Choice for Number<39> {
    type Format = Sv39;
}

impl Choice for Number<48> {
    type Format = Sv48;
}

const NUMBER: u32 = number(module_path!());

/// The number after the first `::sv` of a path, 0 where there is none.
const fn number(path: &str) -> u32 {
    let path = path.as_bytes();
    let mut i = 5;
    while i < path.len() {
        if let [b':', b':', b's', b'v', tens @ b'0'..=b'9'] =
            [path[i - 4], path[i - 3], path[i - 2], path[i - 1], path[i]]
        {
            return (tens - b'0') as u32 * 10 + (path[i + 1] - b'0') as u32;
        }
        i += 1;
    }
    0
}

/// The format that the suite is compiled for.
pub type Format = <Number<NUMBER> as Choice>::Format;
pub type Hosted = softfault_host::Hosted<Format>;
pub type CpuGuard<'m> = softfault_host::CpuGuard<'m, Format>;
pub type Running<'a> = softfault_host::Running<'a, Format>;

/// Whether the suite runs in full. On other formats it is there for what they change.
pub const IS_FULL: bool = NUMBER == 0;

/// Repetitions where the suite in full has `nr` of them.
pub const fn fewer(nr: u64) -> u64 {
    if IS_FULL { nr } else { nr.div_ceil(8) }
}
