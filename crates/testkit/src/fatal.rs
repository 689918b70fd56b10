//! Panics of the core in tests of several CPUs. The panicking CPU keeps its locks and
//! entries, and the others would wait for them for ever, so the panic ends the process.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io::Write;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::Once;

thread_local! {
    /// Whether other CPUs wait for what the thread owns.
    static IS_ONE_OF_SEVERAL: Cell<bool> = const { Cell::new(false) };
}

/// Where the code lies whose panic leaves something owned.
const OWNERS: [&str; 2] = ["crates/softfault/src/", "crates/host/src/"];

/// Runs one CPU's part of a test of several.
pub fn as_one_of_several<T>(part: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| if is_fatal(panic) { end(panic) } else { usual(panic) }));
    });
    /// Sets it back, also when the part panics.
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_ONE_OF_SEVERAL.set(self.0);
        }
    }
    let _back = Back(IS_ONE_OF_SEVERAL.replace(true));
    part()
}

fn is_fatal(panic: &PanicHookInfo<'_>) -> bool {
    let is_owner = |file: &str| OWNERS.iter().any(|owner| file.contains(owner));
    IS_ONE_OF_SEVERAL.get() && panic.location().is_some_and(|at| is_owner(at.file()))
}

/// Past the test harness, which would keep the text until the test ends.
fn end(panic: &PanicHookInfo<'_>) -> ! {
    let text = format!("{panic}\nother CPUs would wait for what this one owns\n{}\n", Backtrace::force_capture());
    let _ = std::io::stderr().write_all(text.as_bytes());
    process::abort()
}

#[cfg(test)]
mod tests {
    use super::as_one_of_several;
    use softfault::Machine;
    use softfault_host::{Hosted, HostedConfig};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    fn run(test: &str) -> Output {
        let name = format!("fatal::tests::{test}");
        let args = ["--exact", &name, "--ignored"];
        Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap()
    }

    #[test]
    #[ignore = "ends the process: `a_panic_of_the_core_ends_the_process` runs it"]
    fn asks_as_no_cpu() {
        let hosted = Hosted::new(HostedConfig::default()).unwrap();
        let _ = as_one_of_several(|| hosted.this_cpu());
    }

    #[test]
    #[ignore = "panics: `a_panic_of_the_test_is_an_ordinary_one` runs it"]
    fn fails() {
        as_one_of_several(|| assert_eq!(1, 2));
    }

    #[test]
    fn a_panic_of_the_core_ends_the_process() {
        let output = run("asks_as_no_cpu");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("keep the guard of `Hosted::bind` alive"), "{text}");
    }

    #[test]
    fn a_panic_of_the_test_is_an_ordinary_one() {
        let output = run("fails");
        assert_eq!(output.status.code(), Some(101), "{output:?}");
    }
}
