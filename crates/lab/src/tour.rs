//! The tour, which `softfault` runs without arguments: under a minute, with real
//! measurements that are smaller than those of the README.

use crate::bench::{self, Report, typed};
use crate::conflicts;
use crate::error::LabError;
use crate::fault_around;
use crate::largepages;
use crate::parallel_fault;
use crate::pft;
use crate::run;
use softfault::FaultLocking;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Small enough for a minute, large enough for medians that repeat.
const PFT: &str = "pft --gib 0.25 --reps 5";
/// Enough CPUs to show what a shared line costs, few enough for a second.
const CONFLICTS: &str = "conflicts --cpus 64 --touches 4096";
/// Two faults, with and without 2 MiB pages, each beside the other.
const LARGEPAGES: &str = "largepages --size 0.25 --reps 5";
/// A file that is read in a few tenths of a second, with the windows that tell the story.
const FAULT_AROUND: &str = "fault-around --size 0.125 --reps 5 --threads 1 --orders 0,4,9,adaptive";

/// Huge pages of a pool, few enough for a second.
const PARALLEL_FAULT: &str = "parallel-fault 2 131072 --reps 5";

const INTRODUCTION: &str = "\
Softfault is a virtual-memory subsystem as a library. Its main job is the page fault: a program touches
memory for the first time, and a zeroed frame has to be found and mapped, on every CPU at once.

This tour, under a minute, all of it measured now and on this machine:
  1. first-touch faults per second: four ways to exclude other CPUs, and this host's Linux
  2. how often CPUs take cache lines from each other in a fault, on 64 simulated CPUs
  3. the program of 2011 that showed what 2 MiB pages save: on ours and on this host's Linux, with and without
  4. the program of 2014 that showed what it saves to map the neighbours of a page of a cached file
  5. the program of 2013 that showed what one mutex around faults on huge pages costs
  6. a Linux program with four threads on the reference kernel, whose memory is all Softfault's, in QEMU
";

const NEXT: &str = "\
Where to go next
  softfault pft -g 1 -r 5 -t 1,2 --plot faults.svg     the whole table, with the rows of 2004, and a plot
  softfault pft -g 1 -r 5 -t 1,2 --frames zeroed       the software alone, nothing zeroed
  softfault conflicts --cpus 512                       512 CPUs, 16 million faults
  softfault largepages                                 3 GiB, as in 2011; softfault clear-huge: how to clear them
  softfault fault-around --pattern sparse              what fault-around costs where it can only lose
  softfault parallel-fault --shape database            130 spaces that map one file of huge pages
  softfault run --stats -- ./a-static-linux-program    your program on the reference kernel, and its counters
  softfault --help                                     everything else
  crates/softfault/src/fault/mod.rs                    the fault path itself: start reading there
  docs/design.md                                       how the parts fit";

/// The whole tour.
pub fn run() -> Result<(), LabError> {
    println!("{INTRODUCTION}");
    faults()?;
    lines()?;
    large()?;
    neighbours()?;
    pool()?;
    program();
    println!("{NEXT}");
    Ok(())
}

fn faults() -> Result<(), LabError> {
    println!("1. softfault {PFT}\n");
    let options: pft::Options = typed(PFT);
    let report = bench::measure(&options)?;
    println!("{}", report.ours());
    for row in report.rows.iter().filter(|row| row.work.is(FaultLocking::Lockfree)) {
        if let (Some(touch), Some(zeroing)) = (row.ratio_to_linux_touch, row.ratio_to_zeroing) {
            println!(
                "   lockfree, {} thread(s): {touch:.1} times the faults per second of this Linux's touches; {zeroing:.2} of \
                 the time\n   that zeroing the same pages one by one takes alone",
                row.nr_threads
            );
        }
    }
    println!();
    Ok(())
}

fn lines() -> Result<(), LabError> {
    println!("2. softfault {CONFLICTS}\n");
    println!("   {:<14} {:>28} {:>14}", "fault locking", "transfers per 1,000 faults", "read misses");
    for fault_locking in FaultLocking::ALL {
        let options: conflicts::Options = typed(&format!("{CONFLICTS} --fault-locking {}", fault_locking.name()));
        let report = bench::measure(&options)?;
        println!(
            "   {:<14} {:>28.1} {:>14.1}",
            fault_locking.name(),
            report.transfers_per_1000_faults,
            report.read_misses_per_1000_faults
        );
    }
    println!(
        "\n   A transfer is a write to a cache line last written by another CPU: what keeps faults from scaling.\n"
    );
    Ok(())
}

fn large() -> Result<(), LabError> {
    println!("3. softfault {LARGEPAGES}\n");
    let options: largepages::Options = typed(LARGEPAGES);
    println!("{}", bench::measure(&options)?.text());
    Ok(())
}

fn neighbours() -> Result<(), LabError> {
    println!("4. softfault {FAULT_AROUND}\n");
    let options: fault_around::Options = typed(FAULT_AROUND);
    println!("{}", bench::measure(&options)?.text());
    Ok(())
}

fn pool() -> Result<(), LabError> {
    println!("5. softfault {PARALLEL_FAULT}\n");
    let options: parallel_fault::Options = typed(PARALLEL_FAULT);
    println!("{}", bench::measure(&options)?.text());
    Ok(())
}

/// Needs a C compiler that links statically and QEMU; where one is missing, the
/// tour says which and goes on.
fn program() {
    println!(
        "6. softfault run --cpus 2 -- tour          (crates/lab/data/tour.c, linked with this host's C library)\n"
    );
    let folder = std::env::temp_dir().join(format!("softfault-tour-{}", std::process::id()));
    let done = compiled(&folder).and_then(|program| {
        let options: run::RunOptions = typed(&format!("run --cpus 2 --timeout 20 -- {}", program.display()));
        let start = Instant::now();
        // Errors have been printed on standard error.
        let is_good = run::main(&options) == ExitCode::SUCCESS;
        if is_good { Ok(start.elapsed()) } else { Err("softfault run says why".into()) }
    });
    // Nothing depends on the remaining files.
    let _ = std::fs::remove_dir_all(&folder);
    match done {
        Ok(took) => println!("\n   {:.1} s with the boot of the machine.\n", took.as_secs_f64()),
        Err(why) => println!("   left out: {why}\n"),
    }
}

/// The program, linked statically into `folder`.
fn compiled(folder: &Path) -> Result<PathBuf, String> {
    let (source, program) = (folder.join("tour.c"), folder.join("tour"));
    let text = include_str!("../data/tour.c");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&source, text))
        .map_err(|e| format!("{}: {e}", source.display()))?;
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static", "-pthread", "-o"]).arg(&program).arg(&source).stderr(Stdio::null());
    match cc.status() {
        Ok(status) if status.success() => Ok(program),
        Ok(_) => Err("cc cannot link statically: install the Debian package libc6-dev".into()),
        Err(_) => Err("there is no C compiler: install the Debian package gcc".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed() {
        let _: pft::Options = typed(PFT);
        let _: largepages::Options = typed(LARGEPAGES);
        let _: fault_around::Options = typed(FAULT_AROUND);
        let _: parallel_fault::Options = typed(PARALLEL_FAULT);
        for fault_locking in FaultLocking::ALL {
            let _: conflicts::Options = typed(&format!("{CONFLICTS} --fault-locking {}", fault_locking.name()));
        }
    }
}
