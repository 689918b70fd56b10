//! Starting QEMU, passing its output on, and ending it.

use super::image::KERNEL;
use super::packets::{self, End, Rest, Sinks};
use super::scratch::Scratch;
use super::{RunError, RunOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";

/// What came of it.
pub struct Outcome {
    /// How the kernel said it ended.
    pub end: Option<End>,
    /// The kernel's log.
    pub log: Vec<u8>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// QEMU's own exit status; none if a signal ended it.
    pub qemu_status: Option<i32>,
    /// What QEMU itself complained about.
    pub qemu_errors: String,
}

/// `thread=multi`: each CPU is a thread of the host's. `-cpu max`: the kernel
/// wants SMEP and SMAP. `-no-reboot`: a triple fault ends QEMU, with status 0.
fn command(options: &RunOptions, kernel: &Path, archive: &Path) -> Command {
    let mut qemu = Command::new(QEMU);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-display", "none"]);
    qemu.args(["-monitor", "none", "-no-reboot", "-no-user-config"]);
    qemu.args(["-smp", &options.cpus.to_string(), "-m", &format!("{}k", options.mem >> 10)]);
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    qemu.args(["-chardev", "stdio,id=port,signal=off", "-device", "isa-debugcon,iobase=0xe9,chardev=port"]);
    let stats = if options.stats { "stats " } else { "" };
    qemu.args(["-append", &format!("{stats}{}", options.append)]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(archive);
    qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end_with_parent(&mut qemu);
    qemu
}

/// Whoever kills this command means the machine too.
fn end_with_parent(qemu: &mut Command) {
    // SAFETY: L3: between fork and exec only one system call is made, which touches
    // no memory and takes no lock.
    unsafe {
        qemu.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// Boots the kernel with the archive and stays until it ends.
pub fn run(options: &RunOptions, archive: &[u8]) -> Result<Outcome, RunError> {
    let scratch = Scratch::new()?;
    let kernel = scratch.put("kernel", KERNEL)?;
    let archive = scratch.put("archive", archive)?;
    let mut qemu = command(options, &kernel, &archive);
    if options.verbose {
        eprintln!("{qemu:?}");
    }
    let mut child = qemu.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RunError::NoQemu,
        _ => RunError::Host(format!("{QEMU}: {error}")),
    })?;
    let outcome = attend(options, &mut child);
    // In every case: it has to be gone before its files are.
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

fn attend(options: &RunOptions, child: &mut Child) -> Result<Outcome, RunError> {
    let refused = |what: &str| RunError::Host(format!("{QEMU}: {what}"));
    let stdout = child.stdout.take().ok_or_else(|| refused("no output"))?;
    let mut stderr = child.stderr.take().ok_or_else(|| refused("no error output"))?;
    let complaints = thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let (done, sorted) = mpsc::channel();
    let show_log = options.verbose;
    thread::spawn(move || {
        let (mut output, mut errors) = (io::stdout(), io::stderr());
        let mut sinks = Sinks { output: &mut output, errors: &mut errors, show_log };
        let rest = packets::sort(&mut BufReader::new(stdout), &mut sinks);
        let _ = done.send(rest);
    });
    let (rest, timed_out) = match sorted.recv_timeout(Duration::from_secs(options.timeout)) {
        Ok(rest) => (rest, false),
        Err(_) => {
            let _ = child.kill();
            (sorted.recv().unwrap_or_else(|_| Ok(Rest::default())), true)
        }
    };
    // A reader of ours that went away (a closed pipe) is no fault of QEMU's.
    let rest = rest.map_err(|e| RunError::Host(format!("output: {e}")))?;
    let status = child.wait().map_err(|e| refused(&e.to_string()))?;
    let qemu_errors = complaints.join().unwrap_or_default();
    let end = rest.end.filter(|_| !timed_out || status.code().is_some());
    Ok(Outcome { end, log: rest.log, timed_out: timed_out && end.is_none(), qemu_status: status.code(), qemu_errors })
}
