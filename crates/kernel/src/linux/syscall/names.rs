//! Calls that make, move and remove names.

use super::call::Call;
use super::path::{From, open_file, read_path, resolve, resolve_inode};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::MAX_PATH_BYTES;
use crate::linux::fs::change::{self, New};
use crate::linux::fs::walk::{self, Follow};
use crate::linux::fs::{Body, inode};
use crate::port::mm;
use alloc::vec::Vec;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, S_IFBLK, S_IFCHR, S_IFIFO,
    S_IFMT, S_IFREG, S_IFSOCK,
};

fn masked(call: &Call, mode: u32) -> u32 {
    mode & !call.process.place.lock().umask
}

/// mkdir(2) and mkdirat(2): `n` is the path's argument.
pub fn mkdir(call: &mut Call, from: From, n: usize) -> errno::Result {
    let mode = masked(call, call.int(n + 1)) & 0o1777;
    let at = resolve(call, from, n, Follow::Never)?;
    change::create(&at, New::Dir, mode).map(|_| 0)
}

pub fn rmdir(call: &mut Call) -> errno::Result {
    change::rmdir(&resolve(call, From::Cwd, 0, Follow::Never)?).map(|()| 0)
}

fn remove(at: &walk::Walked) -> errno::Result {
    if at.wants_dir && at.inode.as_ref().is_some_and(|i| !i.is_dir()) {
        return Err(Errno::ENOTDIR);
    }
    change::unlink(at).map(|()| 0)
}

pub fn unlink(call: &mut Call) -> errno::Result {
    remove(&resolve(call, From::Cwd, 0, Follow::Never)?)
}

pub fn unlinkat(call: &mut Call) -> errno::Result {
    let flags = call.int(2);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let at = resolve(call, From::Argument(0), 1, Follow::Never)?;
    if flags & AT_REMOVEDIR != 0 { change::rmdir(&at).map(|()| 0) } else { remove(&at) }
}

fn rename_paths(call: &Call, from: (From, usize), to: (From, usize), flags: u32) -> errno::Result {
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 || flags == RENAME_NOREPLACE | RENAME_EXCHANGE {
        return Err(Errno::EINVAL);
    }
    let old = resolve(call, from.0, from.1, Follow::Never)?;
    let new = resolve(call, to.0, to.1, Follow::Never)?;
    change::rename(&old, &new, flags & RENAME_NOREPLACE != 0, flags & RENAME_EXCHANGE != 0).map(|()| 0)
}

pub fn rename(call: &mut Call) -> errno::Result {
    rename_paths(call, (From::Cwd, 0), (From::Cwd, 1), 0)
}

pub fn renameat(call: &mut Call, flags: u32) -> errno::Result {
    rename_paths(call, (From::Argument(0), 1), (From::Argument(2), 3), flags)
}

pub fn link(call: &mut Call) -> errno::Result {
    let inode = resolve(call, From::Cwd, 0, Follow::Slash)?.found()?;
    change::link(&inode, &resolve(call, From::Cwd, 1, Follow::Never)?).map(|()| 0)
}

pub fn linkat(call: &mut Call) -> errno::Result {
    let flags = call.int(4);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = if flags & AT_SYMLINK_FOLLOW != 0 { Follow::Last } else { Follow::Slash };
    let inode = resolve_inode(call, From::Argument(0), 1, follow, flags)?;
    change::link(&inode, &resolve(call, From::Argument(2), 3, Follow::Never)?).map(|()| 0)
}

/// symlink(2) and symlinkat(2).
pub fn symlink(call: &mut Call, from: From, n: usize) -> errno::Result {
    let target = read_path(call, call.args[0])?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let at = resolve(call, from, n, Follow::Never)?;
    change::create(&at, New::Symlink(&target), 0o777).map(|_| 0)
}

/// readlink(2) and readlinkat(2).
pub fn readlink(call: &mut Call, from: From, n: usize) -> errno::Result {
    let (out, bytes) = (call.args[n + 1], call.int(n + 2) as i32);
    if bytes <= 0 {
        return Err(Errno::EINVAL);
    }
    let inode = match from {
        // A link that was opened itself, by O_PATH | O_NOFOLLOW.
        From::Argument(dir) if read_path(call, call.args[n])?.is_empty() => open_file(call, dir)?.inode.clone(),
        _ => resolve(call, from, n, Follow::Slash)?.found()?,
    };
    let target = match &inode.body {
        Body::Symlink(target) => target.to_vec(),
        Body::Generated(generated) => generated.node.link()?.ok_or(Errno::EINVAL)?,
        _ => return Err(Errno::EINVAL),
    };
    let len = target.len().min(bytes as usize);
    mm::copy_out(call.space(), out, &target[..len])?;
    Ok(len as u64)
}

/// mknod(2) and mknodat(2).
pub fn mknod(call: &mut Call, from: From, n: usize) -> errno::Result {
    let (mode, device) = (call.int(n + 1), u64::from(call.int(n + 2)));
    let new = match mode & S_IFMT {
        0 | S_IFREG => New::File,
        S_IFIFO => New::Fifo,
        S_IFSOCK => New::Socket,
        S_IFCHR => New::Device(device),
        S_IFBLK => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    let mode = masked(call, mode);
    let at = resolve(call, from, n, Follow::Never)?;
    change::create(&at, new, mode).map(|_| 0)
}

/// The bytes of the current directory's path, and a zero.
pub fn getcwd(call: &mut Call) -> errno::Result {
    let cwd = super::path::cwd(call);
    let mut path: Vec<u8> = walk::path_of_dir(&cwd)?;
    path.push(0);
    if path.len() > MAX_PATH_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    if path.len() as u64 > call.args[1] {
        return Err(Errno::ERANGE);
    }
    mm::copy_out(call.space(), call.args[0], &path)?;
    Ok(path.len() as u64)
}

fn change_to(call: &Call, dir: alloc::sync::Arc<inode::Inode>) -> errno::Result {
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    let before = core::mem::replace(&mut call.process.place.lock().cwd, dir);
    drop(before);
    Ok(0)
}

pub fn chdir(call: &mut Call) -> errno::Result {
    let dir = resolve(call, From::Cwd, 0, Follow::Last)?.found()?;
    change_to(call, dir)
}

pub fn fchdir(call: &mut Call) -> errno::Result {
    let dir = open_file(call, 0)?.inode.clone();
    change_to(call, dir)
}

pub fn umask(call: &mut Call) -> errno::Result {
    let mask = call.int(0) & 0o777;
    Ok(core::mem::replace(&mut call.process.place.lock().umask, mask).into())
}

/// The root is the same for all.
pub fn chroot(call: &mut Call) -> errno::Result {
    let dir = resolve(call, From::Cwd, 0, Follow::Last)?.found()?;
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    Err(Errno::EPERM)
}
