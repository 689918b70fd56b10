//! Page-table formats that tests run on, each with hardware of its kind.

mod vmsa48;

use crate::op::PAGE;
use softfault::table::format::{Format, Sv39, Sv48, X86_64, X86_64La57};
use softfault_host::HostedConfig;

pub use vmsa48::Vmsa48;

/// A format with the hosted machine that it is tested on.
pub trait Tested: Format {
    /// Whether the machine leaves accessed and dirty to software.
    const SOFTWARE_AD_BITS: bool;
    /// One past the last user address.
    const TASK_SIZE: u64 = Self::USER_PAGES * PAGE;

    /// Such a machine, for what is not chosen otherwise.
    fn config() -> HostedConfig {
        HostedConfig::default().with_software_ad_bits(Self::SOFTWARE_AD_BITS)
    }
}

impl Tested for X86_64 {
    const SOFTWARE_AD_BITS: bool = false;
}

impl Tested for X86_64La57 {
    const SOFTWARE_AD_BITS: bool = false;
}

/// With Svade.
impl Tested for Sv39 {
    const SOFTWARE_AD_BITS: bool = true;
}

/// With Svade.
impl Tested for Sv48 {
    const SOFTWARE_AD_BITS: bool = true;
}

/// With FEAT_HAFDBS: the walk makes a page dirty by clearing a bit.
impl Tested for Vmsa48 {
    const SOFTWARE_AD_BITS: bool = false;
}
