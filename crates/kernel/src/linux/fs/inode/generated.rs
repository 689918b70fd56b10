//! Generated files. The file system knows each by one trait, [`Generate`]; `/proc` and
//! `/sys` (`linux::proc`) implement it. Nothing of such a file is kept: each lookup makes an
//! inode that says what it stands for, each open file its text (text.rs).

use super::{Body, Inode, Listed, Spot};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::buffer::Buffer;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFREG};

/// A generated file, directory or link.
pub trait Generate: Send + Sync {
    /// Its type and rights.
    fn about(&self) -> About;
    /// Its entry `name`, if it is a directory.
    fn lookup(&self, _name: &[u8]) -> Option<Node> {
        None
    }
    /// The names in it, if it is a directory.
    fn names(&self) -> Vec<Arc<[u8]>> {
        Vec::new()
    }
    /// The text of a link; none if it is no link.
    fn link(&self) -> errno::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Where a link leads, if that is not what its text says.
    fn jump(&self) -> errno::Result<Option<Jump>> {
        Ok(None)
    }
    /// Whether not even root opens it for writing.
    fn refuses_writers(&self) -> bool {
        false
    }
    /// Writes the text, or the part of it that begins at `from`, which is 0 or what
    /// this gave before; gives where the next part begins.
    fn write_text(&self, _from: u64, _buffer: &mut Buffer) -> errno::Result<Option<u64>> {
        Err(Errno::EINVAL)
    }
    /// Reads what is no text; nothing if it is one.
    fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Option<errno::Result<usize>> {
        None
    }
    /// Takes what a program writes.
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> errno::Result<usize> {
        Err(Errno::EINVAL)
    }
}

/// A reference to it.
pub type Node = Arc<dyn Generate>;

/// Properties of a node that are known without making it.
#[derive(Clone, Copy)]
pub struct About {
    /// Its type, as in a mode.
    pub kind: u32,
    /// Its rights.
    pub mode: u32,
}

impl About {
    /// A directory.
    pub const DIR: About = About { kind: S_IFDIR, mode: 0o555 };
    /// A file.
    pub const FILE: About = About { kind: S_IFREG, mode: 0o444 };
    /// A link.
    pub const LINK: About = About { kind: S_IFLNK, mode: 0o777 };

    /// With these rights.
    pub const fn with_mode(self, mode: u32) -> About {
        About { mode, ..self }
    }
}

/// Where a link leads that is more than its text.
pub enum Jump {
    /// To a file.
    Inode(Arc<Inode>),
    /// To something that is open.
    Open(Opened),
}

/// A file that is open, as far as a path leads to it. An open(2) of that path does not keep what was open: its last
/// number may be closed meanwhile, as on Linux.
pub struct Opened {
    /// The file.
    pub inode: Arc<Inode>,
    /// Where it was found, if it has a name.
    pub spot: Option<Spot>,
}

/// A generated inode's place.
pub struct Generated {
    /// Its content.
    pub node: Node,
    /// The directory that it is in.
    pub parent: Arc<Inode>,
    /// Its name there.
    pub name: Arc<[u8]>,
}

impl Generated {
    /// Returns the entry `name` in it, which is the directory `dir`.
    pub fn lookup(&self, dir: &Arc<Inode>, name: &[u8]) -> errno::Result<Option<Arc<Inode>>> {
        self.node.lookup(name).map(|node| inode(dir, name, node)).transpose()
    }
    /// The names in it, which is the directory `dir`, that follow `cookie`, and what
    /// they are.
    pub fn list(&self, dir: &Arc<Inode>, cookie: u64, max: usize) -> errno::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for (cookie, name) in (3..).zip(self.node.names()).filter(|(c, _)| *c > cookie).take(max) {
            // It may have gone since.
            if let Some(inode) = self.lookup(dir, &name)? {
                listed.push(Listed { cookie, name, inode });
            }
        }
        Ok(listed)
    }
}

/// The inode of `node`, under that name in `parent`.
pub fn inode(parent: &Arc<Inode>, name: &[u8], node: Node) -> errno::Result<Arc<Inode>> {
    // The same name has the same number each time (FNV-1a).
    let hash = name.iter().fold(parent.number ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let about = node.about();
    let body = Body::Generated(Generated { node, parent: parent.clone(), name: name.into() });
    let inode = Inode::numbered(hash >> 20 | 1 << 44, body, about.mode)?;
    if about.kind == S_IFDIR {
        inode.change(|meta| meta.nr_links = 2);
    }
    Ok(inode)
}
