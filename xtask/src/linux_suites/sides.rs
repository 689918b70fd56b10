//! Where a batch is run: on this host's Linux in a chroot, and on the reference kernel.
//!
//! The chroot has namespaces of its own for mounts, processes, IPC and the host's name. Settings of the kernel that tests
//! change are written back at the end, also after a signal. Nothing else of the host is touched.

use super::list::Suite;
use super::script::Reader;
use crate::shell;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Linux,
    Ours,
}

impl Side {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Side::Linux => "this host's Linux",
            Side::Ours => "the reference kernel",
        }
    }
}

/// Runs the tests in the folder `$1`, and puts the host's settings back.
const ON_LINUX: &str = r#"
saved=
for file in /proc/sys/vm/nr_hugepages /proc/sys/vm/nr_overcommit_hugepages /proc/sys/vm/overcommit_memory \
    /proc/sys/vm/overcommit_ratio /proc/sys/vm/max_map_count /proc/sys/vm/min_free_kbytes /proc/sys/vm/swappiness \
    /proc/sys/vm/panic_on_oom /proc/sys/kernel/shmmax /proc/sys/kernel/shmall /proc/sys/kernel/shmmni \
    /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max /proc/sys/kernel/core_pattern \
    /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag \
    /sys/kernel/mm/transparent_hugepage/shmem_enabled /sys/kernel/mm/transparent_hugepage/use_zero_page \
    /sys/kernel/mm/transparent_hugepage/khugepaged/* /sys/kernel/mm/transparent_hugepage/hugepages-*/enabled \
    /sys/kernel/mm/hugepages/hugepages-*/nr_hugepages /sys/kernel/mm/hugepages/hugepages-*/nr_overcommit_hugepages \
    /sys/kernel/mm/ksm/*
do
    [ -w "$file" ] && value=$(cat "$file" 2>/dev/null) || continue
    case $value in *\[*\]*) value=${value##*\[}; value=${value%%\]*} ;; esac
    saved="$saved $file=$value"
done
restore() { for pair in $saved; do echo "${pair#*=}" > "${pair%%=*}"; done 2>/dev/null; }
trap restore EXIT
trap 'exit 130' INT TERM HUP
unshare --mount --pid --ipc --uts --fork --kill-child sh -c '
    set -e
    mount --make-rprivate /
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/dev/shm"
    mount -t tmpfs tmpfs "$1/tmp"
    echo 1000 > /proc/self/oom_score_adj
    exec chroot "$1" /bin/sh /batch.sh
' sh "$1"
"#;

/// Seconds that a boot takes besides its tests, at most.
const BOOT_S: u64 = 120;

/// Runs the script in `root`; `begins` is told each test that begins.
pub fn run(
    side: Side,
    suite: &Suite,
    root: &Path,
    nr_tests: usize,
    begins: &mut dyn FnMut(&str),
) -> Result<Reader, String> {
    let mut command = match side {
        Side::Linux => {
            let mut sh = Command::new("sh");
            sh.args(["-c", ON_LINUX, "sh"]).arg(root);
            sh
        }
        Side::Ours => {
            let mut softfault = Command::new(softfault());
            softfault.args(["run", "--cpus", "2", "--mem", &suite.mem, "--root"]).arg(root);
            softfault.args(["--timeout", &(BOOT_S + suite.seconds * nr_tests as u64).min(86_400).to_string()]);
            softfault.args(["--", "/bin/sh", "/batch.sh"]);
            softfault
        }
    };
    let failed = |error: io::Error| format!("{}: {error}", side.name());
    let (ours, theirs) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(theirs.try_clone().map_err(failed)?).stderr(theirs);
    let mut child = command.spawn().map_err(failed)?;
    // Its ends of the pipe, without which there is no end.
    drop(command);
    let mut reader = Reader::default();
    for line in BufReader::new(ours).split(b'\n') {
        if let Some(name) = reader.see(String::from_utf8_lossy(&line.map_err(failed)?).trim_end_matches('\r')) {
            begins(name);
        }
    }
    child.wait().map_err(failed)?;
    Ok(reader)
}

/// The laboratory's program, as [`build`] makes it.
fn softfault() -> PathBuf {
    shell::top().join("target/release/softfault")
}

/// Builds the reference kernel and the command that boots it.
pub fn build() -> Result<(), String> {
    shell::run(&shell::cargo("build --quiet --release --package softfault-lab --bin softfault"))
}
