//! mount(2) and umount2(2). Only a hugetlbfs can be mounted; flags that would change more than times of access are
//! refused.

use super::call::Call;
use super::path::{From, read_path, resolve};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::walk::Follow;
use crate::linux::fs::{Body, mounts, tree};
use crate::linux::process;
use crate::linux::process::identity::Capability;
use linux_raw_sys::general::{
    MNT_DETACH, MNT_FORCE, MS_NOATIME, MS_NODIRATIME, MS_NOSUID, MS_RELATIME, MS_SILENT, MS_STRICTATIME,
    UMOUNT_NOFOLLOW,
};

/// Old programs have it in the upper half of the flags.
const MAGIC: u32 = 0xc0ed_0000;
const MAGIC_BITS: u32 = 0xffff_0000;
/// Flags that change nothing here: times of access, messages, and rights by set-user-id bits, which are not given anyway.
const KNOWN: u32 = MS_NOSUID | MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME | MS_SILENT;

fn may_mount(call: &Call) -> errno::Result<()> {
    if call.process.identity.lock().has(Capability::SysAdmin) { Ok(()) } else { Err(Errno::EPERM) }
}

pub fn mount(call: &mut Call) -> errno::Result {
    may_mount(call)?;
    let [source, _, kind, _, options, _] = call.args;
    let flags = match call.int(3) {
        flags if flags & MAGIC_BITS == MAGIC => flags & !MAGIC_BITS,
        flags => flags,
    };
    let text = |addr| if addr == 0 { Ok(alloc::vec::Vec::new()) } else { read_path(call, addr) };
    let (source, kind, options) = (text(source)?, text(kind)?, text(options)?);
    let at = resolve(call, From::Cwd, 1, Follow::Last)?.found()?;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if kind != b"hugetlbfs" {
        return Err(if kind.is_empty() { Errno::EINVAL } else { Errno::ENODEV });
    }
    if !at.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    // Nothing is mounted where names are generated.
    if !matches!(at.body, Body::Dir) {
        return Err(Errno::EBUSY);
    }
    let source = if source.is_empty() { b"none" } else { &source[..] };
    let identity = *call.process.identity.lock();
    mounts::mount(&at, source, &options, [identity.users.fs, identity.groups.fs]).map(|()| 0)
}

pub fn umount2(call: &mut Call) -> errno::Result {
    let flags = call.int(1);
    if flags & !(MNT_DETACH | MNT_FORCE | UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    may_mount(call)?;
    let follow = if flags & UMOUNT_NOFOLLOW != 0 { Follow::Slash } else { Follow::Last };
    let root = resolve(call, From::Cwd, 0, follow)?.found()?;
    // `/proc` and `/sys` are always there.
    if matches!(&root.body, Body::Generated(generated) if generated.parent.number == tree::root().number) {
        return Err(Errno::EBUSY);
    }
    let cwds = || process::all().iter().map(|p| p.place.lock().cwd.clone()).collect();
    mounts::unmount(&root, flags & MNT_DETACH != 0, cwds).map(|()| 0)
}
