//! Packs files as a cpio archive in the "newc" format, which both kernels read.

use super::content::Content;
use super::files::Payload;
use std::collections::BTreeSet;

/// The entry that says what to run: path and arguments, each ended by a zero.
const ARGUMENTS: &str = "/.softfault/arguments";
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_755;
const LINK: u32 = 0o120_777;

/// Appends zeroes up to a multiple of four.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// An archive that is being written.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    nr_entries: u32,
    folders: BTreeSet<String>,
}

impl Writer {
    /// One entry: thirteen numbers of eight hexadecimal digits behind the magic,
    /// name, content.
    fn entry(&mut self, inode: u32, name: &str, mode: u32, content: &[u8]) {
        let name_bytes = name.len() as u32 + 1;
        let header = [inode, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name_bytes, 0];
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
    /// none of its own accord.
    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.folders.contains(parent)
        {
            self.folder(parent);
        }
        self.nr_entries += 1;
        self.entry(self.nr_entries, path, mode, content);
    }
    fn folder(&mut self, path: &str) {
        if self.folders.insert(path.trim_matches('/').to_owned()) {
            self.add(path, FOLDER, &[]);
        }
    }
}

/// The archive of everything in `payload`.
pub fn pack(payload: &Payload) -> Vec<u8> {
    let mut writer = Writer::default();
    for (path, content) in &payload.files {
        match content {
            Content::File { bytes, mode } => writer.add(path, REGULAR | mode & 0o7777, bytes),
            Content::Folder => writer.folder(path),
            Content::Link(target) => writer.add(path, LINK, target),
        }
    }
    let mut arguments = Vec::new();
    for argument in &payload.command {
        arguments.extend_from_slice(argument);
        arguments.push(0);
    }
    writer.add(ARGUMENTS, REGULAR | 0o644, &arguments);
    writer.entry(0, "TRAILER!!!", 0, &[]);
    writer.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_named() {
        let file = Content::File { bytes: b"12345".to_vec(), mode: 0o755 };
        let payload = Payload {
            files: vec![("/a/bc".into(), file), ("/a/d".into(), Content::Link(b"bc".to_vec()))],
            command: vec![b"/a/bc".to_vec(), b"x y".to_vec()],
        };
        let archive = pack(&payload);
        assert_eq!((&archive[..6], &archive[14..22]), (&b"070701"[..], &b"000041ed"[..]), "its folder comes first");
        let file = &archive[112..];
        assert_eq!(&file[..6], b"070701");
        assert_eq!(&file[54..62], b"00000005"); // size of the content
        assert_eq!(&file[110..115], b"a/bc\0");
        assert_eq!(&file[116..121], b"12345");
        assert!(archive.windows(10).any(|w| w == b"/a/bc\0x y\0"));
        assert!(archive.len().is_multiple_of(4));
        let folders = archive.windows(6).filter(|w| *w == b"070701").count();
        assert_eq!(folders, 6, "two files, a link, two folders, the end");
    }
}
