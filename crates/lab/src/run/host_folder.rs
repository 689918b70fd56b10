//! A folder of the host that becomes the machine's file system. Sockets, devices and
//! unreadable files are left out and counted.
//!
//! First all entries are found, then they are read: files that are too many or too large for
//! an archive are refused before memory is filled with them.

use super::RunError;
use super::content::{About, Content, Entry};
use super::room::{Room, read_at_most};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
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

/// An entry that was found.
struct Found {
    source: PathBuf,
    path: String,
    host: Metadata,
}

/// A folder that is being read.
struct Walk<'a> {
    argument: String,
    /// Taken from for each entry that is found.
    expected: Room,
    room: &'a mut Room,
    found: Vec<Found>,
    left_out: LeftOut,
    /// Entries whose time no archive holds, and the first of them.
    nr_redated: usize,
    first_redated: PathBuf,
}

/// Adds the folder, which has to be readable, and what is in it. Returns notes for the user.
pub fn add(files: &mut Vec<Entry>, folder: &Path, room: &mut Room) -> Result<Vec<String>, RunError> {
    let argument = format!("--root {}", folder.display());
    let unreadable = |e| RunError::Argument(format!("{argument}: should be readable: {e}"));
    let mut walk = Walk {
        argument: argument.clone(),
        expected: room.clone(),
        room,
        found: Vec::new(),
        left_out: LeftOut::default(),
        nr_redated: 0,
        first_redated: PathBuf::new(),
    };
    let host = fs::metadata(folder).map_err(unreadable)?;
    let names = names(folder, &mut walk.left_out).map_err(unreadable)?;
    walk.found.push(Found { source: folder.to_owned(), path: "/".to_owned(), host });
    walk.find_all(folder, names, "")?;
    for found in std::mem::take(&mut walk.found) {
        walk.read(files, found)?;
    }
    Ok(walk.notes())
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

impl Walk<'_> {
    fn find_all(&mut self, folder: &Path, names: Vec<OsString>, inside: &str) -> Result<(), RunError> {
        for name in names {
            let source = folder.join(&name);
            match name.to_str() {
                Some(name) => self.find(source, format!("{inside}/{name}"))?,
                None => {
                    self.left_out.nr_unnamed += 1;
                    self.left_out.note(&source, "its name is not UTF-8");
                }
            }
        }
        Ok(())
    }
    /// Finds the entry at `source`, and what is in it if it is a folder.
    fn find(&mut self, source: PathBuf, path: String) -> Result<(), RunError> {
        let host = match fs::symlink_metadata(&source) {
            Ok(host) => host,
            Err(why) => {
                self.left_out.unreadable(&source, &why);
                return Ok(());
            }
        };
        if !host.is_dir() && !host.is_file() && !host.is_symlink() {
            self.left_out.nr_special += 1;
            self.left_out.note(&source, "a socket, pipe or device");
            return Ok(());
        }
        self.expected.take(&self.argument, if host.is_dir() { 0 } else { host.len() })?;
        let is_dir = host.is_dir();
        self.found.push(Found { source: source.clone(), path: path.clone(), host });
        if is_dir {
            // One that cannot be read is there, and empty.
            match names(&source, &mut self.left_out) {
                Ok(names) => self.find_all(&source, names, &path)?,
                Err(why) => self.left_out.unreadable(&source, &why),
            }
        }
        Ok(())
    }
    fn read(&mut self, files: &mut Vec<Entry>, Found { source, path, host }: Found) -> Result<(), RunError> {
        let content = if host.is_dir() {
            Ok(Content::Folder)
        } else if host.is_symlink() {
            fs::read_link(&source).map(|target| Content::Link(target.into_os_string().into_encoded_bytes()))
        } else {
            read_at_most(&source, self.room.most_bytes()).map(Content::File)
        };
        let content = match content {
            Ok(content) => content,
            Err(why) => {
                self.left_out.unreadable(&source, &why);
                return Ok(());
            }
        };
        self.room.take(&self.argument, if let Content::File(bytes) = &content { bytes.len() as u64 } else { 0 })?;
        if !About::holds_time_of(&host) {
            self.nr_redated += 1;
            if self.nr_redated == 1 {
                self.first_redated = source;
            }
        }
        files.push(Entry { path, about: About::of(&host), content });
        Ok(())
    }
    fn notes(&self) -> Vec<String> {
        let left_out = (!self.left_out.is_empty()).then(|| format!("left out ({})", self.left_out));
        let redated = (self.nr_redated > 0).then(|| {
            let (nr, first) = (self.nr_redated, self.first_redated.display());
            format!("times before 1970 or after 2106 are the nearest that an archive holds: {nr}; the first is {first}")
        });
        [left_out, redated].into_iter().flatten().collect()
    }
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
