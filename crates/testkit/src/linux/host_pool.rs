//! The host's pool of 2 MiB pages while sequences use it: empty before, as it was afterwards.

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
pub(super) struct HostPool(());

impl HostPool {
    /// Takes the pool, if it is empty and this process may set it.
    pub(super) fn take() -> io::Result<HostPool> {
        for name in ["nr_hugepages", "nr_overcommit_hugepages", "resv_hugepages"] {
            let nr = read(name)?;
            if nr != 0 {
                return Err(io::Error::other(format!("the host's pool of 2 MiB pages: {name} is {nr}, should be 0")));
            }
        }
        if !crate::native::open_host_pool() {
            return Err(io::Error::other("the host's pool of 2 MiB pages cannot be set: it takes root"));
        }
        Ok(HostPool(()))
    }

    /// Waits until no program has anything of the pool. Returns what is left otherwise.
    pub(super) fn settle(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let [nr, free, reserved, surplus] =
                ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"]
                    .map(|name| read(name).unwrap_or(u64::MAX));
            if nr == free && reserved == 0 && surplus == 0 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("{free} of {nr} free, {reserved} reserved, {surplus} surplus"));
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
