//! An entry of the machine's file system: a file, a folder or a link, and what stat(2) tells about it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file, a folder or a link.
#[derive(Clone)]
pub enum Content {
    /// The bytes of a file.
    File(Vec<u8>),
    /// A folder, empty or not.
    Folder,
    /// A symbolic link to there.
    Link(Vec<u8>),
}

/// Permissions, owner and time of an entry, as far as an archive has room for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Permissions, with the bits above them: set-user-ID, set-group-ID, sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// When the content was changed: seconds since 1970. The field ends in 2106.
    pub modified_s: u32,
}

impl About {
    /// Those of an entry of the host. A time outside the field is the nearest in it.
    pub fn of(host: &Metadata) -> About {
        let modified_s = host.mtime().clamp(0, u32::MAX.into()) as u32;
        About { mode: host.mode() & 0o7777, uid: host.uid(), gid: host.gid(), modified_s }
    }
    /// Whether the archive has room for the time.
    pub fn holds_time_of(host: &Metadata) -> bool {
        u32::try_from(host.mtime()).is_ok()
    }
    /// Those of an entry that this command makes. It has no time of its own: equal files give equal archives.
    pub const fn made(mode: u32, modified_s: u32) -> About {
        About { mode, uid: 0, gid: 0, modified_s }
    }
}

/// An entry.
#[derive(Clone)]
pub struct Entry {
    /// Path inside the machine (absolute).
    pub path: String,
    pub about: About,
    pub content: Content,
}
