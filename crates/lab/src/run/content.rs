//! A file of the machine, a folder or a link.

/// A file, a folder or a link.
#[derive(Clone)]
pub enum Content {
    /// A file, with its permissions.
    File { bytes: Vec<u8>, mode: u32 },
    /// A folder, empty or not.
    Folder,
    /// A symbolic link to there.
    Link(Vec<u8>),
}
