//! `test`: all tests, or some of them again and again, beside busy loops. A test that depends on the clock, or on who wins a race, fails
//! there first.

use super::{Share, TESTS, run};
use crate::shell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Run beside so many busy loops
    #[arg(long, default_value_t = 0)]
    beside_load: u16,
    /// Run so often
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// After `--`: arguments of `cargo test` that name the tests. Without any: all, as the gate runs them
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs what the options say. The first failure ends it.
pub fn run_with(options: &Options) -> Result<(), String> {
    let Options { beside_load, times, arguments } = options;
    if arguments.is_empty() {
        return beside(*beside_load, || (0..*times).try_for_each(|_| run(&TESTS, Share::All, |_| ()).map(|_| ())));
    }
    let line = |more: &str| {
        let mut line = shell::cargo(&format!("test {more}"));
        line.args(arguments);
        line
    };
    // The build needs no load beside it.
    shell::run(&line("--no-run"))?;
    beside(*beside_load, || {
        for time in 1..=*times {
            println!("test: {time} of {times}, beside {beside_load} busy loops");
            shell::run(&line(""))?;
        }
        Ok(())
    })
}

/// Does `work` while so many threads are busy.
fn beside<T>(nr_loops: u16, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..nr_loops {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        is_over.store(true, Relaxed);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn arguments_of_cargo_follow() {
        let line = "test --beside-load 2 --times 20 -- -p softfault-testkit --test hugetlb surplus";
        let Cli { options } = clap::Parser::parse_from(line.split(' '));
        assert_eq!((options.beside_load, options.times, options.arguments.len()), (2, 20, 5));
    }

    #[test]
    fn the_loops_end_with_the_work() {
        assert_eq!(beside(2, || Err::<(), _>("failed")), Err("failed"));
    }
}
