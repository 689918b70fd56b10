//! The two programs: this tree's `softfault`, and that of another commit.
//!
//! The other commit is checked out into a git worktree below `target/compare-builds`, which is removed when it is built,
//! or when that fails. Its build folder stays, so that the next comparison builds less. The programs are copied, so that
//! a build during the comparison changes neither.

use crate::shell::{self, Line};
use serde::Deserialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const FOLDER: &str = "target/compare-builds";
const BUILD: &str = "build --release --package softfault-lab --bin softfault --message-format=json-render-diagnostics";

/// Both programs.
pub struct Builds {
    /// This tree's.
    pub here: PathBuf,
    /// The other commit's.
    pub other: PathBuf,
    /// The other commit, as a hash.
    pub rev: String,
    /// Locked as long as the programs are in use.
    _lock: File,
}

impl Builds {
    /// Builds both.
    pub fn of(rev: &str) -> Result<Builds, String> {
        let folder = shell::top().join(FOLDER);
        let hash = commit(&shell::top(), rev)?;
        let lock = lock(&folder)?;
        eprintln!("compare-builds: builds {rev} ({hash})");
        let other = {
            let tree = Worktree::add(&shell::top(), &folder.join("tree"), &hash)?;
            let line = build_in(&tree.path).with("CARGO_TARGET_DIR", &folder.join("build").to_string_lossy());
            let built = built(&line).map_err(|error| format!("{rev} does not build: {error}"))?;
            copied(&built, &folder.join("other"))?
        };
        eprintln!("compare-builds: builds this tree");
        let here = copied(&built(&build_in(&shell::top()))?, &folder.join("here"))?;
        Ok(Builds { here, other, rev: hash, _lock: lock })
    }
}

/// The hash of a commit.
fn commit(repository: &Path, rev: &str) -> Result<String, String> {
    let mut line = Line::new("git", "rev-parse --quiet --verify --end-of-options").at(repository);
    line.args(&[format!("{rev}^{{commit}}")]);
    let hash = shell::output_of(&line).map_err(|_| format!("`{rev}` should be a commit that git knows"))?;
    Ok(hash.trim().into())
}

/// Refuses a second comparison in the same checkout, which would replace the programs.
fn lock(folder: &Path) -> Result<File, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let lock = File::create(folder.join("lock")).map_err(|error| failed(&error))?;
    lock.try_lock().map_err(|_| failed(&"another comparison runs here"))?;
    Ok(lock)
}

fn build_in(folder: &Path) -> Line {
    shell::cargo(BUILD).at(folder)
}

/// The fields of cargo's messages that are read.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Builds, and finds the program.
fn built(line: &Line) -> Result<PathBuf, String> {
    let text = shell::output_of(line)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    messages.filter_map(|message| message.executable).next_back().ok_or_else(|| format!("{}: no program", line.text()))
}

fn copied(from: &Path, to: &Path) -> Result<PathBuf, String> {
    fs::copy(from, to).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(to.into())
}

/// A temporary worktree.
struct Worktree {
    repository: PathBuf,
    path: PathBuf,
}

impl Worktree {
    /// Checks `hash` out at `path`. What a run that was killed has left there is removed first.
    fn add(repository: &Path, path: &Path, hash: &str) -> Result<Worktree, String> {
        let tree = Worktree { repository: repository.into(), path: path.into() };
        tree.remove();
        let mut line = Line::new("git", "worktree add --quiet --detach").at(repository);
        line.args(&[path.to_string_lossy().into_owned(), hash.into()]);
        shell::run(&line)?;
        Ok(tree)
    }

    /// Removes the folder and git's note of it. Neither needs to exist.
    fn remove(&self) {
        _ = fs::remove_dir_all(&self.path);
        _ = shell::run(&Line::new("git", "worktree prune").at(&self.repository));
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit, and a folder for worktrees.
    fn repository(name: &str) -> PathBuf {
        let top = std::env::temp_dir().join(format!("compare-builds-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&top);
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("file"), "text").unwrap();
        let who = "-c user.name=n -c user.email=e";
        for line in ["init --quiet", "add file", &format!("{who} commit --quiet --message=m")] {
            shell::run(&Line::new("git", line).at(&top)).unwrap();
        }
        top
    }

    #[test]
    fn a_worktree_is_removed_also_if_a_killed_run_left_one() {
        let top = repository("tree");
        let hash = commit(&top, "HEAD").unwrap();
        let path = top.join("below/tree");
        std::mem::forget(Worktree::add(&top, &path, &hash).unwrap());
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "text");
        drop(Worktree::add(&top, &path, &hash).unwrap());
        assert!(!path.exists());
        let listed = shell::output_of(&Line::new("git", "worktree list").at(&top)).unwrap();
        assert_eq!(listed.lines().count(), 1, "{listed}");
        assert!(Worktree::add(&top, &path, "0000000000000000000000000000000000000000").is_err() && !path.exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_name_that_is_no_commit_is_refused() {
        let top = repository("name");
        assert_eq!(commit(&top, "HEAD").unwrap().len(), 40);
        for bad in ["no-such-branch", "", "--all", "HEAD:file", "HEAD~1"] {
            assert_eq!(commit(&top, bad), Err(format!("`{bad}` should be a commit that git knows")));
        }
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_second_comparison_is_refused() {
        let top = repository("lock");
        let first = lock(&top.join("target")).unwrap();
        assert!(lock(&top.join("target")).unwrap_err().ends_with("another comparison runs here"));
        drop(first);
        assert!(lock(&top.join("target")).is_ok());
        fs::remove_dir_all(top).unwrap();
    }
}
