//! From a path to an inode: absolute paths and relative ones, `.` and `..`,
//! symbolic links, slashes at the end.

use super::inode::{Body, Inode};
use super::proc::{self, Jump};
use super::{MAX_NAME_BYTES, MAX_PATH_BYTES, tree};
use crate::errno::{self, Errno};
use crate::file::Open;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Symbolic links that one path may lead through.
const MAX_LINKS: usize = 40;
/// What is left of a path, links written out, is no longer than this.
const MAX_REST_BYTES: usize = 8 * MAX_PATH_BYTES;

/// What kind of name the path ends in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// A name in a directory.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// None: the path is `/`, or a link of `/proc` that has no path.
    None,
}

/// When the last name of a path is followed, if it is a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Always.
    Last,
    /// Only with a slash behind it.
    Slash,
    /// Never: the name itself is meant, to be made or removed.
    Never,
}

/// Where a path leads.
pub struct Walked {
    /// The directory of the last name.
    pub dir: Arc<Inode>,
    /// The last name.
    pub name: Box<[u8]>,
    /// What kind it is.
    pub last: Last,
    /// What is there, if anything.
    pub inode: Option<Arc<Inode>>,
    /// For a link of `/proc` to something that is open: that.
    pub open: Option<Arc<Open>>,
    /// The path says that it is a directory, by a slash at the end.
    pub wants_dir: bool,
}

impl Walked {
    /// What is there; ENOENT if nothing is.
    pub fn found(self) -> errno::Result<Arc<Inode>> {
        self.inode.ok_or(Errno::ENOENT)
    }
}

/// What is called `name` in a directory of any kind.
pub fn lookup(dir: &Arc<Inode>, name: &[u8]) -> errno::Result<Option<Arc<Inode>>> {
    match &dir.body {
        Body::Generated(generated) => proc::lookup(dir, generated, name),
        _ => Ok(tree::lookup(dir, name)),
    }
}

/// The directory above.
pub fn above(dir: &Arc<Inode>) -> errno::Result<Arc<Inode>> {
    match &dir.body {
        Body::Generated(generated) => Ok(generated.parent.clone()),
        _ => tree::parent(dir).map(|(parent, _)| parent).ok_or(Errno::ENOENT),
    }
}

/// Where a link leads, if the inode is one.
enum Link {
    Path(Vec<u8>),
    Jump(Jump),
}

fn link(inode: &Arc<Inode>) -> errno::Result<Option<Link>> {
    Ok(match &inode.body {
        Body::Symlink(target) => Some(Link::Path(copy(target)?)),
        Body::Generated(generated) => match proc::jump(generated)? {
            Some(jump) => Some(Link::Jump(jump)),
            None => proc::link(generated)?.map(Link::Path),
        },
        _ => None,
    })
}

fn copy(bytes: &[u8]) -> errno::Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The rest of a path, from its end: what a link says goes in front.
struct Rest {
    bytes: Vec<u8>,
    at: usize,
}

impl Rest {
    /// The next name; nothing at the end.
    fn next(&mut self) -> Option<core::ops::Range<usize>> {
        let slashes = self.bytes[self.at..].iter().take_while(|b| **b == b'/').count();
        let start = self.at + slashes;
        let len = self.bytes[start..].iter().take_while(|b| **b != b'/').count();
        self.at = start + len;
        (len > 0).then_some(start..self.at)
    }
    fn is_last(&self) -> bool {
        self.bytes[self.at..].iter().all(|b| *b == b'/')
    }
    fn has_slash(&self) -> bool {
        self.at < self.bytes.len()
    }
    /// Goes on with `target` and only then with what is left.
    fn put_before(&mut self, target: Vec<u8>) -> errno::Result<()> {
        let rest = &self.bytes[self.at..];
        if target.len() + rest.len() > MAX_REST_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut bytes = target;
        bytes.try_reserve_exact(rest.len()).map_err(|_| Errno::ENOMEM)?;
        bytes.extend_from_slice(rest);
        (self.bytes, self.at) = (bytes, 0);
        Ok(())
    }
}

/// Follows `path` from `start`. An empty path is nowhere.
pub fn walk(start: &Arc<Inode>, path: &[u8], follow: Follow) -> errno::Result<Walked> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= MAX_PATH_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut rest = Rest { bytes: copy(path)?, at: 0 };
    let mut at = if path[0] == b'/' { tree::root() } else { start.clone() };
    let mut last = Last::None;
    let mut nr_links = 0;
    while let Some(range) = rest.next() {
        if !at.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let (is_last, has_slash) = (rest.is_last(), rest.has_slash());
        let name = &rest.bytes[range.clone()];
        match name {
            b"." => last = Last::Dot,
            b".." => {
                last = Last::DotDot;
                at = above(&at)?;
            }
            _ if name.len() > MAX_NAME_BYTES => return Err(Errno::ENAMETOOLONG),
            _ => {
                last = Last::Name;
                let found = lookup(&at, name)?;
                let target = match &found {
                    Some(inode) if !is_last || follow == Follow::Last || follow == Follow::Slash && has_slash => {
                        link(inode)?
                    }
                    _ => None,
                };
                match (target, found) {
                    (Some(target), _) => {
                        nr_links += 1;
                        if nr_links > MAX_LINKS {
                            return Err(Errno::ELOOP);
                        }
                        last = Last::None;
                        match target {
                            Link::Path(path) if path.is_empty() => return Err(Errno::ENOENT),
                            Link::Path(path) => {
                                if path[0] == b'/' {
                                    at = tree::root();
                                }
                                rest.put_before(path)?;
                            }
                            Link::Jump(Jump::Inode(inode)) => at = inode,
                            Link::Jump(Jump::Open(open)) if is_last && !has_slash => {
                                let inode = Some(open.inode.clone());
                                return Ok(Walked {
                                    dir: at,
                                    name: Box::default(),
                                    last,
                                    inode,
                                    open: Some(open),
                                    wants_dir: false,
                                });
                            }
                            Link::Jump(Jump::Open(open)) => at = open.inode.clone(),
                        }
                    }
                    (None, found) if is_last => {
                        let wants_dir = has_slash && follow != Follow::Never;
                        if wants_dir && found.as_ref().is_some_and(|f| !f.is_dir()) {
                            return Err(Errno::ENOTDIR);
                        }
                        let name = name.into();
                        return Ok(Walked { dir: at, name, last, inode: found, open: None, wants_dir: has_slash });
                    }
                    (None, Some(found)) => at = found,
                    (None, None) => return Err(Errno::ENOENT),
                }
            }
        }
    }
    if rest.has_slash() && !at.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    let wants_dir = at.is_dir();
    Ok(Walked { dir: at.clone(), name: Box::default(), last, inode: Some(at), open: None, wants_dir })
}

/// The path of a directory from the root; ENOENT for one that was removed.
pub fn path_of_dir(dir: &Arc<Inode>) -> errno::Result<Vec<u8>> {
    let root = tree::root();
    let mut names: Vec<Arc<[u8]>> = Vec::new();
    let mut at = dir.clone();
    while !Arc::ptr_eq(&at, &root) {
        let (parent, name) = match &at.body {
            Body::Generated(generated) => (generated.parent.clone(), generated.name.clone()),
            _ => tree::parent(&at).ok_or(Errno::ENOENT)?,
        };
        names.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        names.push(name);
        at = parent;
    }
    let mut path = Vec::new();
    path.try_reserve_exact(names.iter().map(|n| n.len() + 1).sum::<usize>().max(1)).map_err(|_| Errno::ENOMEM)?;
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}
