//! Runs other programs in the top folder of the checkout.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The top of the checkout: as cargo says when it runs this program, since a
/// checkout may have been moved after it was built.
pub fn top() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().expect("xtask lies in the top folder").to_path_buf()
}

/// A program with its arguments, by line; arguments have no blanks in them.
pub struct Line {
    program: String,
    arguments: Vec<String>,
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// `cargo` with these arguments: the one that runs this program.
pub fn cargo(arguments: &str) -> Line {
    Line::new(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), arguments)
}

impl Line {
    /// A program and its arguments.
    pub fn new(program: &str, arguments: &str) -> Line {
        Line {
            program: program.into(),
            arguments: arguments.split_whitespace().map(String::from).collect(),
            folder: top(),
            variables: Vec::new(),
        }
    }
    /// More arguments, which may have blanks in them.
    pub fn args(&mut self, more: &[String]) {
        self.arguments.extend_from_slice(more);
    }
    /// Run in this folder of the checkout.
    pub fn within(mut self, folder: &str) -> Line {
        self.folder = top().join(folder);
        self
    }
    /// Run in any folder.
    pub fn at(mut self, folder: &Path) -> Line {
        self.folder = folder.into();
        self
    }
    /// With an environment variable.
    pub fn with(mut self, name: &str, value: &str) -> Line {
        self.variables.push((name.into(), value.into()));
        self
    }
    /// For messages.
    pub fn text(&self) -> String {
        let program = Path::new(&self.program).file_name().map_or(self.program.clone(), |n| n.to_string_lossy().into());
        format!("{program} {}", self.arguments.join(" ")).trim_end().to_string()
    }
    /// For what this file has no word for.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).envs(self.variables.iter().map(|(k, v)| (k, v)));
        command
    }
}

/// Runs it, its output straight through.
pub fn run(line: &Line) -> Result<(), String> {
    let status = line.command().status().map_err(|e| format!("{}: {e}", line.text()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", line.text())) }
}

/// Runs it, its standard output straight through and line by line to `see`.
pub fn run_watched(line: &Line, mut see: impl FnMut(&str)) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", line.text());
    let mut child = line.command().stdout(Stdio::piped()).spawn().map_err(failed)?;
    let out = child.stdout.take().expect("stdout is piped");
    for text in BufReader::new(out).lines() {
        let text = text.map_err(failed)?;
        println!("{text}");
        see(&text);
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", line.text())) }
}

/// Runs it. Returns what it wrote to standard output and standard error, and whether it succeeded.
pub fn captured(line: &Line) -> Result<(String, Result<(), String>), String> {
    let output = line.command().output().map_err(|e| format!("{}: {e}", line.text()))?;
    let text = [output.stdout, output.stderr].concat();
    let result = if output.status.success() { Ok(()) } else { Err(format!("{}: {}", line.text(), output.status)) };
    Ok((String::from_utf8_lossy(&text).into_owned(), result))
}

/// Its standard output, if it succeeded.
pub fn output_of(line: &Line) -> Result<String, String> {
    let output = line.command().stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", line.text()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", line.text(), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The target that the compiler builds for when none is named.
pub fn host_triple() -> Result<String, String> {
    let version = output_of(&Line::new("rustc", "-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    Ok(host.into())
}

/// The project's files: those that git knows and those that it would not ignore.
pub fn project_files() -> Result<Vec<String>, String> {
    let listed = output_of(&Line::new("git", "ls-files --cached --others --exclude-standard"))?;
    let mut files: Vec<String> = listed.lines().filter(|f| top().join(f).is_file()).map(String::from).collect();
    files.sort();
    files.dedup();
    Ok(files)
}
