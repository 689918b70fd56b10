//! A folder of the host that becomes the machine's file system. Sockets, devices and
//! unreadable files are left out and counted.

use super::RunError;
use super::content::Content;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Entries that were left out.
#[derive(Default, Debug)]
pub struct LeftOut {
    /// Sockets, pipes and devices.
    nr_special: usize,
    /// Entries that this user may not read, or that went away meanwhile.
    nr_unreadable: usize,
    /// Entries with a name that is not UTF-8.
    nr_unnamed: usize,
    /// The first of all, and why.
    first: Option<(PathBuf, String)>,
}

impl LeftOut {
    /// Whether everything is there.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
    fn note(&mut self, path: &Path, why: &str) {
        self.first.get_or_insert_with(|| (path.to_owned(), why.to_owned()));
    }
    fn unreadable(&mut self, path: &Path, why: &io::Error) {
        self.nr_unreadable += 1;
        self.note(path, &why.to_string());
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.nr_special, "sockets, pipes, devices"),
            (self.nr_unreadable, "unreadable"),
            (self.nr_unnamed, "names that are not UTF-8"),
        ];
        let parts = parts.iter().filter(|(nr, _)| *nr > 0).map(|(nr, what)| format!("{what}: {nr}"));
        f.write_str(&parts.collect::<Vec<_>>().join("; "))?;
        let Some((path, why)) = &self.first else { return Ok(()) };
        write!(f, "; the first is {}: {why}", path.display())
    }
}

/// Adds what is below the folder, which itself has to be readable.
pub fn add(files: &mut Vec<(String, Content)>, folder: &Path) -> Result<LeftOut, RunError> {
    let mut left_out = LeftOut::default();
    let names = names(folder, &mut left_out)
        .map_err(|e| RunError::Argument(format!("--root {}: should be readable: {e}", folder.display())))?;
    add_all(files, folder, names, "", &mut left_out);
    Ok(left_out)
}

/// The names in a folder, in order.
fn names(folder: &Path, left_out: &mut LeftOut) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    Ok(sorted(folder, entries, left_out))
}

/// The entries that could be read.
fn sorted(folder: &Path, entries: impl Iterator<Item = io::Result<OsString>>, left_out: &mut LeftOut) -> Vec<OsString> {
    let readable = |entry: io::Result<_>| entry.inspect_err(|why| left_out.unreadable(folder, why)).ok();
    let mut names: Vec<_> = entries.filter_map(readable).collect();
    names.sort();
    names
}

fn add_all(
    files: &mut Vec<(String, Content)>,
    folder: &Path,
    names: Vec<OsString>,
    inside: &str,
    left_out: &mut LeftOut,
) {
    for name in names {
        let source = folder.join(&name);
        let Some(name) = name.to_str() else {
            left_out.nr_unnamed += 1;
            left_out.note(&source, "its name is not UTF-8");
            continue;
        };
        if let Err(why) = add_one(files, &source, format!("{inside}/{name}"), left_out) {
            left_out.unreadable(&source, &why);
        }
    }
}

/// Adds what is at `source`, a folder with what is in it.
fn add_one(
    files: &mut Vec<(String, Content)>,
    source: &Path,
    destination: String,
    left_out: &mut LeftOut,
) -> io::Result<()> {
    let about = fs::symlink_metadata(source)?;
    if about.is_dir() {
        // One that cannot be read is there, and empty.
        files.push((destination.clone(), Content::Folder));
        let names = names(source, left_out)?;
        add_all(files, source, names, &destination, left_out);
    } else if about.is_symlink() {
        let target = fs::read_link(source)?;
        files.push((destination, Content::Link(target.as_os_str().as_bytes().to_vec())));
    } else if about.is_file() {
        let bytes = fs::read(source)?;
        files.push((destination, Content::File { bytes, mode: about.permissions().mode() & 0o7777 }));
    } else {
        left_out.nr_special += 1;
        left_out.note(source, "a socket, pipe or device");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_is_left_out_alone() {
        let mut left_out = LeftOut::default();
        let entries = [Ok("b".into()), Err(io::Error::other("lost")), Ok("a".into())];
        assert_eq!(sorted(Path::new("/srv"), entries.into_iter(), &mut left_out), ["a", "b"]);
        assert_eq!(left_out.to_string(), "unreadable: 1; the first is /srv: lost");
    }
}
