//! Every flag of every memory call, buffers that end in the middle, and questions about other calls and the CPU, asked on
//! this host and on the reference kernel, by `memcalls.c`, `memlimits.c`, `copies.c`, `processvm.c`, `procmem.c`, `othercalls.c` and
//! `cpucalls.c` of `crates/kernel/programs`. The answers are the same but for the differences in the tables here, each with its reason.

mod programs;

use programs::{Libc, compile, host_version, run, text};
use regex_lite::Regex;
use std::path::Path;
use std::process::Command;

/// Questions that the reference kernel answers otherwise, what it says, and why. A host
/// that says the same is no error: some depend on how its kernel was built.
const DIFFERENCES: [(&str, &str, &str); 12] = [
    (r"mmap no file type 8", "EINVAL", "no MAP_DROPPABLE, as before 6.11"),
    (
        r"mmap .* flag 0x40000",
        "EINVAL|ENOMEM|EACCES|EBADF|ENODEV",
        "no hugetlb pages; the host may lack them altogether",
    ),
    (r"madvise .* 1[23]( of nothing)?", "EINVAL", "no MADV_MERGEABLE, as without CONFIG_KSM"),
    (r"memfd_create 0x4", "ENOSYS", "no MFD_HUGETLB, as without CONFIG_HUGETLBFS"),
    (r"memfd_create 0x4 gives", "mode 00, seals 0xffffffff, closes -1", "the same"),
    (r"memfd_create huge, 2 MiB", "ENOSYS", "the same"),
    (
        r"mremap zero flags [37], 3 to 3",
        "ok",
        "Linux moves /dev/zero only by itself: the driver could choose the place",
    ),
    (r"remap_file_pages", "EINVAL", "mappings that are not in order do not exist"),
    (r"membarrier|mseal", "ENOSYS", "not there; callers do without"),
    (r"userfaultfd|memfd_secret|process_mrelease", "ENOSYS", "not there; callers do without"),
    (r"map_shadow_stack", "ENOSYS", "not there; a host whose CPU has them says EOPNOTSUPP"),
    (r"pkey_free|pkey_mprotect( .* no key)?", "EINVAL", "no protection keys; the host may lack the calls"),
];

/// Questions that an older Linux answers otherwise, and since when it does not. There the
/// host is not asked.
const SINCE: [((u32, u32), &str, &str); 9] = [
    ((5, 15), r"(set_mempolicy|mbind) .*", "MPOL_PREFERRED_MANY"),
    ((5, 18), r"madvise .* 24( of nothing)?", "MADV_DONTNEED_LOCKED"),
    ((6, 1), r"madvise .* 25( of nothing)?", "MADV_COLLAPSE"),
    ((6, 3), r"memfd_create (0x8|0x10|executable).*|seals .*", "MFD_EXEC, MFD_NOEXEC_SEAL, F_SEAL_EXEC"),
    ((6, 7), r"seals .*", "a sealed file can be mapped shared to be read"),
    ((6, 7), r"mmap .* type 3 flag 0x80", "MAP_ABOVE4G"),
    ((6, 7), r"madvise .* 9", "MADV_REMOVE of a mapping that is read-only now"),
    ((6, 15), r"madvise .* 10[23]( of nothing)?", "guards, in files, too"),
    ((6, 17), r"mremap .*", "a move of several mappings"),
];

/// Whether all of `text` matches.
fn is(pattern: &str, text: &str) -> bool {
    Regex::new(&format!("^({pattern})$")).expect(pattern).is_match(text)
}

/// A question and its answer.
fn parts(line: &str) -> (&str, &str) {
    line.rsplit_once(": ").unwrap_or((line, ""))
}

/// The lines in which the two differ without a reason.
fn unexplained(host: &str, ours: &str, version: (u32, u32)) -> Vec<String> {
    let (host, ours): (Vec<&str>, Vec<&str>) = (host.lines().collect(), ours.lines().collect());
    let mut wrong: Vec<String> = host
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours && !is_explained(theirs, ours, version))
        .map(|(theirs, ours)| format!("Linux: {theirs}\n ours: {ours}"))
        .collect();
    if host.len() != ours.len() {
        wrong.push(format!("Linux has {} lines, we have {}", host.len(), ours.len()));
    }
    wrong
}

fn is_explained(theirs: &str, ours: &str, version: (u32, u32)) -> bool {
    let ((question, says), (same, answer)) = (parts(theirs), parts(ours));
    let is_known = |(which, says, _): &(&str, &str, &str)| is(which, question) && is(says, answer);
    // As a Linux without CONFIG_NUMA.
    let lacks = question.contains("mempolicy") || question.contains("mbind");
    let is_old = |(since, which, _): &((u32, u32), &str, &str)| version < *since && is(which, question);
    question == same && (lacks && says == "ENOSYS" || DIFFERENCES.iter().any(is_known) || SINCE.iter().any(is_old))
}

fn on_host(binary: &Path, arguments: &[&str]) -> String {
    let host = Command::new(binary).args(arguments).output().expect("it was just compiled");
    let host = text(&host.stdout);
    assert!(host.ends_with("done\n"), "on the host: {host}");
    host
}

/// Asks both; gives the questions.
fn compare(program: &str, libc: Libc, here: &[&str], there: &[&str]) -> Vec<String> {
    compare_on("2", program, libc, here, there)
}

/// The same on so many CPUs.
fn compare_on(cpus: &str, program: &str, libc: Libc, here: &[&str], there: &[&str]) -> Vec<String> {
    let binary = compile(&format!("calls{cpus}"), program, libc);
    let host = on_host(&binary, here);
    let ran = run(&["--cpus", cpus], &binary, there);
    assert_eq!(ran.code, 0, "{program}: {}", ran.errors);
    let wrong = unexplained(&host, &ran.output, host_version());
    assert!(wrong.is_empty(), "{program}: {} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    host.lines().map(|line| parts(line).0.to_string()).collect()
}

#[test]
fn each_flag_of_each_memory_call_is_answered_as_by_linux() {
    let mut questions = compare("memcalls", Libc::Musl, &[], &[]);
    questions.extend(compare("memlimits", Libc::Musl, &[], &[]));
    assert!(questions.len() > 8000, "{} questions", questions.len());
    for which in DIFFERENCES.iter().map(|known| known.0).chain(SINCE.iter().map(|known| known.1)) {
        assert!(questions.iter().any(|question| is(which, question)), "{which}: nobody asks that");
    }
}

/// The library stands between the program and its limits, too: it has a heap of its own.
#[test]
fn limits_are_the_same_with_another_library() {
    compare("memlimits", Libc::Glibc, &[], &[]);
}

/// read(2), write(2) and all other calls that copy: the part that was done, where the file is then, and what has stayed in a pipe.
#[test]
fn copies_that_end_in_the_middle_are_told_as_by_linux() {
    for cpus in ["1", "2"] {
        let questions = compare_on(cpus, "copies", Libc::Musl, &[], &[]);
        assert!(questions.len() > 1000, "{} questions", questions.len());
    }
}

/// `/proc/self/mem`, `pagemap`, the attachments of a segment.
#[test]
fn memory_is_seen_from_outside_as_on_linux() {
    for cpus in ["1", "2"] {
        let questions = compare_on(cpus, "procmem", Libc::Musl, &[], &[]);
        assert!(questions.len() > 700, "{} questions", questions.len());
    }
}

/// process_vm_readv(2), process_vm_writev(2): each pair of parts, rights of mappings, and who may. Root asks.
#[test]
fn bytes_of_other_processes_are_copied_as_by_linux() {
    for (cpus, libc) in [("1", Libc::Musl), ("2", Libc::Glibc)] {
        let questions = compare_on(cpus, "processvm", libc, &[], &[]);
        assert!(questions.len() > 10_000, "{} questions", questions.len());
    }
}

/// The host keeps its limit, which is as good as any other.
#[test]
fn each_call_keeps_to_the_limit_on_mappings() {
    compare("memlimits", Libc::Musl, &["count"], &["count", "1000"]);
}

/// Users, groups, and what root gives up with them. Only root can ask.
#[test]
fn whoever_is_not_root_keeps_to_limits() {
    let binary = compile("ids", "memlimits", Libc::Musl);
    let host = on_host(&binary, &["ids"]);
    let ran = run(&["--cpus", "2"], &binary, &["ids"]);
    assert!(ran.output.contains("ids setuid 0 at last, mlock 8: ENOMEM\n"), "{}", ran.output);
    assert!(ran.output.contains("ids at last, raise a limit: EPERM\n"), "{}", ran.output);
    if host.contains("ids first: users 0 0 0, groups 0 0 0, file system 0 0, may lock 1, could 1\n") {
        assert_eq!(unexplained(&host, &ran.output, host_version()), Vec::<String>::new());
    }
}

/// Single steps, segment registers and their bases, and the promises of CPUID.
#[test]
fn the_cpu_is_as_linux_gives_it() {
    for (cpus, libc) in [("1", Libc::Musl), ("2", Libc::Glibc)] {
        compare_on(cpus, "cpucalls", libc, &[], &[]);
    }
}

/// Files that are run or written, attributes, affinity, limits, `/proc`. Root asks.
#[test]
fn calls_about_files_and_processes_are_answered_as_by_linux() {
    for (cpus, libc) in [("1", Libc::Musl), ("2", Libc::Glibc)] {
        compare_on(cpus, "othercalls", libc, &[], &[]);
    }
}

#[test]
fn an_answer_that_differs_is_found() {
    let explained = |theirs: &str, ours: &str, version| unexplained(theirs, ours, version).is_empty();
    assert!(explained("a: ok\nb: EINVAL\n", "a: ok\nb: EINVAL\n", (6, 18)));
    assert!(!explained("a: ok\n", "a: EINVAL\n", (6, 18)));
    assert!(!explained("a: ok\nb: ok\n", "a: ok\n", (6, 18)), "a line less");
    assert!(explained("membarrier: ok\n", "membarrier: ENOSYS\n", (6, 18)));
    assert!(!explained("membarrier: ok\n", "membarrier: EINVAL\n", (6, 18)), "another answer than the known one");
    assert!(!explained("membarriers: ok\n", "membarriers: ENOSYS\n", (6, 18)), "another question");
    assert!(
        !explained("pkey_mprotect copy 3: ok\n", "pkey_mprotect copy 3: EINVAL\n", (6, 18)),
        "no key is as mprotect"
    );
    assert!(!explained("madvise copy 103: ok\n", "madvise copy 103: EINVAL\n", (6, 18)));
    assert!(explained("madvise copy 103: EINVAL\n", "madvise copy 103: ok\n", (6, 1)), "an older host");
}
