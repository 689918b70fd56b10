//! `softfault run --root`: stat(2) in the machine tells what it tells on the host about each entry, and a folder that
//! no archive holds is refused before it is read.

mod programs;

use programs::{Libc, compile, softfault, text};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const BUSYBOX: &str = "/usr/bin/busybox";
/// Name, permissions, owner, group, time of the content, and where a link leads.
const STAT: &str = "cd /tree && busybox find . | busybox sort | busybox xargs busybox stat -c '%N %F %a %u %g %Y'";
/// A time that an archive holds, with a part that it does not.
const SOME_DAY: (i64, i64) = (1_234_567_890, 987_654_321);

fn fresh(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stat-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("tree")).expect("a folder for tests");
    folder
}

/// As `touch -h`.
fn set_time(path: &Path, (seconds, ns): (i64, i64)) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    let time = libc::timespec { tv_sec: seconds, tv_nsec: ns };
    // SAFETY: L1: the name and the two times outlive the call.
    let done = unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), [time; 2].as_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    assert_eq!(done, 0, "{}: its owner may", path.display());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may");
}

/// The owner of `path` becomes somebody else, where this user may do that.
fn give_away(path: &Path, uid: u32, gid: u32) {
    if fs::metadata("/proc/self").expect("a process").uid() == 0 {
        lchown(path, Some(uid), Some(gid)).expect("root may");
    }
}

fn on_host(root: &Path) -> String {
    let script = STAT.replace("/tree", root.join("tree").to_str().expect("UTF-8")).replace("busybox", BUSYBOX);
    let output = Command::new(BUSYBOX).args(["sh", "-c", &script]).output();
    let output = output.unwrap_or_else(|e| panic!("{BUSYBOX}: {e}; install the Debian package busybox-static"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs the script in a machine with the tree as its root.
fn in_machine(root: &Path, script: &str) -> (String, String) {
    let busybox = format!("{BUSYBOX}:/bin/busybox");
    let root = root.to_str().expect("UTF-8");
    let ran = softfault(&["--root", root, "--file", &busybox, "--", "/bin/busybox", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{}{}", ran.output, ran.errors);
    (ran.output, ran.errors)
}

#[test]
fn modes_owners_and_times_are_those_of_the_host() {
    let root = fresh("same");
    let tree = root.join("tree");
    let files =
        [("plain", 0o644), ("secret", 0o600), ("none", 0), ("program", 0o4755), ("group", 0o2711), ("all", 0o7777)];
    let folders = [("open", 0o1777), ("shared", 0o2775), ("closed", 0o700)];
    folders.iter().for_each(|(name, _)| fs::create_dir_all(tree.join(name).join("inner")).expect("a new name"));
    files.iter().for_each(|(name, _)| fs::write(tree.join(name), name).expect("room for a word"));
    fs::write(tree.join("open/inner/file"), "x").expect("room for a byte");
    symlink("plain", tree.join("link")).expect("a new name");
    symlink("nowhere", tree.join("open/dangling")).expect("a new name");
    let owners = [("plain", 1000, 100), ("link", 1001, 101), ("open", 4_000_000_000, 65_534), ("closed", 33, 33)];
    owners.iter().for_each(|(name, uid, gid)| give_away(&tree.join(name), *uid, *gid));
    files.iter().chain(&folders).for_each(|(name, mode)| set_mode(&tree.join(name), *mode));
    // The times of folders at last, as each new name changes them.
    let times =
        [("plain", 0), ("link", 1), ("open/inner", 2), ("open", 3), ("shared", 1 << 31), (".", u32::MAX.into())];
    times.iter().for_each(|(name, seconds)| set_time(&tree.join(name), (*seconds, SOME_DAY.1)));
    // The machine adds these where they are missing, which changes the time of the root.
    fs::create_dir(root.join("etc")).expect("a new name");
    ["passwd", "group"].iter().for_each(|name| fs::write(root.join("etc").join(name), "").expect("an empty file"));
    set_mode(&root, 0o711);
    set_time(&root, SOME_DAY);
    let host = on_host(&root);
    let (output, errors) = in_machine(&root, &format!("{STAT}; busybox stat -c '%a %Y' /"));
    assert_eq!(output.strip_prefix(&host), Some("711 1234567890\n"), "on the host: {host}here: {output}");
    assert_eq!(errors, "");
}

/// The archive's field for a time ends in 2106 and has no sign.
#[test]
fn a_time_that_no_archive_holds_is_the_nearest_and_noted() {
    let root = fresh("times");
    let times = [("a", -1), ("b", -86_400), ("c", i64::from(u32::MAX) + 1), ("d", 0)];
    for (name, seconds) in times {
        let path = root.join("tree").join(name);
        fs::write(&path, name).expect("room for a byte");
        set_time(&path, (seconds, 0));
        assert_eq!(fs::metadata(&path).expect("just made").mtime(), seconds, "the folder for tests keeps such times");
    }
    let (output, errors) = in_machine(&root, "cd /tree; busybox stat -c '%n %Y' a b c d");
    assert_eq!(output, "a 0\nb 0\nc 4294967295\nd 0\n");
    let first = root.join("tree/a").display().to_string();
    let note = "times before 1970 or after 2106 are the nearest that an archive holds: 3; the first is";
    assert_eq!(errors, format!("softfault: --root {}: {note} {first}\n", root.display()));
}

/// A sparse file of 1 TiB cannot be read into memory: a command that tried would leave it out, as unreadable.
#[test]
fn a_root_that_is_too_large_is_refused_before_it_is_read() {
    let root = fresh("large");
    fs::copy(compile("root", "hello", Libc::Musl), root.join("hello")).expect("room for a program");
    fs::File::create(root.join("tree/sparse")).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
    let argument = root.to_str().expect("UTF-8");
    let ran = softfault(&["--root", argument, "--", "/hello"]);
    let why = format!("softfault run: --root {argument}: the files should have less than 4 GiB, all together\n");
    assert_eq!((ran.code, ran.output, ran.errors), (2, String::new(), why));
    fs::remove_dir_all(&root).expect("made above");
}
