//! From a path to an inode: absolute paths and relative ones, `.` and `..`,
//! symbolic links, slashes at the end.

use super::inode::generated::{Jump, Opened};
use super::inode::{Body, Inode, Spot};
use super::{MAX_NAME_BYTES, MAX_PATH_BYTES, tree};
use crate::linux::errno::{self, Errno};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// Symbolic links that one path may lead through.
const MAX_LINKS: usize = 40;
/// The rest of a path, links written out, is no longer than this.
const MAX_REST_BYTES: usize = 8 * MAX_PATH_BYTES;

/// Kind of name that the path ends in.
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
    /// Its kind.
    pub last: Last,
    /// The file of that name, if there is one.
    pub inode: Option<Arc<Inode>>,
    /// For a link of `/proc` to something that is open: that.
    pub open: Option<Opened>,
    /// The path says that it is a directory, by a slash at the end.
    pub wants_dir: bool,
}

impl Walked {
    /// Returns the file; ENOENT if there is none.
    pub fn found(self) -> errno::Result<Arc<Inode>> {
        self.inode.ok_or(Errno::ENOENT)
    }
}

/// Returns the file called `name` in a directory of any kind.
pub fn lookup(dir: &Arc<Inode>, name: &[u8]) -> errno::Result<Option<Arc<Inode>>> {
    match &dir.body {
        Body::Generated(generated) => generated.lookup(dir, name),
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
        Body::Generated(generated) => match generated.node.jump()? {
            Some(jump) => Some(Link::Jump(jump)),
            None => generated.node.link()?.map(Link::Path),
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
    fn next(&mut self) -> Option<Range<usize>> {
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
    /// Goes on with `target` and only then with the rest.
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

/// A walk under way.
struct Walk {
    rest: Rest,
    at: Arc<Inode>,
    last: Last,
    nr_links: usize,
}

/// Follows `path` from `start`. An empty path is nowhere.
pub fn walk(start: &Arc<Inode>, path: &[u8], follow: Follow) -> errno::Result<Walked> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= MAX_PATH_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    let at = if path[0] == b'/' { tree::root() } else { start.clone() };
    let mut walk = Walk { rest: Rest { bytes: copy(path)?, at: 0 }, at, last: Last::None, nr_links: 0 };
    while let Some(range) = walk.rest.next() {
        if !walk.at.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if let Some(end) = walk.step(range, follow)? {
            return Ok(end);
        }
    }
    walk.end_in_directory()
}

impl Walk {
    /// Goes on by one name; where the path leads, if that was the last.
    fn step(&mut self, range: Range<usize>, follow: Follow) -> errno::Result<Option<Walked>> {
        let name = &self.rest.bytes[range];
        match name {
            b"." => self.last = Last::Dot,
            b".." => {
                self.last = Last::DotDot;
                self.at = above(&self.at)?;
            }
            _ if name.len() > MAX_NAME_BYTES => return Err(Errno::ENAMETOOLONG),
            _ => {
                self.last = Last::Name;
                let found = lookup(&self.at, name)?;
                let (is_last, has_slash) = (self.rest.is_last(), self.rest.has_slash());
                let follows = !is_last || follow == Follow::Last || follow == Follow::Slash && has_slash;
                let target = found.as_ref().filter(|_| follows).map_or(Ok(None), link)?;
                match (target, found) {
                    (Some(target), _) => return self.follow(target),
                    (None, found) if is_last => {
                        let name = name.into();
                        return self.end_at(name, found, follow).map(Some);
                    }
                    (None, Some(found)) => self.at = found,
                    (None, None) => return Err(Errno::ENOENT),
                }
            }
        }
        Ok(None)
    }
    /// Goes on where a link leads.
    fn follow(&mut self, target: Link) -> errno::Result<Option<Walked>> {
        self.nr_links += 1;
        if self.nr_links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        self.last = Last::None;
        let is_end = self.rest.is_last() && !self.rest.has_slash();
        match target {
            Link::Path(path) if path.is_empty() => return Err(Errno::ENOENT),
            Link::Path(path) => {
                if path[0] == b'/' {
                    self.at = tree::root();
                }
                self.rest.put_before(path)?;
            }
            Link::Jump(Jump::Inode(inode)) => self.at = inode,
            Link::Jump(Jump::Open(open)) if is_end => {
                let (dir, inode) = (self.at.clone(), Some(open.inode.clone()));
                let (name, last) = (Box::default(), self.last);
                return Ok(Some(Walked { dir, name, last, inode, open: Some(open), wants_dir: false }));
            }
            Link::Jump(Jump::Open(open)) => self.at = open.inode,
        }
        Ok(None)
    }
    /// The end at a name, which nothing needs to have.
    fn end_at(&self, name: Box<[u8]>, inode: Option<Arc<Inode>>, follow: Follow) -> errno::Result<Walked> {
        let has_slash = self.rest.has_slash();
        let needs_dir = has_slash && follow != Follow::Never;
        if needs_dir && inode.as_ref().is_some_and(|inode| !inode.is_dir()) {
            return Err(Errno::ENOTDIR);
        }
        Ok(Walked { dir: self.at.clone(), name, last: self.last, inode, open: None, wants_dir: has_slash })
    }
    /// The end where the path says no name: at `.`, `..`, `/`, behind a link.
    fn end_in_directory(self) -> errno::Result<Walked> {
        let wants_dir = self.at.is_dir();
        if self.rest.has_slash() && !wants_dir {
            return Err(Errno::ENOTDIR);
        }
        let (dir, inode) = (self.at.clone(), Some(self.at));
        Ok(Walked { dir, name: Box::default(), last: self.last, inode, open: None, wants_dir })
    }
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

/// The path that a file was found at, with a note if it is there no more.
pub fn path_of(inode: &Arc<Inode>, spot: Option<&Spot>) -> errno::Result<Vec<u8>> {
    let Some(spot) = spot.filter(|s| !s.name.is_empty()) else {
        return path_of_dir(inode);
    };
    let mut path = path_of_dir(&spot.dir)?;
    path.try_reserve(spot.name.len() + 12).map_err(|_| Errno::ENOMEM)?;
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(&spot.name);
    let found = lookup(&spot.dir, &spot.name)?;
    if found.is_none_or(|found| found.number != inode.number) {
        path.extend_from_slice(b" (deleted)");
    }
    Ok(path)
}
