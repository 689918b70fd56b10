//! Programs that misbehave, on the reference kernel: what they do to themselves
//! is their own, the kernel lives and has its memory back.

mod programs;

use programs::{Libc, compile, libcs, run, same_as_host, softfault};

#[test]
fn misbehaving_programs_are_cleaned_up() {
    let binary = compile("robust", "robust", Libc::Musl);
    let ran = run(&["--mem", "128M"], &binary, &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.output, ran.errors);
    assert!(ran.output.ends_with("done\n") && !ran.output.contains("FAILED"), "{}", ran.output);
    assert!(!ran.errors.contains("did not come back"), "{}", ran.errors);
}

#[test]
fn wild_system_calls_do_no_harm() {
    let binary = compile("robust", "fuzzcalls", Libc::Musl);
    for seed in ["11", "12"] {
        let ran = run(&["--mem", "256M"], &binary, &[seed, "150"]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "fuzzcalls ok\n"), "seed {seed}: {}", ran.errors);
        assert!(!ran.errors.contains("did not come back"), "seed {seed}: {}", ran.errors);
    }
}

/// By the program's own accesses, and by copies that the kernel makes for it.
#[test]
fn out_of_memory_kills() {
    let binary = compile("oom", "oom", Libc::Musl);
    for touches in [&[][..], &["write"], &["read"]] {
        let ran = run(&["--mem", "96M"], &binary, touches);
        assert_eq!((ran.code, ran.output.as_str()), (128 + 9, "before\n"), "{touches:?}: {}", ran.errors);
        assert!(ran.errors.contains("no memory left"), "{touches:?}: {}", ran.errors);
    }
    // One CPU, which a copy that waits leaves to those that are to end.
    let ran = run(&["--mem", "96M", "--cpus", "1", "--verbose"], &binary, &["children"]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "before\nread\n"), "{}", ran.errors);
    assert!(ran.errors.matches("no memory left").count() >= 2, "{}", ran.errors);
    // The first that is to end waits for the call that wants its memory: another ends, too.
    let ran = run(&["--mem", "96M", "--cpus", "2", "--append", "transparent_hugepage=never"], &binary, &["waiter"]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "before\nread\n"), "{}", ran.errors);
}

#[test]
fn files_that_are_no_programs_are_refused_as_on_linux() {
    for &libc in libcs() {
        same_as_host(&compile("robust", "elves", libc), &["--mem", "128M"]);
    }
}

#[test]
fn programs_with_changed_bytes_do_no_harm() {
    let binary = compile("robust", "elves", Libc::Musl);
    let ran = run(&["--mem", "128M"], &binary, &["7", "400"]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "elves ok\n"), "{}", ran.errors);
    assert!(!ran.errors.contains("did not come back"), "{}", ran.errors);
}

#[test]
fn two_thousand_forks_leave_nothing_behind() {
    let bash = "/bin/bash-static";
    assert!(std::path::Path::new(bash).is_file(), "{bash}: install the Debian package bash-static");
    let ran = softfault(&["--", bash, "-c", "for i in {1..2000}; do (:); done; echo $i"]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "2000\n"), "{}", ran.errors);
    // The kernel says on the error output how many pages are missing at the end.
    assert_eq!(ran.errors, "");
}

/// Fifty machines, each with other calls, files and processes. `cargo xtask soak boots` prints the free pages of each.
#[test]
#[ignore = "takes minutes: cargo xtask soak boots"]
fn fifty_boots_neither_panic_nor_lose_a_frame() {
    let [calls, files, forks] =
        ["fuzzcalls", "elves", "forks"].map(|program| compile("robust-boots", program, Libc::Musl));
    for boot in 0..50u32 {
        let (cpus, seed) = ((1 + boot % 2).to_string(), (1000 + boot).to_string());
        let (binary, arguments) = match boot % 3 {
            0 => (&calls, [seed.as_str(), "60"]),
            1 => (&files, [seed.as_str(), "100"]),
            _ => (&forks, ["20", "50"]),
        };
        let ran = run(&["--verbose", "--mem", "256M", "--cpus", &cpus], binary, &arguments);
        let free = ran.errors.lines().find(|line| line.starts_with("free pages:"));
        println!(
            "boot {boot}: {} CPUs, {} {}: {}",
            cpus,
            binary.display(),
            arguments.join(" "),
            free.unwrap_or("lost")
        );
        assert_eq!(ran.code, 0, "{}{}", ran.output, ran.errors);
        assert!(free.is_some() && !ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}
