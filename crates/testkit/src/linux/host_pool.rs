//! The host's pool of 2 MiB pages while sequences use it: empty before, as it was afterwards. What counts as empty has no page but
//! those that the host's kernel keeps reserved although no process has them (`docs/hugetlb.md`).

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Programs of a sequence end when they see the next one.
const PATIENCE: Duration = Duration::from_secs(300);

fn read(name: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(Path::new(FOLDER).join(name))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{name}: {text:?}, should be a number")))
}

/// The right to set it. The pool is empty again when this is dropped.
pub(super) struct HostPool {
    /// Pages that are reserved for nobody.
    nr_kept: u64,
}

/// `nr_hugepages`, `free_hugepages`, `resv_hugepages` and `surplus_hugepages`.
fn counts() -> io::Result<[u64; 4]> {
    Ok([read("nr_hugepages")?, read("free_hugepages")?, read("resv_hugepages")?, read("surplus_hugepages")?])
}

impl HostPool {
    /// Takes the pool, if it is empty and this process may set it.
    pub(super) fn take() -> io::Result<HostPool> {
        let (counts @ [nr_kept, free, reserved, surplus], most) = (counts()?, read("nr_overcommit_hugepages")?);
        // The kernel counts the pages that it keeps as surplus, unless the size that was set last has them.
        if most != 0 || [free, reserved] != [nr_kept; 2] || ![0, nr_kept].contains(&surplus) {
            let what = "pages, free, reserved and surplus ones, and the most of these";
            return Err(io::Error::other(format!(
                "the host's pool of 2 MiB pages should be empty, and has {counts:?}, {most}: {what}"
            )));
        }
        if !crate::native::open_host_pool(nr_kept) {
            return Err(io::Error::other("the host's pool of 2 MiB pages cannot be set: it takes root"));
        }
        if nr_kept > 0 {
            eprintln!(
                "the host's pool of 2 MiB pages: its kernel keeps {nr_kept} reserved for nobody; sizes are beyond them"
            );
        }
        Ok(HostPool { nr_kept })
    }

    /// Waits until no program has anything of the pool. Returns what is left otherwise.
    pub(super) fn settle(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let [nr, free, reserved, surplus] = counts().map_err(|error| error.to_string())?;
            if nr == free && reserved == self.nr_kept && surplus == 0 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                let kept = self.nr_kept;
                return Err(format!(
                    "{free} of {nr} free, {reserved} reserved, {kept} of them before, {surplus} surplus"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for HostPool {
    fn drop(&mut self) {
        for name in ["nr_overcommit_hugepages", "nr_hugepages"] {
            if let Err(error) = std::fs::write(Path::new(FOLDER).join(name), "0") {
                eprintln!("the host's pool of 2 MiB pages: {name} could not be set back to 0: {error}");
            }
        }
    }
}
