//! Maps the end of a machine to an exit code and a reason.

use super::packets::End;
use super::qemu::Outcome;

/// The kernel gave up.
const EXIT_PANIC: u8 = 250;
/// `--timeout` was over.
pub const EXIT_TIMEOUT: u8 = 251;
/// The machine reset itself: a triple fault.
const EXIT_TRIPLE_FAULT: u8 = 252;
/// There is no QEMU.
pub const EXIT_NO_QEMU: u8 = 253;

/// The exit code of a run, and the reason.
pub struct Verdict {
    /// The program's, or one of those above.
    pub code: u8,
    /// Why it is not the program's own end.
    pub why: Option<String>,
    /// Whether the log says more about it.
    pub log_tells: bool,
}

/// The last line of a text, which is where reasons stand.
pub fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim_end().lines().next_back().unwrap_or("none given").to_owned()
}

/// Judges a machine that had so many seconds.
pub fn judge(outcome: &Outcome, timeout_s: u64) -> Verdict {
    let told = |code: u8, why: String| Verdict { code, why: Some(why), log_tells: true };
    match (outcome.end, outcome.timed_out, outcome.qemu_status) {
        (Some(End::Exit(code)), ..) => Verdict { code, why: None, log_tells: false },
        (Some(End::Signal(number)), ..) => told(128 + number, format!("the program was killed by signal {number}")),
        (Some(End::Panic), ..) => told(EXIT_PANIC, "the kernel panicked".to_owned()),
        (Some(End::Refused), ..) => Verdict { code: 2, why: Some(last_line(&outcome.log)), log_tells: false },
        (None, true, _) => told(EXIT_TIMEOUT, format!("not done after {timeout_s} s")),
        (None, false, Some(0)) => told(EXIT_TRIPLE_FAULT, "the machine reset itself: a triple fault".to_owned()),
        (None, false, Some(_)) if outcome.log.is_empty() => {
            Verdict { code: 1, why: Some(last_line(outcome.qemu_errors.as_bytes())), log_tells: false }
        }
        (None, false, status) => {
            let status = status.map_or("a signal".to_owned(), |s| format!("status {s}"));
            told(1, format!("QEMU ended with {status} before the program did"))
        }
    }
}
