//! The programs in `crates/kernel/programs`, compiled against musl and glibc,
//! run on the reference kernel by `softfault run`.
//!
//! A tool that is missing fails the test and names its Debian package: a kernel
//! test that was skipped is not a pass.

mod programs;

use programs::{BOTH, Libc, compile, libcs, run, run_ok, same_as_host, same_as_host_since, softfault};
use std::fmt::Write as _;

#[test]
fn processes_fork_run_programs_and_end() {
    for &libc in libcs() {
        let binary = compile("processes", "processes", libc);
        // It counts faults, which are fewer where pages are huge.
        for cpus in ["2", "1"] {
            same_as_host(&binary, &["--cpus", cpus, "--append", "transparent_hugepage=never"]);
        }
    }
}

#[test]
fn hello_gets_its_arguments_and_gives_its_status() {
    for &libc in libcs() {
        let binary = compile("hello", "hello", libc);
        let ran = run(&[], &binary, &["one", "two words", ""]);
        assert_eq!((ran.code, ran.output.as_str()), (44, "hello [one] [two words] []\n"), "{}", ran.errors);
        assert_eq!(ran.errors, "to the error output\n");
        let file = format!("{}:/bin/greet", binary.display());
        let ran = softfault(&["--file", &file, "--", "/bin/greet"]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "hello\n"), "{}", ran.errors);
    }
}

#[test]
fn eight_threads_on_two_cpus() {
    run_ok("threads", &["--cpus", "2"]);
}

#[test]
fn eight_threads_on_one_and_on_four_cpus() {
    for cpus in ["1", "4"] {
        let ran = run(&["--cpus", cpus], &compile("threads-more", "threads", Libc::Musl), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "threads ok\n"), "{cpus} CPUs: {}", ran.errors);
    }
}

#[test]
fn every_fault_locking_runs_threads() {
    let binary = compile("modes", "threads", Libc::Musl);
    for fault_locking in ["global", "fastpath2004", "split", "lockfree"] {
        let ran = run(&["--append", &format!("fault_locking={fault_locking}")], &binary, &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "threads ok\n"), "{fault_locking}: {}", ran.errors);
    }
}

#[test]
fn rights_are_enforced_and_reported() {
    run_ok("protect", &[]);
}

#[test]
fn signals_are_delivered() {
    run_ok("signals", &[]);
}

/// Every call that waits, with delays between the steps of a signal: a waiter looks
/// between any two of them.
#[test]
fn calls_are_interrupted_and_made_again_as_on_linux() {
    let [musl, glibc] = BOTH.map(|libc| compile("interrupts", "interrupts", libc));
    for (binary, delays) in [(&musl, "delays=0"), (&glibc, "delays=50"), (&musl, "delays=200")] {
        same_as_host(binary, &["--cpus", "2", "--append", delays]);
    }
}

/// Orders of signals, ends, stops and waits that are rare without delays.
#[test]
fn rare_orders_of_signals_end_as_on_linux() {
    let [musl, glibc] = BOTH.map(|libc| compile("signalcases", "signalcases", libc));
    for (binary, delays) in [(&musl, "delays=0"), (&glibc, "delays=200")] {
        same_as_host(binary, &["--cpus", "2", "--append", delays]);
    }
}

/// Private mappings of `/dev/zero`: their lines of `/proc/self/maps`.
#[test]
fn zeroes_of_a_file_are_mapped_as_on_linux() {
    for &libc in libcs() {
        same_as_host(&compile("zeroes", "zeroes", libc), &["--cpus", "2"]);
    }
}

/// pidfd_open(2), process_madvise(2).
#[test]
fn the_memory_of_others_is_advised() {
    for &libc in libcs() {
        same_as_host(&compile("pidfds", "pidfds", libc), &["--cpus", "2"]);
    }
}

/// pidfd_open(2) and its flags. In so little memory the kernel could not keep 600 processes that have ended.
#[test]
fn a_descriptor_outlives_its_process_and_keeps_nothing_of_it() {
    for &libc in libcs() {
        same_as_host_since((6, 16), &compile("lives", "lives", libc), &["--cpus", "2", "--mem", "64M"]);
    }
}

/// Of several bad parts the one is told that Linux tells.
#[test]
fn lists_of_parts_are_checked_in_the_order_of_linux() {
    same_as_host_since((6, 16), &compile("iovecs", "iovecs", Libc::Musl), &["--cpus", "2"]);
}

#[test]
fn what_a_process_says_of_itself_is_kept() {
    same_as_host(&compile("kept", "kept", Libc::Musl), &["--cpus", "2"]);
}

#[test]
fn a_seal_against_writing_is_exact() {
    same_as_host(&compile("seals", "seals", Libc::Musl), &["--cpus", "2"]);
}

#[test]
fn limits_are_those_that_the_process_is_told() {
    same_as_host(&compile("inherit", "inherit", Libc::Musl), &["--cpus", "2"]);
}

#[test]
fn wild_pointers_are_errors() {
    run_ok("wild", &[]);
}

#[test]
fn futexes_wake() {
    run_ok("pingpong", &["--cpus", "2"]);
}

#[test]
fn floating_point_is_each_threads_own() {
    run_ok("numbers", &[]);
}

#[test]
fn pipes_events_and_files_work() {
    run_ok("pipes", &[]);
}

#[test]
fn memory_calls_do_what_they_are_for() {
    run_ok("memory", &[]);
}

/// Also with more mappings than their text fits into memory at once.
#[test]
fn a_report_of_many_mappings_is_made_as_far_as_it_is_read() {
    run_ok("smaps", &["--mem", "512M"]);
}

/// The number behind `name` in what `--stats` prints.
fn counter(stats: &str, name: &str) -> u64 {
    let line = stats.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in:\n{stats}"))
}

#[test]
fn a_gibibyte_with_ten_pages_touched_takes_few_faults() {
    for &libc in libcs() {
        let ran = run(&["--stats", "--mem", "256M"], &compile("sparse", "sparse", libc), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "sparse ok\n"), "{}", ran.errors);
        let faults = counter(&ran.errors, "faults");
        assert!((10..200).contains(&faults), "{faults} faults");
        assert!(ran.errors.contains(" rw-p"), "mappings are printed: {}", ran.errors);
    }
}

#[test]
fn a_stack_that_overflows_is_seen_and_kills() {
    for &libc in libcs() {
        let ran = run(&[], &compile("overflow", "overflow", libc), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (128 + 11, "overflow seen\n"), "{}", ran.errors);
        for part in ["killed by signal 11", "write", "address 0x7ff", "code 1", "in no mapping", "rip "] {
            assert!(ran.errors.contains(part), "{part}: {}", ran.errors);
        }
    }
}

#[test]
fn every_frame_comes_back() {
    for (program, code) in [("threads", 0), ("memory", 0), ("overflow", 128 + 11), ("oom", 128 + 9)] {
        let ran = run(&["--mem", "96M", "--verbose"], &compile("frames", program, Libc::Musl), &[]);
        assert_eq!(ran.code, code, "{program}: {}", ran.errors);
        assert!(ran.errors.contains("starts") && !ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}

#[test]
fn failures_of_the_machine_have_codes_of_their_own() {
    let binary = compile("failures", "hello", Libc::Musl);
    let cases = [
        ("panic", 250, "kernel panic"),
        ("reset", 252, "triple fault"),
        ("nmi", 250, "vector 2: machine check, double fault or NMI"),
        ("user-access", 250, "page fault in the kernel"),
    ];
    for (name, code, says) in cases {
        let ran = run(&["--append", &format!("selftest={name}")], &binary, &[]);
        assert_eq!((ran.code, ran.output.as_str()), (code, ""), "{name}: {}", ran.errors);
        assert!(ran.errors.contains(says), "{name}: {}", ran.errors);
    }
    let spin = compile("failures", "spin", Libc::Musl);
    let ran = softfault(&["--timeout", "5", "--", spin.to_str().expect("UTF-8")]);
    assert_eq!((ran.code, ran.output.as_str()), (251, "spinning\n"), "{}", ran.errors);
}

#[test]
fn bad_arguments_are_named() {
    let hello = compile("arguments", "hello", Libc::Musl);
    let hello = hello.to_str().expect("UTF-8");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let twice = format!("{hello}:/x");
    let cases: [(&[&str], &str); 14] = [
        (&["--", "/no/such/program"], "/no/such/program"),
        (&["--", source], "Cargo.toml"),
        (&["--file", "/no/such/file", "--", hello], "--file /no/such/file"),
        (&["--file", "x:relative", "--", hello], "--file x:relative"),
        (&["--file", &twice, "--file", &twice, "--", hello], "/x"),
        (&["--mem", "12", "--", hello], "--mem"),
        (&["--mem", "32M", "--", hello], "--mem"),
        (&["--cpus", "0", "--", hello], "--cpus"),
        (&["--timeout", "soon", "--", hello], "--timeout"),
        (&["--append", "fault_locking=best", "--", hello], "fault_locking=best"),
        (&["--append", "hugetlb_locking=two", "--", hello], "hugetlb_locking=two: should be one, table or lockfree"),
        (&["--append", "thp_cow=all", "--", hello], "thp_cow=all: should be split or copy"),
        (&["--append", "delays=1e3", "--", hello], "delays=1e3"),
        (&["--append", "nonsense", "--", hello], "nonsense"),
    ];
    let mut wrong = String::new();
    for (args, named) in cases {
        let ran = softfault(args);
        if ran.code != 2 || !ran.errors.contains(named) || !ran.output.is_empty() {
            let _ = writeln!(wrong, "{args:?}: {} {:?} {:?}", ran.code, ran.output, ran.errors);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The knobs of huge pages, with each setting that a boot can begin with; the pools, empty or filled at boot.
#[test]
fn knobs_of_huge_pages_are_where_linux_has_them() {
    let binary = compile("hugeknobs", "hugeknobs", Libc::Musl);
    let cases = [("always", "always"), ("madvise", "madvise"), ("never", "never"), ("0", "off"), ("2", "madvise")];
    for (parameter, first) in cases {
        let arguments = if parameter == "never" { &[first, "0"][..] } else { &[first] };
        let ran = run(&["--append", &format!("transparent_hugepage={parameter}")], &binary, arguments);
        assert_eq!((ran.code, ran.output.as_str()), (0, "hugeknobs ok\n"), "{parameter}: {}", ran.errors);
        assert_eq!(ran.errors, "", "{parameter}");
    }
    let default = softfault::HugeKnobs::DEFAULT.enabled.name();
    let ran = run(
        &["--append", "transparent_hugepage=sometimes hugepages=2 hugetlb_locking=table"],
        &compile("hugeknobs", "hugeknobs", Libc::Glibc),
        &[default, "2"],
    );
    assert_eq!((ran.code, ran.output.as_str()), (0, "hugeknobs ok\n"), "{}", ran.errors);
    assert!(ran.errors.contains("transparent_hugepage=sometimes: should be always,"), "{}", ran.errors);
}

/// Pools of huge pages as a file system: mounts, names, pages.
#[test]
fn hugetlbfs_is_mounted_and_has_files() {
    run_ok("hugefs", &["--cpus", "2", "--append", "transparent_hugepage=never"]);
}

/// Private mappings of files of huge pages: copies, reservations, holes, sizes; and of a pool without a free page after fork(2).
#[test]
fn files_of_huge_pages_are_mapped_privately() {
    let options = ["--cpus", "2", "--append", "transparent_hugepage=never"];
    ["hugeprivate", "hugefork", "hugeonce"].iter().for_each(|name| run_ok(name, &options));
}

/// Pages of 1 GiB, shared and private: the hardware takes an entry of level 2 for one.
#[test]
fn pages_of_1_gib_have_one_entry() {
    run_ok("hugegib", &["--cpus", "2", "--mem", "4G", "--append", "hugepagesz=1G hugepages=2"]);
}

/// Pages of 1 GiB by other calls; they become small ones, and surplus ones. Small ones that leave need frames for
/// descriptors, which may keep a gigabyte from being whole: so surplus pages have a run of their own.
#[test]
fn files_segments_and_the_pool_have_pages_of_1_gib() {
    for &libc in libcs() {
        let binary = compile("calls", "hugegibcalls", libc);
        for arguments in [&[][..], &["surplus"]] {
            let options = ["--cpus", "2", "--mem", "4G", "--append", "hugepagesz=1G hugepages=2"];
            let ran = run(&options, &binary, arguments);
            assert_eq!((ran.code, ran.output.as_str()), (0, "hugegibcalls ok\n"), "{arguments:?}: {}", ran.errors);
            assert_eq!(ran.errors, "", "{arguments:?}");
        }
    }
}

/// `hugepages=` is for the size that is named before it. Without one it is for the default size, whenever that is named.
#[test]
fn the_default_size_of_huge_pages_is_named_at_boot() {
    let cases = [
        ("default_hugepagesz=1G", "256M", "1048576: 0 0", ""),
        ("hugepages=3 default_hugepagesz=2M", "256M", "2048: 3 0", ""),
        ("hugepages=1 default_hugepagesz=1G", "3G", "1048576: 0 1", ""),
        ("hugepagesz=2M hugepages=2 default_hugepagesz=1G hugepages=1", "3G", "1048576: 2 1", ""),
        ("hugepages=4 hugepagesz=2M hugepages=5", "256M", "2048: 4 0", ""),
        ("hugepagesz=2M hugepages=4 hugepagesz=2M hugepages=5", "256M", "2048: 4 0", "hugepages=5: there is one"),
        (
            "default_hugepagesz=3M hugepages=2 hugepages=5",
            "256M",
            "2048: 5 0",
            "default_hugepagesz=3M: should be 2M or 1G",
        ),
        (
            "default_hugepagesz=2M default_hugepagesz=1G",
            "256M",
            "2048: 0 0",
            "default_hugepagesz=1G: the default is known",
        ),
    ];
    let binary = compile("default", "hugedefault", Libc::Musl);
    for (parameters, mem, shown, complaint) in cases {
        let ran = run(&["--mem", mem, "--append", parameters], &binary, &[]);
        assert_eq!((ran.code, ran.output), (0, format!("{shown}\n")), "{parameters}: {}", ran.errors);
        assert!(ran.errors.contains(complaint) && ran.errors.is_empty() == complaint.is_empty(), "{}", ran.errors);
    }
}

/// Calls, mounts and files that name no size are about pages of 1 GiB.
#[test]
fn huge_pages_of_no_size_are_of_the_default_size() {
    for &libc in libcs() {
        let options = ["--mem", "3G", "--append", "default_hugepagesz=1G hugepages=1"];
        let ran = run(&options, &compile("default-use", "hugedefault", libc), &["use"]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "1048576: 0 1\n"), "{}", ran.errors);
        assert_eq!(ran.errors, "");
    }
}

/// The processes that get huge pages, and the files' figures of them; with
/// `transparent_hugepage=0` there is none from the first output on.
#[test]
fn huge_pages_are_where_the_knobs_say() {
    for &libc in libcs() {
        let binary = compile("hugeuse", "hugeuse", libc);
        for (when, arguments) in [("always", &[][..]), ("always thp_cow=copy", &[]), ("0", &["off"])] {
            let ran = run(&["--append", &format!("transparent_hugepage={when}")], &binary, arguments);
            assert_eq!((ran.code, ran.output.as_str()), (0, "hugeuse ok\n"), "{when}: {}", ran.errors);
            assert_eq!(ran.errors, "", "{when}");
        }
    }
}

/// T16: khugepaged makes huge pages of small ones when somebody else's memory becomes free.
#[test]
fn memory_becomes_huge_when_another_program_exits() {
    for cpus in ["1", "2"] {
        run_ok("hugegrows", &["--mem", "96M", "--cpus", cpus, "--append", "transparent_hugepage=never"]);
    }
}

/// T1: without a free block the same program does the same on small pages.
#[test]
fn without_free_blocks_all_goes_on_with_small_pages() {
    run_ok("hugelack", &["--mem", "96M", "--append", "transparent_hugepage=never"]);
}

/// Idle CPUs zero what was used and is free again.
#[test]
fn blocks_are_zeroed_ahead_by_who_has_nothing_to_do() {
    for cpus in ["1", "2"] {
        run_ok("hugeahead", &["--mem", "128M", "--cpus", cpus]);
    }
}

/// System V segments, futexes in shared memory, mlock and its kin.
#[test]
fn memory_between_processes() {
    run_ok("segments", &["--cpus", "2"]);
}

/// Shared and private mappings of files, whose sizes change meanwhile.
#[test]
fn mappings_of_files() {
    run_ok("mappings", &["--cpus", "2"]);
}
