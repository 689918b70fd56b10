//! `cargo xtask measure`: runs the experiments, keeps their rows, writes `docs/measurements.md` and the README's figures.
//!
//! ```text
//! experiments ──> the command `softfault` ──> docs/measurements/MACHINE/EXPERIMENT.json ──> docs/measurements.md
//! ```
//! A run on a new CPU adds a folder; a run on a known one replaces its files. Figures of two machines never share a table.

mod experiments;
mod figures;
mod machine;
mod render;
mod store;

use crate::shell::{self, Line};
use experiments::{Depends, EXPERIMENTS, Experiment};
use machine::Machine;
use std::path::{Path, PathBuf};
use std::time::Instant;
use store::{Measured, Run};

/// The documents.
const DOCUMENT: &str = "docs/measurements.md";
/// Has the table of ten figures.
const README: &str = "README.md";
/// The stored rows, and the text about measurements that no longer run.
const FOLDER: &str = "docs/measurements";
/// The same of `--quick`.
const QUICK: &str = "target/measurements";

/// The options of `cargo xtask measure`.
#[derive(clap::Args)]
pub struct Options {
    /// Run this experiment alone; may be repeated
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// Run each experiment in seconds, to see that it works; the document stays as it is
    #[arg(long)]
    quick: bool,
    /// Run nothing: write the document from the rows that are stored
    #[arg(long, conflicts_with_all = ["only", "quick"])]
    render: bool,
}

fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

/// Runs what the options say, and writes the document.
pub fn run(options: &Options) -> Result<(), String> {
    let folder = shell::top().join(if options.quick { QUICK } else { FOLDER });
    if !options.render {
        measure(options, &folder)?;
    }
    let text = document(&folder)?;
    if options.quick {
        return write(&folder.with_extension("md"), &text);
    }
    write(&shell::top().join(DOCUMENT), &text)?;
    let readme = shell::top().join(README);
    let text = std::fs::read_to_string(&readme).map_err(|e| format!("{README}: {e}"))?;
    write(&readme, &figures::written_into(&text, &store::load(&folder)?)?)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    println!("measure: {} is written", file.display());
    Ok(())
}

fn measure(options: &Options, folder: &Path) -> Result<(), String> {
    shell::run(&shell::cargo("build --release --package softfault-lab"))?;
    let machine = Machine::this()?;
    machine.warn_if_busy();
    let is_wanted = |e: &&Experiment| options.only.is_empty() || options.only.iter().any(|name| name == e.name);
    let wanted: Vec<&Experiment> = EXPERIMENTS.iter().filter(is_wanted).collect();
    let nr_runs: usize = wanted.iter().map(|experiment| experiment.runs.len()).sum();
    let mut nr_done = 0;
    for experiment in wanted {
        let mut runs = Vec::new();
        for wanted in experiment.runs {
            let arguments = machine.fill_in(if options.quick { wanted.quick } else { wanted.full });
            nr_done += 1;
            println!("measure: {nr_done} of {nr_runs}: softfault {arguments}");
            let start = Instant::now();
            let rows = store::rows(&shell::output_of(&softfault(&arguments))?, experiment)?;
            println!("measure: {} rows in {} s", rows.len(), start.elapsed().as_secs());
            runs.push(Run { command: format!("softfault {arguments}"), rows });
        }
        let measured = Measured { machine: machine.clone(), runs };
        measured.write(&file_of(folder, experiment, &machine))?;
    }
    Ok(())
}

/// Where the rows of an experiment are kept: those that are counted are the same on every machine.
fn file_of(folder: &Path, experiment: &Experiment, machine: &Machine) -> PathBuf {
    let place = match experiment.depends {
        Depends::OnTheCpu => machine.folder(),
        Depends::OnNothing => store::ANY.into(),
    };
    folder.join(place).join(format!("{}.json", experiment.name))
}

fn softfault(arguments: &str) -> Line {
    shell::cargo(&format!("run --quiet --release --package softfault-lab -- {arguments} --json"))
}

/// The document that the stored rows make.
fn document(folder: &Path) -> Result<String, String> {
    let earlier = shell::top().join(FOLDER).join("earlier.md");
    let earlier = std::fs::read_to_string(&earlier).map_err(|e| format!("{}: {e}", earlier.display()))?;
    Ok(render::document(&store::load(folder)?, &earlier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_the_rows_make() {
        let written = std::fs::read_to_string(shell::top().join(DOCUMENT)).unwrap();
        let made = document(&shell::top().join(FOLDER)).unwrap();
        let differs = written.lines().zip(made.lines()).find(|(written, made)| written != made);
        assert!(written == made, "`cargo xtask measure --render` would change {DOCUMENT}, first: {differs:?}");
    }

    #[test]
    fn the_readme_has_the_figures_of_the_rows() {
        let written = std::fs::read_to_string(shell::top().join(README)).unwrap();
        let stored = store::load(&shell::top().join(FOLDER)).unwrap();
        assert_eq!(
            figures::written_into(&written, &stored).unwrap(),
            written,
            "`cargo xtask measure --render` writes it"
        );
    }

    #[test]
    fn names_are_names_of_files_and_each_once() {
        let is_plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        let mut names = names();
        assert!(names.iter().all(is_plain), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPERIMENTS.len());
    }
}
