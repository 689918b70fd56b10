//! The table of system calls, by family.

use super::call::Call;
use super::identity::{self, Of};
use super::path::From;
use super::xattr::By;
use super::{
    attributes, clone, epoll, file, file_lock, info, ioctl, list, lock, memory, mount, names, numa, pidfd, poll,
    priority, process, process_vm, rw, shm, signal, socket, stat, thread, time, xattr,
};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::walk::Follow;
use crate::linux::signal::deliver;
use crate::port::console::log;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as nr;

/// Serves a call.
type Serve = fn(&mut Call) -> errno::Result;
/// Numbers of calls, and what serves them.
type Family = &'static [(u32, Serve)];

/// More than the highest number.
const NR_CALLS: usize = 512;

static CALLS: [Serve; NR_CALLS] = table(&[
    MEMORY, THREADS, SIGNALS, FILES, TRANSFERS, STATUS, NAMES, ATTRIBUTES, XATTRS, WAITS, SOCKETS, TIME, IDENTITY,
    PRIORITY,
]);

/// Serves call `number`.
pub fn dispatch(number: u64, call: &mut Call) -> errno::Result {
    let serve = usize::try_from(number).ok().and_then(|number| CALLS.get(number));
    serve.map_or(Err(Errno::ENOSYS), |serve| serve(call))
}

/// restart_syscall(2), which `deliver` has threads make: goes on with the call that
/// was interrupted, unless a handler has run since.
fn go_on(call: &mut Call) -> errno::Result {
    let (number, deadline_ns) = call.thread.resumes.lock().take().ok_or(Errno::EINTR)?;
    call.number = number;
    call.deadline.set(Some(deadline_ns));
    dispatch(number, call)
}

/// All families in one. A number that is there twice does not compile.
const fn table(families: &[Family]) -> [Serve; NR_CALLS] {
    let mut table = [unknown as Serve; NR_CALLS];
    let mut is_taken = [false; NR_CALLS];
    let mut family = 0;
    while family < families.len() {
        let mut i = 0;
        while i < families[family].len() {
            let (number, serve) = families[family][i];
            assert!(!is_taken[number as usize]);
            (table[number as usize], is_taken[number as usize]) = (serve, true);
            i += 1;
        }
        family += 1;
    }
    table
}

/// A family, written as a match of the number.
macro_rules! calls {
    ($call:ident: $($($number:path)|+ => $serve:expr,)*) => {
        &[$($(($number, |$call: &mut Call| {
            let _ = &$call;
            $serve
        }),)+)*]
    };
}

/// Memory.
const MEMORY: Family = calls! { call:
    nr::__NR_mmap => memory::mmap(call),
    nr::__NR_munmap => memory::munmap(call),
    nr::__NR_mprotect => memory::mprotect(call),
    nr::__NR_mremap => memory::mremap(call),
    nr::__NR_brk => memory::brk(call),
    nr::__NR_madvise => memory::madvise(call),
    nr::__NR_mincore => memory::mincore(call),
    nr::__NR_msync => memory::msync(call),
    nr::__NR_remap_file_pages => memory::remap_file_pages(call),
    nr::__NR_pkey_alloc => memory::pkey_alloc(call),
    nr::__NR_pkey_free => memory::pkey_free(call),
    nr::__NR_pkey_mprotect => memory::pkey_mprotect(call),
    nr::__NR_process_madvise => pidfd::process_madvise(call),
    nr::__NR_process_vm_readv => process_vm::transfer(call, process_vm::Way::FromOther),
    nr::__NR_process_vm_writev => process_vm::transfer(call, process_vm::Way::ToOther),
    nr::__NR_mlock => lock::mlock(call),
    nr::__NR_mlock2 => lock::mlock2(call),
    nr::__NR_munlock => lock::munlock(call),
    nr::__NR_mlockall => lock::mlockall(call),
    nr::__NR_munlockall => lock::munlockall(call),
    nr::__NR_mbind => numa::mbind(call),
    nr::__NR_set_mempolicy => numa::set_mempolicy(call),
    nr::__NR_get_mempolicy => numa::get_mempolicy(call),
    nr::__NR_set_mempolicy_home_node => numa::set_mempolicy_home_node(call),
    nr::__NR_shmget => shm::shmget(call),
    nr::__NR_shmat => shm::shmat(call),
    nr::__NR_shmdt => shm::shmdt(call),
    nr::__NR_shmctl => shm::shmctl(call),
};

/// Processes and threads.
const THREADS: Family = calls! { call:
    nr::__NR_futex => thread::futex(call),
    nr::__NR_clone => clone::clone(call),
    nr::__NR_clone3 => clone::clone3(call),
    nr::__NR_fork => clone::fork(call),
    nr::__NR_vfork => clone::vfork(call),
    nr::__NR_execve => process::execve(call),
    nr::__NR_execveat => process::execveat(call),
    nr::__NR_wait4 => process::wait4(call),
    nr::__NR_waitid => process::waitid(call),
    nr::__NR_setpgid => process::setpgid(call),
    nr::__NR_getpgid => process::getpgid(call),
    nr::__NR_getpgrp => Ok(call.process.group().into()),
    nr::__NR_setsid => process::setsid(call),
    nr::__NR_getsid => process::getsid(call),
    nr::__NR_getppid => Ok(call.process.parent_pid().into()),
    nr::__NR_exit => thread::exit(call),
    nr::__NR_exit_group => thread::exit_group(call),
    nr::__NR_set_tid_address => thread::set_tid_address(call),
    nr::__NR_set_robust_list => thread::set_robust_list(call),
    nr::__NR_arch_prctl => thread::arch_prctl(call),
    nr::__NR_sched_yield => thread::sched_yield(),
    nr::__NR_sched_setaffinity => thread::sched_setaffinity(call),
    nr::__NR_sched_getaffinity => thread::sched_getaffinity(call),
    nr::__NR_getcpu => thread::getcpu(call),
    nr::__NR_getpid => Ok(call.process.pid.into()),
    nr::__NR_gettid => Ok(call.thread.tid.into()),
};

/// Signals.
const SIGNALS: Family = calls! { call:
    nr::__NR_rt_sigaction => signal::rt_sigaction(call),
    nr::__NR_rt_sigprocmask => signal::rt_sigprocmask(call),
    nr::__NR_rt_sigpending => signal::rt_sigpending(call),
    nr::__NR_rt_sigsuspend => signal::rt_sigsuspend(call),
    nr::__NR_rt_sigtimedwait => signal::rt_sigtimedwait(call),
    nr::__NR_rt_sigqueueinfo => signal::rt_sigqueueinfo(call),
    nr::__NR_rt_tgsigqueueinfo => signal::rt_tgsigqueueinfo(call),
    nr::__NR_rt_sigreturn => deliver::sigreturn(call.thread, call.frame),
    nr::__NR_sigaltstack => signal::sigaltstack(call),
    nr::__NR_kill => signal::kill(call),
    nr::__NR_tkill => signal::tkill(call),
    nr::__NR_tgkill => signal::tgkill(call),
    nr::__NR_pause => signal::pause(call),
    nr::__NR_restart_syscall => go_on(call),
};

/// Descriptors.
const FILES: Family = calls! { call:
    nr::__NR_open => file::open(call),
    nr::__NR_openat => file::openat(call),
    nr::__NR_creat => file::creat(call),
    nr::__NR_memfd_create => file::memfd_create(call),
    nr::__NR_close => file::close(call),
    nr::__NR_close_range => file::close_range(call),
    nr::__NR_lseek => file::lseek(call),
    nr::__NR_fcntl => file::fcntl(call),
    nr::__NR_dup => file::dup(call),
    nr::__NR_dup2 => file::dup2(call),
    nr::__NR_dup3 => file::dup3(call),
    nr::__NR_pipe => file::pipe(call, 0),
    nr::__NR_pipe2 => file::pipe(call, call.int(1)),
    nr::__NR_pidfd_open => pidfd::open(call),
    nr::__NR_eventfd => file::eventfd2(call, 0),
    nr::__NR_eventfd2 => file::eventfd2(call, call.int(1)),
    nr::__NR_fsync | nr::__NR_fdatasync | nr::__NR_syncfs => file::sync_file(call),
    nr::__NR_sync => Ok(0),
    nr::__NR_flock => file_lock::flock(call),
    nr::__NR_fadvise64 => file::fadvise64(call),
    nr::__NR_ioctl => ioctl::ioctl(call),
};

/// Bytes to and from descriptors.
const TRANSFERS: Family = calls! { call:
    nr::__NR_read => rw::read(call),
    nr::__NR_readv => rw::readv(call),
    nr::__NR_pread64 => rw::pread64(call),
    nr::__NR_preadv => rw::preadv(call),
    nr::__NR_preadv2 => rw::vector2(call, false),
    nr::__NR_write => rw::write(call),
    nr::__NR_writev => rw::writev(call),
    nr::__NR_pwrite64 => rw::pwrite64(call),
    nr::__NR_pwritev => rw::pwritev(call),
    nr::__NR_pwritev2 => rw::vector2(call, true),
    nr::__NR_sendfile => rw::sendfile(call),
    nr::__NR_copy_file_range => rw::copy_file_range(call),
    nr::__NR_splice | nr::__NR_tee | nr::__NR_vmsplice => Err(Errno::EINVAL),
};

/// Properties of files and file systems.
const STATUS: Family = calls! { call:
    nr::__NR_stat => stat::stat(call, Follow::Last),
    nr::__NR_lstat => stat::stat(call, Follow::Slash),
    nr::__NR_fstat => stat::fstat(call),
    nr::__NR_newfstatat => stat::newfstatat(call),
    nr::__NR_statx => stat::statx(call),
    nr::__NR_access => stat::access(call),
    nr::__NR_faccessat => stat::faccessat(call, 0),
    nr::__NR_faccessat2 => stat::faccessat(call, call.int(3)),
    nr::__NR_mount => mount::mount(call),
    nr::__NR_umount2 => mount::umount2(call),
    nr::__NR_statfs => stat::statfs(call),
    nr::__NR_fstatfs => stat::fstatfs(call),
    nr::__NR_getdents => list::getdents(call, list::Layout::Old),
    nr::__NR_getdents64 => list::getdents(call, list::Layout::New),
};

/// Names of files, and folders.
const NAMES: Family = calls! { call:
    nr::__NR_mkdir => names::mkdir(call, From::Cwd, 0),
    nr::__NR_mkdirat => names::mkdir(call, From::Argument(0), 1),
    nr::__NR_mknod => names::mknod(call, From::Cwd, 0),
    nr::__NR_mknodat => names::mknod(call, From::Argument(0), 1),
    nr::__NR_rmdir => names::rmdir(call),
    nr::__NR_unlink => names::unlink(call),
    nr::__NR_unlinkat => names::unlinkat(call),
    nr::__NR_rename => names::rename(call),
    nr::__NR_renameat => names::renameat(call, 0),
    nr::__NR_renameat2 => names::renameat(call, call.int(4)),
    nr::__NR_link => names::link(call),
    nr::__NR_linkat => names::linkat(call),
    nr::__NR_symlink => names::symlink(call, From::Cwd, 1),
    nr::__NR_symlinkat => names::symlink(call, From::Argument(1), 2),
    nr::__NR_readlink => names::readlink(call, From::Cwd, 0),
    nr::__NR_readlinkat => names::readlink(call, From::Argument(0), 1),
    nr::__NR_getcwd => names::getcwd(call),
    nr::__NR_chdir => names::chdir(call),
    nr::__NR_fchdir => names::fchdir(call),
    nr::__NR_umask => names::umask(call),
    nr::__NR_chroot => names::chroot(call),
};

/// Attributes and sizes of files.
const ATTRIBUTES: Family = calls! { call:
    nr::__NR_chmod => attributes::chmod(call),
    nr::__NR_fchmod => attributes::fchmod(call),
    nr::__NR_fchmodat => attributes::fchmodat(call, 0),
    nr::__NR_fchmodat2 => attributes::fchmodat(call, call.int(3)),
    nr::__NR_chown => attributes::chown(call, Follow::Last),
    nr::__NR_lchown => attributes::chown(call, Follow::Slash),
    nr::__NR_fchown => attributes::fchown(call),
    nr::__NR_fchownat => attributes::fchownat(call),
    nr::__NR_utimensat => attributes::utimensat(call),
    nr::__NR_utimes => attributes::utimes(call, From::Cwd, 0),
    nr::__NR_futimesat => attributes::utimes(call, From::Argument(0), 1),
    nr::__NR_utime => attributes::utime(call),
    nr::__NR_truncate => attributes::truncate(call),
    nr::__NR_ftruncate => attributes::ftruncate(call),
    nr::__NR_fallocate => attributes::fallocate(call),
};

/// Extended attributes of files.
const XATTRS: Family = calls! { call:
    nr::__NR_getxattr => xattr::get(call, By::Path(Follow::Last)),
    nr::__NR_lgetxattr => xattr::get(call, By::Path(Follow::Slash)),
    nr::__NR_fgetxattr => xattr::get(call, By::Number),
    nr::__NR_listxattr => xattr::list(call, By::Path(Follow::Last)),
    nr::__NR_llistxattr => xattr::list(call, By::Path(Follow::Slash)),
    nr::__NR_flistxattr => xattr::list(call, By::Number),
    nr::__NR_setxattr => xattr::set(call, By::Path(Follow::Last)),
    nr::__NR_lsetxattr => xattr::set(call, By::Path(Follow::Slash)),
    nr::__NR_fsetxattr => xattr::set(call, By::Number),
    nr::__NR_removexattr => xattr::remove(call, By::Path(Follow::Last)),
    nr::__NR_lremovexattr => xattr::remove(call, By::Path(Follow::Slash)),
    nr::__NR_fremovexattr => xattr::remove(call, By::Number),
};

/// Waits for several descriptors.
const WAITS: Family = calls! { call:
    nr::__NR_poll => poll::poll(call),
    nr::__NR_ppoll => poll::ppoll(call),
    nr::__NR_select => poll::select(call),
    nr::__NR_pselect6 => poll::pselect6(call),
    nr::__NR_epoll_create => epoll::create(call, 0),
    nr::__NR_epoll_create1 => epoll::create(call, call.int(0)),
    nr::__NR_epoll_ctl => epoll::ctl(call),
    nr::__NR_epoll_wait => epoll::wait(call),
    nr::__NR_epoll_pwait => epoll::pwait(call),
    nr::__NR_epoll_pwait2 => epoll::pwait2(call),
};

/// Sockets.
const SOCKETS: Family = calls! { call:
    nr::__NR_socket => Err(Errno::EAFNOSUPPORT),
    nr::__NR_socketpair => socket::socketpair(call),
    nr::__NR_getpeername | nr::__NR_getsockname | nr::__NR_getsockopt | nr::__NR_setsockopt => socket::none(call),
};

/// Clocks and timers.
const TIME: Family = calls! { call:
    nr::__NR_clock_gettime => time::clock_gettime(call),
    nr::__NR_clock_getres => time::clock_getres(call),
    nr::__NR_gettimeofday => time::gettimeofday(call),
    nr::__NR_time => time::time(call),
    nr::__NR_nanosleep => time::nanosleep(call),
    nr::__NR_clock_nanosleep => time::clock_nanosleep(call),
    nr::__NR_getrusage => time::getrusage(call),
    nr::__NR_times => time::times(call),
    nr::__NR_alarm => time::alarm(call),
    nr::__NR_setitimer => time::setitimer(call),
    nr::__NR_getitimer => time::getitimer(call),
};

/// The machine, limits, and who a process is.
const IDENTITY: Family = calls! { call:
    nr::__NR_getrandom => info::getrandom(call),
    nr::__NR_uname => info::uname(call),
    nr::__NR_sysinfo => info::sysinfo(call),
    nr::__NR_prlimit64 => info::prlimit64(call),
    nr::__NR_getrlimit => info::getrlimit(call),
    nr::__NR_setrlimit => info::setrlimit(call),
    nr::__NR_getgroups => identity::getgroups(call),
    nr::__NR_getpriority => priority::getpriority(call),
    nr::__NR_syslog => Ok(0),
    nr::__NR_prctl => info::prctl(call),
    nr::__NR_getuid => identity::get_real(call, Of::Users),
    nr::__NR_getgid => identity::get_real(call, Of::Groups),
    nr::__NR_geteuid => identity::get_effective(call, Of::Users),
    nr::__NR_getegid => identity::get_effective(call, Of::Groups),
    nr::__NR_getresuid => identity::get_three(call, Of::Users),
    nr::__NR_getresgid => identity::get_three(call, Of::Groups),
    nr::__NR_setuid => identity::set(call, Of::Users),
    nr::__NR_setgid => identity::set(call, Of::Groups),
    nr::__NR_setreuid => identity::set_two(call, Of::Users),
    nr::__NR_setregid => identity::set_two(call, Of::Groups),
    nr::__NR_setresuid => identity::set_three(call, Of::Users),
    nr::__NR_setresgid => identity::set_three(call, Of::Groups),
    nr::__NR_setfsuid => identity::set_fs(call, Of::Users),
    nr::__NR_setfsgid => identity::set_fs(call, Of::Groups),
    nr::__NR_setgroups => identity::setgroups(call),
    nr::__NR_capget => identity::capget(call),
    nr::__NR_capset => identity::capset(call),
};

/// Scheduling.
const PRIORITY: Family = calls! { call:
    nr::__NR_setpriority => priority::setpriority(call),
    nr::__NR_sched_setscheduler => priority::sched_setscheduler(call),
    nr::__NR_sched_getscheduler => priority::sched_getscheduler(call),
    nr::__NR_sched_setparam => priority::sched_setparam(call),
    nr::__NR_sched_getparam => priority::sched_getparam(call),
    nr::__NR_personality => priority::personality(call),
    // Their callers do without.
    nr::__NR_rseq | nr::__NR_membarrier => Err(Errno::ENOSYS),
};

/// Says once for each number that a program wanted it.
fn unknown(call: &mut Call) -> errno::Result {
    let number = call.number;
    static SEEN: [AtomicU64; NR_CALLS / 64] = [const { AtomicU64::new(0) }; NR_CALLS / 64];
    if let Some(word) = SEEN.get(number as usize / 64) {
        let bit = 1 << (number % 64);
        if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            log!("system call {number} is not supported");
        }
    }
    Err(Errno::ENOSYS)
}
