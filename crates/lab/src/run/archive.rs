//! Packs files as a cpio archive in the "newc" format, which both kernels read.

use super::content::{About, Content, Entry};
use super::files::Payload;
use std::collections::BTreeSet;

/// The entry that says what to run: path and arguments, each ended by a zero.
const ARGUMENTS: &str = "/.softfault/arguments";
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
/// Permissions of a folder that no entry is for.
const FOLDER_MODE: u32 = 0o755;

/// Appends zeroes up to a multiple of four.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// An archive that is being written.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    nr_entries: u32,
    paths: BTreeSet<String>,
}

impl Writer {
    /// One entry: thirteen numbers of eight hexadecimal digits behind the magic,
    /// name, content.
    fn entry(&mut self, inode: u32, name: &str, kind: u32, about: About, content: &[u8]) {
        let name_bytes = name.len() as u32 + 1;
        let About { mode, uid, gid, modified_s } = about;
        let header = [inode, kind | mode, uid, gid, 1, modified_s, content.len() as u32, 0, 0, 0, 0, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in header {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        pad(&mut self.bytes);
        self.bytes.extend_from_slice(content);
        pad(&mut self.bytes);
    }
    /// An entry at an absolute path, after the folders that lead there: Linux makes
    /// none of its own accord. Such a folder has the time of the first entry in it.
    fn add(&mut self, path: &str, kind: u32, about: About, content: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.paths.contains(parent)
        {
            self.add(parent, FOLDER, About::made(FOLDER_MODE, about.modified_s), &[]);
        }
        self.paths.insert(path.to_owned());
        self.nr_entries += 1;
        let name = if path.is_empty() { "." } else { path };
        self.entry(self.nr_entries, name, kind, about, content);
    }
}

/// The archive of everything in `payload`.
pub fn pack(payload: &Payload) -> Vec<u8> {
    let mut writer = Writer::default();
    for Entry { path, about, content } in &payload.files {
        match content {
            Content::File(bytes) => writer.add(path, REGULAR, *about, bytes),
            Content::Folder => writer.add(path, FOLDER, *about, &[]),
            Content::Link(target) => writer.add(path, LINK, *about, target),
        }
    }
    let mut arguments = Vec::new();
    for argument in &payload.command {
        arguments.extend_from_slice(argument);
        arguments.push(0);
    }
    writer.add(ARGUMENTS, REGULAR, About::made(0o644, 0), &arguments);
    writer.entry(0, "TRAILER!!!", 0, About::made(0, 0), &[]);
    writer.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str, about: About, content: Content) -> Entry {
        Entry { path: path.into(), about, content }
    }

    #[test]
    fn entries_are_aligned_and_named() {
        let about = About { mode: 0o4755, uid: 4_000_000_000, gid: 7, modified_s: u32::MAX };
        let payload = Payload {
            files: vec![
                at("/a/bc", about, Content::File(b"12345".to_vec())),
                at("/a/d", about, Content::Link(b"bc".to_vec())),
            ],
            command: vec![b"/a/bc".to_vec(), b"x y".to_vec()],
        };
        let archive = pack(&payload);
        assert_eq!((&archive[..6], &archive[14..22]), (&b"070701"[..], &b"000041ed"[..]), "its folder comes first");
        assert_eq!(&archive[22..54], b"000000000000000000000001ffffffff", "root's, of the time of the file");
        let file = &archive[112..];
        assert_eq!(&file[..6], b"070701");
        assert_eq!(&file[14..54], b"000089edee6b28000000000700000001ffffffff");
        assert_eq!(&file[54..62], b"00000005"); // size of the content
        assert_eq!(&file[110..115], b"a/bc\0");
        assert_eq!(&file[116..121], b"12345");
        assert!(archive.windows(10).any(|w| w == b"/a/bc\0x y\0"));
        assert!(archive.len().is_multiple_of(4));
        let entries = archive.windows(6).filter(|w| *w == b"070701").count();
        assert_eq!(entries, 6, "two files, a link, two folders, the end");
    }

    /// A folder for `/lib/x` would take the link's place, or that of the folder behind it.
    #[test]
    fn no_folder_is_made_where_a_link_is() {
        let about = About::made(0o777, 0);
        let files = vec![
            at("/", About::made(0o700, 5), Content::Folder),
            at("/lib", about, Content::Link(b"usr".to_vec())),
            at("/lib/x", about, Content::Folder),
        ];
        let archive = pack(&Payload { files, command: Vec::new() });
        assert_eq!(&archive[110..112], b".\0", "the root");
        let entries = archive.windows(6).filter(|w| *w == b"070701").count();
        assert_eq!(entries, 6, "the root, a link, two folders, the arguments, the end");
    }
}
