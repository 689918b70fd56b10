//! Extended attributes of files. No file has any and none can be given one: a program hears what Linux says of a file
//! without attributes, and of setting one what it says of a file system that keeps none.

use super::buffer::{Memory, PAGE_BYTES};
use super::call::Call;
use super::path::{From, open_file, read_path, resolve};
use crate::linux::errno::{self, Errno};
use crate::linux::file::Kind;
use crate::linux::fs::walk::Follow;
use crate::linux::fs::{Body, Inode};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{S_IFDIR, S_IFREG};

/// The longest name and the largest value.
const MAX_NAME_BYTES: usize = 255;
const MAX_VALUE_BYTES: u64 = 65_536;
/// How names of access control lists begin.
const ACCESS_LIST: &[u8] = b"system.posix_acl_";
/// XATTR_CREATE and XATTR_REPLACE.
const KNOWN_FLAGS: u32 = 3;

/// How a call names its file: by the path of argument 0, or by the number of an open file.
#[derive(Clone, Copy)]
pub enum By {
    /// A path.
    Path(Follow),
    /// A number.
    Number,
}

fn file(call: &Call, by: By) -> errno::Result<Arc<Inode>> {
    match by {
        By::Path(follow) => resolve(call, From::Cwd, 0, follow)?.found(),
        By::Number => match open_file(call, 0)? {
            open if matches!(open.kind, Kind::Path) => Err(Errno::EBADF),
            open => Ok(open.inode.clone()),
        },
    }
}

/// The name of an attribute, which argument 1 points to.
fn name(call: &Call) -> errno::Result<Vec<u8>> {
    let name = read_path(call, call.args[1]).map_err(|errno| match errno {
        Errno::ENAMETOOLONG => Errno::ERANGE,
        other => other,
    })?;
    if (1..=MAX_NAME_BYTES).contains(&name.len()) { Ok(name) } else { Err(Errno::ERANGE) }
}

/// Why the file has no attribute of that name: there is none, or the name is none for such a file. Attributes of users
/// are for plain files and directories; `foreign` is the answer for others.
fn refusal(inode: &Arc<Inode>, name: &[u8], foreign: Errno) -> Errno {
    let is_generated = matches!(inode.body, Body::Generated(_));
    if name.starts_with(b"user.") && ![S_IFREG, S_IFDIR].contains(&inode.kind()) {
        return foreign;
    }
    let is_of_link = matches!(inode.body, Body::Symlink(_));
    match name {
        _ if is_generated => Errno::EOPNOTSUPP,
        b"user." | b"trusted." | b"security." => Errno::EINVAL,
        b"system.posix_acl_access" | b"system.posix_acl_default" if !is_of_link => Errno::ENODATA,
        _ if [&b"user."[..], b"trusted.", b"security."].iter().any(|prefix| name.starts_with(prefix)) => Errno::ENODATA,
        _ => Errno::EOPNOTSUPP,
    }
}

/// getxattr(2) and its kin.
pub fn get(call: &mut Call, by: By) -> errno::Result {
    let name = name(call)?;
    Err(refusal(&file(call, by)?, &name, Errno::ENODATA))
}

/// listxattr(2) and its kin: an empty list.
pub fn list(call: &mut Call, by: By) -> errno::Result {
    file(call, by).map(|_| 0)
}

/// Reads the value, which no file keeps: a program hears of a bad address first.
fn check_value(call: &Call, addr: u64, len: u64) -> errno::Result<()> {
    let parts = [[addr, len]];
    let mut value = Memory::of_program(call.space(), &parts);
    let mut page = [0; PAGE_BYTES as usize];
    while value.left() > 0 {
        let nr = value.left().min(PAGE_BYTES) as usize;
        value.take_all(&mut page[..nr])?;
    }
    Ok(())
}

/// setxattr(2) and its kin.
pub fn set(call: &mut Call, by: By) -> errno::Result {
    if call.int(4) & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let name = name(call)?;
    if call.args[3] > MAX_VALUE_BYTES {
        return Err(Errno::E2BIG);
    }
    check_value(call, call.args[2], call.args[3])?;
    Err(match refusal(&file(call, by)?, &name, Errno::EPERM) {
        Errno::ENODATA => Errno::EOPNOTSUPP,
        other => other,
    })
}

/// removexattr(2) and its kin.
pub fn remove(call: &mut Call, by: By) -> errno::Result {
    let name = name(call)?;
    match refusal(&file(call, by)?, &name, Errno::EPERM) {
        // A list that is not there is as good as an empty one.
        Errno::ENODATA if name.starts_with(ACCESS_LIST) => Ok(0),
        other => Err(other),
    }
}
