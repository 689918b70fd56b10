//! The host's pool of huge pages, grown for an experiment and put back at its end ([`Knob`]).

use super::Knob;
use std::fs;
use std::path::{Path, PathBuf};

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
        let folder = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB"));
        refuse_surplus(&folder)?;
        let path = folder.join("nr_hugepages");
        let knob = Knob::at(&path).map_err(|e| format!("{}: {e}; to set it needs root", path.display()))?;
        let wanted = knob.before() + nr_pages;
        let now = knob.set(wanted).and_then(|()| knob.read()).map_err(|e| format!("{}: {e}", path.display()))?;
        if now < wanted {
            return Err(format!("the host's pool has {now} pages of {kib} KiB, should be {wanted}"));
        }
        Ok(HostPool { _knob: knob })
    }
}

/// `nr_hugepages` reads with surplus pages and is set without: written back, it would keep pages that are to go.
fn refuse_surplus(folder: &Path) -> Result<(), String> {
    let path = folder.join("surplus_hugepages");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    match text.trim() {
        "0" => Ok(()),
        nr => {
            Err(format!("the host's pool has {nr} surplus pages ({}), should be 0: end who uses them", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_surplus_pages_is_not_touched() {
        let folder = std::env::temp_dir().join(format!("softfault-surplus-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let with = |text: &str| {
            fs::write(folder.join("surplus_hugepages"), text).unwrap();
            refuse_surplus(&folder)
        };
        let (none, some) = (with("0\n"), with("3\n"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(none, Ok(()));
        assert!(some.is_err_and(|why| why.contains("3 surplus pages")));
    }
}
