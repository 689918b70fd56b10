//! The host's pool of huge pages, grown for an experiment and put back at its end ([`Knob`]).

use super::Knob;
use std::path::PathBuf;

/// The host's pool, as large as an experiment needs it.
pub struct HostPool {
    _knob: Knob,
}

impl HostPool {
    /// Grows the pool by `nr_pages` pages.
    ///
    /// # Errors
    ///
    /// Says why the pool could not be grown.
    pub fn grown(page_bytes: u64, nr_pages: u64) -> Result<HostPool, String> {
        let kib = page_bytes >> 10;
        let path = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"));
        let knob = Knob::at(&path).map_err(|e| format!("{}: {e}; to set it needs root", path.display()))?;
        let wanted = knob.before() + nr_pages;
        let now = knob.set(wanted).and_then(|()| knob.read()).map_err(|e| format!("{}: {e}", path.display()))?;
        if now < wanted {
            return Err(format!("the host's pool has {now} pages of {kib} KiB, should be {wanted}"));
        }
        Ok(HostPool { _knob: knob })
    }
}
