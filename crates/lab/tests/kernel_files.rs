//! Files on the reference kernel: the same calls give the same as on this host's
//! Linux, and shells run scripts.
//!
//! A tool that is missing fails the test and names its Debian package: a kernel
//! test that was skipped is not a pass.

mod programs;

use programs::{Libc, Ran, compile, libcs, run, softfault, text};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BUSYBOX: (&str, &str) = ("/usr/bin/busybox", "busybox-static");
const BASH: (&str, &str) = ("/usr/bin/bash-static", "bash-static");
/// Where scripts work, inside the machine.
const WORK: &str = "work";

/// A program that prints what each call gives.
fn same_transcript(program: &str) {
    for &libc in libcs() {
        let binary = compile("files", program, libc);
        let host = Command::new(&binary).stdin(Stdio::null()).output().expect("it was just compiled");
        let ran = run(&[], &binary, &[]);
        assert!(host.status.success() && host.stdout.len() > 2000, "{program} on the host: {}", host.status);
        let (host, ours) = (text(&host.stdout), &ran.output);
        let differing: Vec<_> = host.lines().zip(ours.lines()).filter(|(a, b)| a != b).take(5).collect();
        assert!(differing.is_empty(), "{} {program}: Linux and this: {differing:#?}", libc.compiler().0);
        assert_eq!((ran.code, ours), (0, &host), "{} {program}: {}", libc.compiler().0, ran.errors);
    }
}

#[test]
fn names_are_made_moved_and_followed_as_on_linux() {
    same_transcript("names");
}

#[test]
fn files_and_pipes_are_read_and_written_as_on_linux() {
    same_transcript("io");
}

/// Whether an ELF file names a loader (a program header of type PT_INTERP).
fn is_dynamic(elf: &[u8]) -> bool {
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let (first, bytes, nr) = (half(0x20), half(0x36), half(0x38));
    (0..nr).any(|n| elf[first + n * bytes..].starts_with(&3u32.to_le_bytes()))
}

/// A statically linked program of the host's.
fn tool((path, package): (&str, &str)) -> PathBuf {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}; install the Debian package {package}"));
    assert!(!is_dynamic(&bytes), "{path} is not static; install the Debian package {package}");
    path.into()
}

/// A tree with the two shells and busybox's commands, and the scripts.
fn tree(test: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("root-{test}"));
    let _ = fs::remove_dir_all(&root);
    let bin = root.join("bin");
    fs::create_dir_all(&bin).expect("a folder for tests");
    fs::create_dir_all(root.join(WORK)).expect("a folder for tests");
    for (tool, name) in [(tool(BUSYBOX), "busybox"), (tool(BASH), "bash")] {
        // By a process of its own: a file that is open for writing here, while another test
        // forks, could not be run.
        let copied = Command::new("cp").arg(tool).arg(bin.join(name)).status().expect("cp is there");
        assert!(copied.success(), "room for a copy");
    }
    let list = Command::new(bin.join("busybox")).arg("--list").output().expect("it was just copied");
    for applet in text(&list.stdout).lines().filter(|a| *a != "busybox") {
        symlink("busybox", bin.join(applet)).expect("a fresh folder");
    }
    for script in ["files.sh", "files.bash", "pipelines.sh"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/programs").join(script);
        fs::copy(source, root.join(script)).expect("it is in the tree");
    }
    // The beginning of a script in the machine; `on_host` has it for the host.
    let start = "#!/bin/sh\ncd /work\nexport LC_ALL=C\nexport PATH=/bin\nexec \"$@\" </dev/null\n";
    fs::write(root.join("start"), start).expect("room for a line");
    fs::set_permissions(root.join("start"), fs::Permissions::from_mode(0o755)).expect("its owner may");
    root
}

/// Returns the output of the script on this host, with the same commands.
fn on_host(root: &Path, shell: &str, script: &str) -> String {
    let output = Command::new(root.join("bin").join(shell))
        .arg(root.join(script))
        .current_dir(root.join(WORK))
        .env_clear()
        .env("PATH", root.join("bin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .expect("it was just copied");
    let printed = text(&output.stdout);
    assert!(output.status.success() && printed.lines().count() > 20, "on the host: {printed}{}", text(&output.stderr));
    // The machine begins with an empty folder, too.
    fs::remove_dir_all(root.join(WORK)).expect("made above");
    fs::create_dir_all(root.join(WORK)).expect("a folder for tests");
    printed
}

fn in_machine(root: &Path, cpus: &str, command: &[&str]) -> Ran {
    let root = root.to_str().expect("paths here are UTF-8");
    softfault(&[&["--timeout", "280", "--cpus", cpus, "--root", root, "--", "/start"], command].concat())
}

fn same_script(shell: &str, script: &str, cpus: &[&str]) {
    let root = tree(script);
    let host = on_host(&root, shell, script);
    for cpus in cpus {
        let ran = in_machine(&root, cpus, &[&format!("/bin/{shell}"), &format!("/{script}")]);
        assert_eq!((ran.code, &ran.output), (0, &host), "{cpus} CPUs: {}", ran.errors);
        assert!(!ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}

#[test]
fn a_busybox_script_prints_what_it_prints_on_linux() {
    same_script("sh", "files.sh", &["1", "2"]);
}

#[test]
fn a_bash_script_prints_what_it_prints_on_linux() {
    same_script("bash", "files.bash", &["1", "2"]);
}

/// A shell goes on when the last process of a pipeline has ended. A waiter for
/// children looks between any two steps of a signal and of an end.
fn pipelines(nr: u32, cpus: &str, delays_us: u32) {
    let root = tree(&format!("pipelines-{cpus}-{delays_us}"));
    let (root, nr, delays) = (root.to_str().expect("UTF-8"), nr.to_string(), format!("delays={delays_us}"));
    let machine = ["--timeout", "3600", "--cpus", cpus, "--append", &delays, "--root", root];
    let ran = softfault(&[&machine[..], &["--", "/start", "/bin/sh", "/pipelines.sh", &nr]].concat());
    assert_eq!((ran.code, ran.output.as_str()), (0, "a: in order\nb: in order\n"), "{machine:?}: {}", ran.errors);
    assert_eq!(ran.errors, "", "{machine:?}");
}

#[test]
fn pipelines_end_with_their_last_process() {
    pipelines(1000, "2", 30);
    pipelines(100, "1", 30);
}

/// `cargo xtask soak pipelines`; some minutes.
#[test]
#[ignore = "a soak"]
fn fifty_thousand_pipelines() {
    pipelines(25_000, "2", 30);
    pipelines(20_000, "2", 0);
    pipelines(5_000, "2", 200);
}

#[test]
fn proc_tells_about_files() {
    let root = tree("proc");
    let script = "exec 5</etc/passwd; ls -l /proc/self/fd/5 | grep -c ' -> /etc/passwd$'
        grep -c 'r-xs .* /bin/busybox$' /proc/self/maps
        MARK=found /bin/cat /proc/self/environ | tr '\\0' '\\n' | grep MARK
        echo -17 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj
        echo 5000 >/proc/self/oom_score_adj || echo refused
        grep -c . /proc/self/mountinfo";
    let ran = in_machine(&root, "1", &["/bin/sh", "-c", script]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "1\n1\nMARK=found\n-17\nrefused\n3\n"), "{}", ran.errors);
}

#[test]
fn files_without_end_are_refused_and_given_back() {
    for (mem, cpus) in [("48M", "1"), ("64M", "2")] {
        let binary = compile("files", "fills", Libc::Musl);
        // It compares free memory: a block that an idle CPU is zeroing ahead is out of
        // sight for a moment.
        let parameters = ["--mem", mem, "--cpus", cpus, "--append", "transparent_hugepage=never"];
        let ran = run(&parameters, &binary, &[]);
        assert!(ran.output.ends_with("done\n") && !ran.output.contains("FAILED"), "{}{}", ran.output, ran.errors);
        assert_eq!(ran.code, 0, "{}{}", ran.output, ran.errors);
        assert!(!ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}

#[test]
fn random_calls_about_files_do_no_harm() {
    let binary = compile("files", "filefuzz", Libc::Musl);
    for seed in ["1", "2"] {
        let ran = run(&["--mem", "128M"], &binary, &[seed, "3000"]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "filefuzz ok\n"), "seed {seed}: {}", ran.errors);
        assert!(!ran.errors.contains("did not come back"), "seed {seed}: {}", ran.errors);
    }
}

/// A folder of a real system has files that cannot go into the machine. They are left out, in one
/// note.
#[test]
fn what_cannot_be_read_in_a_root_is_left_out_in_one_note() {
    // Where anybody may read: root may read everything, and becomes somebody else.
    let folder = std::env::temp_dir().join(format!("softfault-root-{}", std::process::id()));
    let (root, command) = (folder.join("root"), folder.join("softfault"));
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    fs::create_dir_all(root.join("secret-folder")).expect("a folder for tests");
    [&folder, &root].iter().for_each(|path| set(path, 0o755));
    fs::copy(env!("CARGO_BIN_EXE_softfault"), &command).expect("it was just built");
    fs::copy(compile("root", "hello", Libc::Musl), root.join("hello")).expect("it was just compiled");
    fs::write(root.join("secret"), "nobody reads this").expect("room for a line");
    fs::write(root.join(OsStr::from_bytes(b"name-\xff")), "unnamed").expect("room for a line");
    symlink("secret", root.join("link")).expect("a new name");
    let _socket = UnixListener::bind(root.join("socket")).expect("a new name");
    ["secret", "secret-folder"].iter().for_each(|name| set(&root.join(name), 0));
    let mut run = Command::new(&command);
    run.args(["run", "--root"]).arg(&root).args(["--", "/hello", "there"]).current_dir(&folder);
    if fs::metadata(&root).expect("made above").uid() == 0 {
        run.uid(65534).gid(65534);
    }
    let output = run.output().expect("it was just copied");
    set(&root.join("secret-folder"), 0o700);
    fs::remove_dir_all(&folder).expect("made above");
    let errors = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(42), "hello [there]\n"), "{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    let [note, "to the error output"] = lines[..] else { panic!("one note: {errors}") };
    for part in ["--root", "sockets, pipes, devices: 1;", "unreadable: 2;", "not UTF-8: 1;", "the first is "] {
        assert!(note.contains(part), "{part}: {note}");
    }
}
