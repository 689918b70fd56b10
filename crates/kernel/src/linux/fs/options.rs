//! Options of a hugetlbfs, as mount(2) takes them and `/proc/mounts` shows them: Linux's, but for `size=` and
//! `min_size=`, which are refused.

use crate::linux::errno::{self, Errno};
use crate::port::mm;
use core::fmt;
use softfault::Order;

/// Mode bits that the option can set.
const MODE_BITS: u32 = 0o1777;
const PAGE_BYTES: u64 = 4096;

/// What the options say.
#[derive(Clone, Copy)]
pub struct Options {
    /// The size of the pages.
    pub order: Order,
    /// The most inodes, if there is a limit.
    pub nr_inodes: Option<u64>,
    /// Mode of the root.
    pub mode: u32,
    /// Its user and group.
    pub owner: [u32; 2],
}

impl Options {
    /// Reads them; `owner` is who mounts it.
    pub fn parse(text: &[u8], owner: [u32; 2]) -> errno::Result<Options> {
        let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let mut options = Options { order: Order::PMD, nr_inodes: None, mode: 0o755, owner };
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(Errno::EINVAL)?;
            let id = || value.parse().map_err(|_| Errno::EINVAL);
            match name {
                "pagesize" => options.order = order_of(number_of(value)?)?,
                "nr_inodes" => options.nr_inodes = Some(number_of(value)?),
                "mode" => options.mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)? & MODE_BITS,
                "uid" => options.owner[0] = id()?,
                "gid" => options.owner[1] = id()?,
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(options)
    }
}

/// As they follow other options in a line.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [uid, gid] = self.owner;
        if uid != 0 {
            write!(f, ",uid={uid}")?;
        }
        if gid != 0 {
            write!(f, ",gid={gid}")?;
        }
        if self.mode != 0o755 {
            write!(f, ",mode={:o}", self.mode)?;
        }
        if let Some(most) = self.nr_inodes {
            write!(f, ",nr_inodes={most}")?;
        }
        let mib = (self.order.nr_pages() * PAGE_BYTES) >> 20;
        write!(f, ",pagesize={mib}M")
    }
}

/// A number, perhaps with a unit of sizes.
fn number_of(text: &str) -> errno::Result<u64> {
    let shift = match text.bytes().last().map(|unit| unit.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(shift > 0)];
    let number: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    number.checked_mul(1 << shift).ok_or(Errno::EINVAL)
}

fn order_of(bytes: u64) -> errno::Result<Order> {
    mm::HUGE_ORDERS.into_iter().find(|order| order.nr_pages() * PAGE_BYTES == bytes).ok_or(Errno::EINVAL)
}
