//! Packing files as a cpio archive, form "newc": what the kernel reads.

use super::files::Payload;

/// The entry that says what to run: path and arguments, each ended by a zero.
const ARGUMENTS: &str = ".softfault/arguments";
const REGULAR_EXECUTABLE: u32 = 0o100_755;
const REGULAR: u32 = 0o100_644;

/// Appends zeroes up to a multiple of four.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// One entry: thirteen numbers of eight hexadecimal digits behind the magic,
/// name, content.
fn add(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, content: &[u8]) {
    let name_bytes = name.len() as u32 + 1;
    let header = [inode, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name_bytes, 0];
    archive.extend_from_slice(b"070701");
    for number in header {
        archive.extend_from_slice(format!("{number:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(content);
    pad(archive);
}

/// The archive of everything in `payload`.
pub fn pack(payload: &Payload) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut inode = 1;
    for (path, content) in &payload.files {
        add(&mut archive, inode, path.trim_start_matches('/'), REGULAR_EXECUTABLE, content);
        inode += 1;
    }
    let mut arguments = Vec::new();
    for argument in &payload.command {
        arguments.extend_from_slice(argument);
        arguments.push(0);
    }
    add(&mut archive, inode, ARGUMENTS, REGULAR, &arguments);
    add(&mut archive, 0, "TRAILER!!!", 0, &[]);
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_named() {
        let payload = Payload {
            files: vec![("/a/bc".into(), b"12345".to_vec())],
            command: vec![b"/a/bc".to_vec(), b"x y".to_vec()],
        };
        let archive = pack(&payload);
        assert_eq!(&archive[..6], b"070701");
        assert_eq!(&archive[54..62], b"00000005"); // size of the content
        assert_eq!(&archive[110..115], b"a/bc\0");
        assert_eq!(&archive[116..121], b"12345");
        assert!(archive.windows(10).any(|w| w == b"/a/bc\0x y\0"));
        assert!(archive.len().is_multiple_of(4));
    }
}
