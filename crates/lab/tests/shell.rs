//! `softfault shell`, with what is typed coming through a pipe.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

fn shell(args: &[&str], typed: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.arg("shell").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it was just built");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(typed.as_bytes()).expect("it reads all");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn commands_are_typed_and_run() {
    let (mut child, mut keys, mut screen) = machine(&[]);
    let mut shown = String::new();
    // A terminal shows what is typed when it comes: each line is typed when the shell asks for it.
    for (typed, answer) in [("echo a$((6*7))b", "\r\na42b\r\n~ # "), ("ls /bin | grep -c busybox", "\r\n1\r\n~ # ")] {
        read_until(&mut screen, &mut shown, "~ # ");
        shown.clear();
        writeln!(keys, "{typed}").expect("it reads");
        read_until(&mut screen, &mut shown, &format!("{typed}{answer}"));
    }
    keys.write_all(b"exit 5\n").expect("it reads");
    assert_eq!(child.wait().expect("it ends").code(), Some(5), "{shown}");
}

#[test]
fn the_kernel_gets_its_parameters() {
    let parameters = ["--append", "transparent_hugepage=madvise"];
    let output = shell(&parameters, "cat /proc/cmdline /sys/kernel/mm/transparent_hugepage/enabled\n");
    let shown = text(&output.stdout);
    assert!(shown.contains("transparent_hugepage=madvise\r\nalways [madvise] never\r\n"), "{shown:?}");
}

/// A machine that waits for keys.
fn machine(args: &[&str]) -> (Child, ChildStdin, ChildStdout) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.arg("shell").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it was just built");
    let (keys, screen) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    (child, keys, screen)
}

/// Reads until `wanted` was shown.
fn read_until(from: &mut impl Read, shown: &mut String, wanted: &str) {
    let mut bytes = [0; 256];
    while !shown.contains(wanted) {
        let nr = from.read(&mut bytes).expect("it shows something");
        assert!(nr > 0, "ended before {wanted:?}: {shown:?}");
        shown.push_str(&text(&bytes[..nr]));
    }
}

#[test]
fn keys_edit_interrupt_and_end() {
    let (mut child, mut keys, mut screen) = machine(&["--cpus", "1"]);
    let mut shown = String::new();
    keys.write_all(b"echo eraxx\x7f\x7fsed\n").expect("it reads");
    read_until(&mut screen, &mut shown, "\r\nerased\r\n");
    // Ctrl-C reaches the program in the foreground, not the shell.
    keys.write_all(b"sh -c 'echo be''gun; sleep 1000'\n").expect("it reads");
    read_until(&mut screen, &mut shown, "\r\nbegun\r\n");
    keys.write_all(&[3]).expect("it reads");
    keys.write_all(b"echo e''nded $?\n").expect("it reads");
    read_until(&mut screen, &mut shown, "\r\nended 130\r\n");
    // Ctrl-D is the end of input.
    keys.write_all(&[4]).expect("it reads");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{shown}");
}

#[test]
fn the_machine_can_be_ended() {
    let output = shell(&[], "while true; do true; done\n\x1d");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("ended from the keyboard"), "{}", text(&output.stderr));
}

#[test]
fn a_busybox_that_is_none_is_refused() {
    let output = shell(&["--busybox", "/bin/false"], "");
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("/bin/false") && errors.contains("should be a busybox"), "{errors}");
}
