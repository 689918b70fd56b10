//! Starting QEMU, passing its output on or keeping it, and ending it.

use super::RunError;
use super::packets::{self, End, Rest, Sinks};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";

/// Passes what is typed on to the machine, and calls the second to end it.
pub type Keys = fn(ChildStdin, Box<dyn Fn() + Send>);

/// A machine to boot.
pub struct Machine {
    pub nr_cpus: u32,
    pub mem_bytes: u64,
    /// QEMU's name for the model, with features.
    pub cpu: String,
    /// Whether its clock counts instructions; there is one CPU then.
    pub counted: bool,
    /// Values of `-kernel`, `-initrd` and `-append`.
    pub kernel: PathBuf,
    pub archive: PathBuf,
    pub append: String,
    /// File for what comes out of its serial port; Linux's log.
    pub serial: Option<PathBuf>,
    /// The terminal; the serial port is connected to it.
    pub keys: Option<Keys>,
    pub timeout_s: u64,
    /// Whether the command line and the log are printed as they come.
    pub verbose: bool,
}

/// Where the program's output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Written to standard output and standard error at once.
    PassedOn,
    /// Given back in the [`Outcome`].
    Kept,
}

/// Result of a run.
pub struct Outcome {
    /// How the kernel said it ended.
    pub end: Option<End>,
    /// The kernel's log.
    pub log: Vec<u8>,
    /// The program's output, if it was to be kept.
    pub output: Vec<u8>,
    /// Its error output, likewise.
    pub errors: Vec<u8>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// QEMU's own exit status; none if a signal ended it.
    pub qemu_status: Option<i32>,
    /// QEMU's own error output.
    pub qemu_errors: String,
}

impl Machine {
    /// `thread=multi`: each CPU is a thread of the host's. `-no-reboot`: a triple
    /// fault ends QEMU, with status 0.
    fn command(&self) -> Command {
        let mut qemu = Command::new(QEMU);
        if self.counted {
            qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-seed", "1"]);
        } else {
            qemu.args(["-accel", "tcg,thread=multi"]);
        }
        qemu.args(["-cpu", &self.cpu, "-nodefaults", "-display", "none"]);
        qemu.args(["-monitor", "none", "-no-reboot", "-no-user-config"]);
        qemu.args(["-smp", &self.nr_cpus.to_string(), "-m", &format!("{}k", self.mem_bytes >> 10)]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        qemu.args(["-device", "isa-debugcon,iobase=0xe9,chardev=port"]);
        match self.keys {
            None => qemu.args(["-chardev", "stdio,id=port,signal=off"]),
            // Standard input and output are two things then.
            Some(_) => {
                qemu.args(["-chardev", "file,id=port,path=/dev/fd/1"]).args(["-chardev", "stdio,id=keys,signal=off"])
            }
        };
        if self.keys.is_some() {
            qemu.args(["-serial", "chardev:keys"]);
        }
        if let Some(file) = &self.serial {
            qemu.arg("-serial").arg(format!("file:{}", file.display()));
        }
        qemu.args(["-append", &self.append]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.archive);
        qemu.stdin(if self.keys.is_some() { Stdio::piped() } else { Stdio::null() });
        qemu.stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_parent(&mut qemu);
        qemu
    }
    /// Boots it and stays until it ends.
    pub fn run(&self, output: Output) -> Result<Outcome, RunError> {
        let mut qemu = self.command();
        if self.verbose {
            eprintln!("{qemu:?}");
        }
        let mut child = qemu.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RunError::NoQemu,
            _ => RunError::Host(format!("{QEMU}: {error}")),
        })?;
        let outcome = self.attend(output, &mut child);
        // In every case: it has to be gone before its files are.
        let _ = child.kill();
        let _ = child.wait();
        outcome
    }

    fn attend(&self, output: Output, child: &mut Child) -> Result<Outcome, RunError> {
        let refused = |what: &str| RunError::Host(format!("{QEMU}: {what}"));
        let stdout = child.stdout.take().ok_or_else(|| refused("no output"))?;
        let mut stderr = child.stderr.take().ok_or_else(|| refused("no error output"))?;
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let (done, sorted) = mpsc::channel();
        let show_log = self.verbose;
        let quit = done.clone();
        thread::spawn(move || _ = done.send(Some(sort(stdout, output, show_log))));
        if let (Some(keys), Some(stdin)) = (self.keys, child.stdin.take()) {
            keys(stdin, Box::new(move || _ = quit.send(None)));
        }
        let (sorted, timed_out) = match sorted.recv_timeout(Duration::from_secs(self.timeout_s)) {
            Ok(Some(sorted)) => (sorted, false),
            early => {
                let _ = child.kill();
                let rest = sorted.recv().ok().flatten();
                (rest.unwrap_or_else(|| Ok(Sorted::default())), early.is_err())
            }
        };
        // A reader of ours that went away (a closed pipe) is no fault of QEMU's.
        let Sorted { rest, output, errors } = sorted.map_err(|e| RunError::Host(format!("output: {e}")))?;
        let status = child.wait().map_err(|e| refused(&e.to_string()))?;
        let qemu_errors = complaints.join().unwrap_or_default();
        let end = rest.end.filter(|_| !timed_out || status.code().is_some());
        let timed_out = timed_out && end.is_none();
        Ok(Outcome { end, log: rest.log, output, errors, timed_out, qemu_status: status.code(), qemu_errors })
    }
}

/// A signal that ends this command ends the machine, too.
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

/// The machine's output, taken apart.
#[derive(Default)]
struct Sorted {
    rest: Rest,
    output: Vec<u8>,
    errors: Vec<u8>,
}

fn sort(stream: impl Read, output: Output, show_log: bool) -> io::Result<Sorted> {
    let mut sorted = Sorted::default();
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let (output, errors): (&mut dyn Write, &mut dyn Write) = match output {
        Output::PassedOn => (&mut stdout, &mut stderr),
        Output::Kept => (&mut sorted.output, &mut sorted.errors),
    };
    let mut log = io::stderr();
    let mut sinks = Sinks { output, errors, log: show_log.then_some(&mut log) };
    sorted.rest = packets::sort(&mut BufReader::new(stream), &mut sinks)?;
    Ok(sorted)
}
