//! Options of a hugetlbfs, as mount(2) takes them and `/proc/mounts` shows them: Linux's.

use crate::linux::errno::{self, Errno};
use crate::linux::number;
use crate::port::mm;
use core::fmt;
use softfault::{Order, SubpoolLimits};

/// Mode bits that the option can set.
const MODE_BITS: u32 = 0o1777;
const PAGE_BYTES: u64 = 4096;

/// The options of a mount of hugetlbfs.
#[derive(Clone, Copy)]
pub struct Options {
    /// The size of the pages.
    pub order: Order,
    /// The most pages, and those that are promised, if one of them is said.
    pub sizes: Option<SubpoolLimits>,
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
        let mut options = Options { order: mm::default_huge_order(), sizes: None, nr_inodes: None, mode: 0o755, owner };
        let [mut most, mut least] = [None; 2];
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(Errno::EINVAL)?;
            let id = || value.parse().map_err(|_| Errno::EINVAL);
            match name {
                "pagesize" => options.order = mm::huge_order_of(number_of(value)?).ok_or(Errno::EINVAL)?,
                "size" => most = Some(Size::parse(value)?),
                "min_size" => least = Some(Size::parse(value)?),
                "nr_inodes" => options.nr_inodes = Some(number_of(value)?),
                "mode" => options.mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)? & MODE_BITS,
                "uid" => options.owner[0] = id()?,
                "gid" => options.owner[1] = id()?,
                _ => return Err(Errno::EINVAL),
            }
        }
        let pages = |size: Option<Size>| size.map(|size| size.pages(options.order));
        if most.is_some() || least.is_some() {
            let limits = SubpoolLimits::default().with_most(pages(most)).with_least(pages(least).unwrap_or(0));
            options.sizes = Some(limits);
        }
        Ok(options)
    }
}

/// A size as an option has it.
#[derive(Clone, Copy)]
enum Size {
    Bytes(u64),
    /// Of the pool's pages.
    Percent(u64),
}

impl Size {
    fn parse(text: &str) -> errno::Result<Size> {
        text.strip_suffix('%')
            .map_or_else(|| number_of(text).map(Size::Bytes), |part| number_of(part).map(Size::Percent))
    }
    /// In whole pages.
    fn pages(self, order: Order) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes / (order.nr_pages() * PAGE_BYTES),
            Size::Percent(part) => {
                let counts = mm::huge_counts(order);
                (counts.nr - counts.surplus).saturating_mul(part) / 100
            }
        }
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
        write!(f, ",pagesize={mib}M")?;
        let sizes = self.sizes.unwrap_or_default();
        let bytes = |pages: u64| pages.saturating_mul(self.order.nr_pages() * PAGE_BYTES);
        if let Some(most) = sizes.most {
            write!(f, ",size={}", bytes(most))?;
        }
        if sizes.least > 0 { write!(f, ",min_size={}", bytes(sizes.least)) } else { Ok(()) }
    }
}

fn number_of(text: &str) -> errno::Result<u64> {
    number::size(text.as_bytes()).ok_or(Errno::EINVAL)
}
