//! Generated files: `/proc` and `/sys`. Nothing of them is kept: each lookup
//! makes an inode that says what it stands for, each open file its text.
//!
//! `fixed` has the names that are always there, `process` those of a process,
//! `system`, `memory` and `mappings` write the texts, `knobs` are the numbers that
//! can be set, `huge` the knobs of huge pages, `text` is an open file.

mod fixed;
mod huge;
pub mod knobs;
mod mappings;
mod memory;
mod process;
mod system;
mod text;

pub use fixed::{PROC, SYS};
pub use text::Text;

use super::inode::{Body, Inode};
use super::tree::Listed;
use crate::linux::errno;
use crate::linux::file::Open;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fixed::Fixed;
use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFREG};
use process::{Of, Subject};

/// What a generated inode stands for.
#[derive(Clone, Copy)]
pub enum Node {
    /// A name that is always there.
    Fixed(&'static Fixed),
    /// `/sys/devices/system/cpu/cpuN`.
    Cpu,
    /// A process, or one of its threads: a directory.
    Subject(Subject),
    /// Something about it.
    Of(Subject, &'static Of),
    /// `/proc/PID/fd/N`.
    Fd(Subject, u32),
    /// `/proc/PID/fdinfo/N`.
    FdInfo(Subject, u32),
}

/// A generated inode's place.
pub struct Generated {
    /// What it stands for.
    pub node: Node,
    /// The directory that it is in.
    pub parent: Arc<Inode>,
    /// Its name there.
    pub name: Arc<[u8]>,
}

/// Where a link leads that is more than its text.
pub enum Jump {
    /// To a file.
    Inode(Arc<Inode>),
    /// To something that is open.
    Open(Arc<Open>),
}

/// What is known about a node without making it.
struct Kind {
    kind: u32,
    mode: u32,
}

const DIR: Kind = Kind { kind: S_IFDIR, mode: 0o555 };
const FILE: Kind = Kind { kind: S_IFREG, mode: 0o444 };
const LINK: Kind = Kind { kind: S_IFLNK, mode: 0o777 };

impl Node {
    fn about(self) -> Kind {
        match self {
            Node::Fixed(fixed) => fixed.about(),
            Node::Cpu | Node::Subject(_) => DIR,
            Node::Of(_, of) => of.about(),
            Node::Fd(..) => LINK,
            Node::FdInfo(..) => FILE,
        }
    }
}

impl Generated {
    /// Its type, as in a mode.
    pub fn kind(&self) -> u32 {
        self.node.about().kind
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

/// What is called `name` in a generated directory.
pub fn lookup(dir: &Arc<Inode>, generated: &Generated, name: &[u8]) -> errno::Result<Option<Arc<Inode>>> {
    let node = match generated.node {
        Node::Fixed(fixed) => fixed.lookup(name),
        Node::Subject(subject) => subject.lookup(name),
        Node::Of(subject, of) => of.lookup(subject, name),
        Node::Cpu | Node::Fd(..) | Node::FdInfo(..) => None,
    };
    node.map(|node| inode(dir, name, node)).transpose()
}

/// The names in a generated directory that follow `cookie`, and what they are.
pub fn list(dir: &Arc<Inode>, generated: &Generated, cookie: u64, max: usize) -> errno::Result<Vec<Listed>> {
    let names = match generated.node {
        Node::Fixed(fixed) => fixed.names(),
        Node::Subject(subject) => subject.names(),
        Node::Of(subject, of) => of.names(subject),
        Node::Cpu | Node::Fd(..) | Node::FdInfo(..) => Vec::new(),
    };
    let mut listed = Vec::new();
    for (cookie, name) in (3..).zip(names).filter(|(c, _)| *c > cookie).take(max) {
        // It may have gone since.
        if let Some(inode) = lookup(dir, generated, &name)? {
            listed.push(Listed { cookie, name, inode });
        }
    }
    Ok(listed)
}

/// The text of a link; none if it is no link.
pub fn link(generated: &Generated) -> errno::Result<Option<Vec<u8>>> {
    match generated.node {
        Node::Fixed(fixed) => Ok(fixed.link()),
        Node::Of(subject, of) => of.link(subject),
        Node::Fd(subject, number) => process::link_of_fd(subject, number).map(Some),
        _ => Ok(None),
    }
}

/// Where a link leads, if that is not what its text says.
pub fn jump(generated: &Generated) -> errno::Result<Option<Jump>> {
    match generated.node {
        Node::Of(subject, of) => of.jump(subject),
        Node::Fd(subject, number) => process::jump_to_fd(subject, number).map(Some),
        _ => Ok(None),
    }
}
