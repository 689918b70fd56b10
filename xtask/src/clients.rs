//! `cargo xtask clients`: builds other projects' memory programs for the reference kernel.
//!
//! Each is cloned at a tested commit and linked statically, for `softfault run` and
//! `softfault compare`. Sources are in `DIR/src/NAME`, programs in `DIR/bin/NAME`; none is
//! part of this project. To rebuild a program, remove its `src` folder.

mod recipes;

use crate::packages;
use crate::shell::{self, Line};
use recipes::{CLIENTS, Client, Origin};
use std::fs;
use std::path::{Path, PathBuf};

/// The options of `cargo xtask clients`.
#[derive(clap::Args)]
pub struct Options {
    /// Only these (all of them otherwise): pft, will-it-scale, vm-scalability, ltp, stress-ng, selftests-mm
    names: Vec<String>,
    /// Where sources and programs come to
    #[arg(long, value_name = "DIR", default_value = "target/clients")]
    into: PathBuf,
    /// Clone from the checkouts `DIR/NAME` rather than from GitHub
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

/// Clones and builds the chosen ones.
pub fn run(options: &Options) -> Result<(), String> {
    let chosen = choose(&options.names)?;
    say_missing(&chosen)?;
    let into = absolute(&options.into)?;
    let from = options.from.as_deref().map(absolute).transpose()?;
    for client in chosen {
        let source = into.join("src").join(client.name);
        let programs = into.join("bin").join(client.name);
        obtain(client, from.as_deref(), &source)?;
        make_folder(&programs)?;
        println!("building {}", client.name);
        (client.build)(&Place { source: &source, programs: &programs })?;
        println!("{}: {} programs", programs.display(), nr_files(&programs)?);
    }
    Ok(())
}

/// The folders of one client.
pub struct Place<'a> {
    /// Its checkout.
    pub source: &'a Path,
    /// Where its programs go.
    pub programs: &'a Path,
}

impl Place<'_> {
    /// Runs a program in a folder of the checkout: words without blanks, then
    /// arguments that may have some.
    pub fn run(&self, folder: &str, program: &str, words: &str, more: &[String]) -> Result<(), String> {
        let mut line = Line::new(program, words).within(&self.source.join(folder).to_string_lossy());
        line.args(more);
        shell::run(&line)
    }
    /// Copies programs out of a folder of the checkout, without what only a
    /// debugger wants: the kernel's files live in memory.
    pub fn keep(&self, folder: &str, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        for file in files(&self.source.join(folder))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if wanted(&name) && is_program(&file) {
                let mut strip = Line::new("strip", "-o");
                strip.args(&[text(&self.programs.join(name)), text(&file)]);
                shell::run(&strip)?;
            }
        }
        Ok(())
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The files of a folder, by name.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = listed.filter_map(|f| Some(f.ok()?.path())).filter(|f| f.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Creates a folder and those above it.
pub fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn choose(names: &[String]) -> Result<Vec<&'static Client>, String> {
    if names.is_empty() {
        return Ok(CLIENTS.iter().collect());
    }
    let known: Vec<&str> = CLIENTS.iter().map(|c| c.name).collect();
    let find = |name: &String| {
        let found = CLIENTS.iter().find(|c| c.name == name);
        found.ok_or_else(|| format!("`{name}` is not one of {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

/// Names every missing package at once, before an hour is spent on the first.
fn say_missing(chosen: &[&Client]) -> Result<(), String> {
    let needs = chosen.iter().flat_map(|c| c.needs);
    let mut missing: Vec<&str> = needs.filter(|n| !is_met(n.0)).map(|n| n.1).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("missing Debian packages: install them with `apt-get install {}`", missing.join(" ")))
}

/// A header or library is named by its path, a program by its name.
fn is_met(need: &str) -> bool {
    if need.starts_with('/') { Path::new(need).exists() } else { packages::is_there(need) }
}

/// Brings the source to `source`, unless something is there already.
fn obtain(client: &Client, from: Option<&Path>, source: &Path) -> Result<(), String> {
    match client.origin {
        Origin::GitHub { repository, commit } => {
            let origin = match from {
                Some(folder) => text(&folder.join(client.name)),
                None => format!("https://github.com/{repository}"),
            };
            clone(&origin, commit, from.is_some(), source)
        }
        Origin::Archive { file, parts } => unpack(file, parts, source),
    }
}

/// Brings the pinned commit to `source`. A checkout is copied with all it has; of GitHub's, one commit is enough.
fn clone(origin: &str, commit: &str, is_checkout: bool, source: &Path) -> Result<(), String> {
    if !source.join(".git").exists() {
        println!("cloning {origin}");
        make_folder(source)?;
        let git = |words: &str, more: &[String]| {
            let mut line = Line::new("git", words).within(&text(source));
            line.args(more);
            shell::run(&line)
        };
        if is_checkout {
            git("clone --quiet --no-checkout", &[origin.into(), ".".into()])?;
        } else {
            git("init --quiet", &[])?;
            git("fetch --quiet --no-tags --depth 1", &[origin.into(), commit.into()])?;
        }
        git(&format!("checkout --quiet --detach {commit}"), &[])?;
    }
    let head = Line::new("git", "rev-parse HEAD").within(&text(source));
    match shell::output_of(&head)?.trim() {
        found if found == commit => Ok(()),
        found => Err(format!("{} is at {found}, and should be at {commit}: remove it", source.display())),
    }
}

/// Unpacks the parts that the build needs. The mark says that all of them are there.
fn unpack(file: &str, parts: &str, source: &Path) -> Result<(), String> {
    let mark = source.join(".unpacked");
    if mark.exists() {
        return Ok(());
    }
    println!("unpacking {file}");
    make_folder(source)?;
    let name = file.rsplit('/').next().unwrap_or(file).split(".tar").next().unwrap_or(file);
    let mut tar = Line::new("tar", "--strip-components=1 -xf").within(&text(source));
    tar.args(&[file.into()]);
    tar.args(&parts.split_whitespace().map(|part| format!("{name}/{part}")).collect::<Vec<_>>());
    shell::run(&tar)?;
    fs::write(&mark, "").map_err(|e| format!("{}: {e}", mark.display()))
}

fn absolute(folder: &Path) -> Result<PathBuf, String> {
    std::path::absolute(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn is_program(file: &Path) -> bool {
    let executable = |mode: u32| mode & 0o111 != 0;
    let meta = fs::metadata(file).is_ok_and(|m| executable(std::os::unix::fs::PermissionsExt::mode(&m.permissions())));
    meta && fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

fn nr_files(folder: &Path) -> Result<usize, String> {
    Ok(files(folder)?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_pinned_and_named_in_the_help() {
        let help = <Options as clap::Args>::augment_args(clap::Command::new("clients")).render_long_help().to_string();
        for client in CLIENTS {
            match client.origin {
                Origin::GitHub { commit, .. } => assert_eq!(commit.len(), 40, "{}", client.name),
                Origin::Archive { file, .. } => assert!(client.needs.iter().any(|n| n.0 == file), "{}", client.name),
            }
            assert!(help.contains(client.name), "{} is missing in the help", client.name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = choose(&["pfft".into()]).err().unwrap();
        assert!(error.contains("`pfft`") && error.contains("will-it-scale"), "{error}");
        assert_eq!(choose(&["ltp".into()]).unwrap().len(), 1);
    }
}
