//! How each client is built static on Debian 12; the builds themselves are theirs.

use super::{Place, files, make_folder, text};
use std::fs;

/// Where a client's source comes from.
pub enum Origin {
    /// A repository on GitHub, and the commit that was tried.
    GitHub { repository: &'static str, commit: &'static str },
    /// A Debian package has it as an archive; the build needs these parts of it.
    Archive { file: &'static str, parts: &'static str },
}

/// One program or suite.
pub struct Client {
    /// As the command takes it.
    pub name: &'static str,
    /// Where its source comes from.
    pub origin: Origin,
    /// Programs or files that the build needs, each with its Debian package.
    pub needs: &'static [(&'static str, &'static str)],
    /// Builds it and puts its programs where they belong.
    pub build: fn(&Place) -> Result<(), String>,
}

const GIT: (&str, &str) = ("git", "git");
const KERNEL_SOURCE: &str = "/usr/src/linux-source-6.12.tar.xz";
const CAP: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libcap.a", "libcap-dev");
const GCC: (&str, &str) = ("gcc", "gcc");
const LIBC: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev");
const MAKE: (&str, &str) = ("make", "make");
const NUMA: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libnuma.a", "libnuma-dev");

/// All of them, quick ones first.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "pft",
        origin: Origin::GitHub { repository: "gormanm/pft", commit: "b5cfe1bea5707ef06282fe936eec679c11d94479" },
        needs: &[GIT, GCC, LIBC, NUMA],
        build: pft,
    },
    Client {
        name: "will-it-scale",
        origin: Origin::GitHub {
            repository: "antonblanchard/will-it-scale",
            commit: "75f66e45697e6f5f49c33dd950c4e6b289198f8f",
        },
        needs: &[GIT, GCC, LIBC],
        build: will_it_scale,
    },
    Client {
        name: "vm-scalability",
        origin: Origin::GitHub {
            repository: "teawater/vm-scalability",
            commit: "96c94369e0cb36933c462c400a0e9e01f1caaf49",
        },
        needs: &[GIT, GCC, LIBC, MAKE, NUMA],
        build: vm_scalability,
    },
    Client {
        name: "ltp",
        origin: Origin::GitHub {
            repository: "linux-test-project/ltp",
            commit: "695827725f4fc14fe583043127e0335c29bbd52d",
        },
        needs: &[
            GIT,
            GCC,
            LIBC,
            MAKE,
            ("autoconf", "autoconf"),
            ("automake", "automake"),
            ("m4", "m4"),
            ("pkg-config", "pkg-config"),
            CAP,
            NUMA,
        ],
        build: ltp,
    },
    Client {
        name: "stress-ng",
        origin: Origin::GitHub {
            repository: "ColinIanKing/stress-ng",
            commit: "291fc4341bb68ef5f44a93517ab9fb0a0070276c",
        },
        needs: &[GIT, GCC, LIBC, MAKE],
        build: stress_ng,
    },
    Client {
        name: "selftests-mm",
        origin: Origin::Archive { file: KERNEL_SOURCE, parts: SELFTESTS },
        needs: &[
            GCC,
            LIBC,
            MAKE,
            CAP,
            NUMA,
            ("xz", "xz-utils"),
            ("/usr/lib/x86_64-linux-gnu/liburing.a", "liburing-dev"),
            (KERNEL_SOURCE, "linux-source-6.12"),
        ],
        build: selftests_mm,
    },
];

/// Arguments of one compilation.
fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&w| w.to_string()).collect()
}

fn pft(place: &Place) -> Result<(), String> {
    let out = text(&place.programs.join("pft"));
    let flags = "-std=gnu99 -O3 -w -pthread -static -s -D_GNU_SOURCE -DUSE_RUSAGE_THREAD";
    place.run("", "gcc", flags, &words(&["pft.c", "-lrt", "-lnuma", "-o", &out]))
}

/// Its tests as they are; only `hwloc.h` is this project's, since Debian's hwloc
/// cannot be linked static.
fn will_it_scale(place: &Place) -> Result<(), String> {
    let include = place.programs.join("include");
    make_folder(&include)?;
    let header = include.join("hwloc.h");
    fs::write(&header, include_str!("hwloc.h")).map_err(|e| format!("{}: {e}", header.display()))?;
    for test in files(&place.source.join("tests"))?.iter().filter(|f| f.extension().is_some_and(|e| e == "c")) {
        let name = test.file_stem().unwrap_or_default().to_string_lossy();
        for (kind, define) in [("processes", "-DPROCESSES"), ("threads", "-DTHREADS")] {
            let out = text(&place.programs.join(format!("{name}_{kind}")));
            let flags = format!("-O2 -w -pthread -static -s {define}");
            place.run("", "gcc", &flags, &words(&["-I", &text(&include), "main.c", &text(test), "-o", &out]))?;
        }
    }
    Ok(())
}

fn vm_scalability(place: &Place) -> Result<(), String> {
    place.run("", "make", "--silent STATIC=1", &[])?;
    place.keep("", |name| name.starts_with("usemem"))
}

/// The parts of the test project that concern memory, processes and signals, and
/// the files they need.
const LTP_SYSCALLS: &str = "
    mmap munmap mprotect mremap brk sbrk fork vfork clone clone3 wait wait4 waitid waitpid execl execle execlp
    execv execve execvp execveat exit exit_group madvise mincore msync mlock mlock2 mlockall munlock munlockall
    memfd_create remap_file_pages shmat shmctl shmdt shmget kill tkill tgkill pipe pipe2 dup dup2 dup3 pause
    alarm rt_sigaction rt_sigprocmask rt_sigqueueinfo rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaction
    sigaltstack sighold signal sigpending sigprocmask sigrelse sigsuspend sigtimedwait sigwait sigwaitinfo
    getpid getppid getpgid getpgrp getsid setsid setpgid setpgrp gettid getrusage getrlimit setrlimit nanosleep
    clock_nanosleep clock_gettime clock_getres getitimer setitimer poll select pselect ppoll read write readv
    writev pread pwrite open openat close lseek stat fstat fstatat lstat unlink mkdir rmdir rename link symlink
    readlink ftruncate truncate fallocate fcntl umask chdir getcwd access eventfd eventfd2 epoll_create
    epoll_create1 epoll_ctl epoll_wait futex sched_yield sched_getaffinity sched_setaffinity uname sysinfo time
    gettimeofday times getrandom mallinfo userfaultfd process_madvise close_range chmod creat getdents
    set_robust_list get_robust_list set_tid_address sysconf prctl membarrier getcpu statfs pathconf splice
    sendfile tee vmsplice socketpair cachestat cma fadvise get_mempolicy mallinfo2 mallopt mbind migrate_pages
    move_pages mseal pkeys preadv pwritev readahead set_mempolicy";

/// Nothing here that wants more memory than there is, or swap.
const LTP_MEMORY: &str = "
    ksm mem mmapstress mtest05 mtest06 mtest07 page shmt thp tunable vma vmtests hugetlb/lib hugetlb/hugefallocate
    hugetlb/hugefork hugetlb/hugemmap hugetlb/hugeshmat hugetlb/hugeshmctl hugetlb/hugeshmdt hugetlb/hugeshmget";

fn ltp(place: &Place) -> Result<(), String> {
    if !place.source.join("include/mk/config.mk").exists() {
        place.run("", "make", "--silent autotools", &[])?;
        place.run("", "./configure", "--quiet --disable-metadata --without-tirpc", &[])?;
    }
    // Given to make on its command line, it would take the place of the -L that
    // their makefiles add.
    let config = place.source.join("include/mk/config.mk");
    let failed = |e: std::io::Error| format!("{}: {e}", config.display());
    let settings = fs::read_to_string(&config).map_err(failed)?;
    if !settings.contains("LDFLAGS += -static") {
        fs::write(&config, format!("{settings}\nLDFLAGS += -static\n")).map_err(failed)?;
    }
    place.run("lib", "make", "--silent -j2", &[])?;
    let parts = LTP_SYSCALLS.split_whitespace().map(|d| format!("testcases/kernel/syscalls/{d}"));
    for part in parts.chain(LTP_MEMORY.split_whitespace().map(|d| format!("testcases/kernel/mem/{d}"))) {
        place.run(&part, "make", "--silent -j2", &[])?;
        place.keep(&part, |_| true)?;
    }
    // Which tests there are, and with which arguments.
    for list in ["syscalls", "mm", "hugetlb"] {
        let (from, to) = (place.source.join("runtest").join(list), place.programs.join(format!("runtest-{list}")));
        fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}

fn stress_ng(place: &Place) -> Result<(), String> {
    place.run("", "make", "--silent STATIC=1 -j2", &[])?;
    place.keep("", |name| name == "stress-ng")
}

/// The tests, and what `make headers` reads.
const SELFTESTS: &str = "Makefile Kbuild scripts include usr arch/x86 tools/testing/selftests tools/include tools/arch
    tools/scripts mm/gup_test.h lib/test_hmm_uapi.h";

/// Without `-w` the warnings are many; Debian's backport of khugepaged.c lacks an include.
const SELFTESTS_FLAGS: &str = "EXTRA_CFLAGS=-static -w -DKSFT_SKIP=4";

fn selftests_mm(place: &Place) -> Result<(), String> {
    place.run("", "make", "--silent headers", &[])?;
    let folder = "tools/testing/selftests/mm";
    place.run(folder, "make", "--silent -j2 ARCH=x86_64", &words(&[SELFTESTS_FLAGS]))?;
    place.keep(folder, |_| true)
}
