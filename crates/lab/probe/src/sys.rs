//! System calls, those that the probe makes and no more. A result below zero is
//! an errno, negated, as the kernel gives it.

use core::arch::asm;
use core::ffi::CStr;
use core::ptr;
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    __kernel_timespec, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, rusage,
};
use linux_raw_sys::system::sysinfo;

/// Size of a page.
pub const PAGE: usize = 4096;

/// A system call by its number.
///
/// # Safety
/// It changes only memory that its caller owns and expects to change.
#[inline(always)]
pub unsafe fn call(number: u32, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: L1: the kernel changes rax, rcx and r11, and what the caller answers for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A call whose arguments are numbers, or strings that live for ever.
fn plain(number: u32, args: &[usize]) -> isize {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    // SAFETY: L1: those callers pass no memory that the kernel would write to.
    unsafe { call(number, all) }
}

fn text(text: &CStr) -> usize {
    text.as_ptr() as usize
}

/// exit_group(2).
pub fn exit(status: i32) -> ! {
    plain(nr::__NR_exit_group, &[status as usize]);
    loop {
        core::hint::spin_loop();
    }
}

/// fork(2): 0 in the child.
#[inline(always)]
pub fn fork() -> isize {
    // SAFETY: L7: one thread, whose memory the child has a copy of.
    unsafe { call(nr::__NR_fork, [0; 6]) }
}

/// getppid(2).
#[inline(always)]
pub fn getppid() -> isize {
    // SAFETY: L1: it takes nothing.
    unsafe { call(nr::__NR_getppid, [0; 6]) }
}

/// A child that ended: what wait4(2) says of it.
pub struct Ended {
    /// Its number, or an errno.
    pub pid: isize,
    /// As the kernel encodes it.
    pub status: i32,
    /// Resources that it and the children that it waited for used.
    pub usage: rusage,
}

/// wait4(2) for the child `pid`, or for any with -1.
#[inline(always)]
pub fn wait(pid: isize) -> Ended {
    // SAFETY: L1: an rusage is plain numbers.
    let mut usage: rusage = unsafe { core::mem::zeroed() };
    let mut status = 0i32;
    let out = [pid as usize, &raw mut status as usize, 0, &raw mut usage as usize, 0, 0];
    // SAFETY: L1: both live in this frame.
    let pid = unsafe { call(nr::__NR_wait4, out) };
    Ended { pid, status, usage }
}

/// Minor and major faults of this process so far.
pub fn nr_faults() -> (usize, usize) {
    // SAFETY: L1: an rusage is plain numbers.
    let mut usage: rusage = unsafe { core::mem::zeroed() };
    // SAFETY: L1: it lives in this frame.
    unsafe { call(nr::__NR_getrusage, [nr::RUSAGE_SELF as usize, &raw mut usage as usize, 0, 0, 0, 0]) };
    (usage.ru_minflt as usize, usage.ru_majflt as usize)
}

/// execve(2); returns only if it failed.
pub fn exec(program: &CStr, args: *const *const u8, env: *const *const u8) -> isize {
    plain(nr::__NR_execve, &[text(program), args as usize, env as usize])
}

/// setsid(2): signals that the program sends to its group do not reach the probe.
pub fn new_session() {
    plain(nr::__NR_setsid, &[]);
}

/// kill(2).
pub fn kill(pid: isize, signal: u32) {
    plain(nr::__NR_kill, &[pid as usize, signal as usize]);
}

/// CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let mut time = __kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: L1: it lives in this frame.
    unsafe { call(nr::__NR_clock_gettime, [nr::CLOCK_MONOTONIC as usize, &raw mut time as usize, 0, 0, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Memory that nobody uses, bytes.
pub fn free_bytes() -> usize {
    // SAFETY: L1: a sysinfo is plain numbers.
    let mut info: sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: L1: it lives in this frame.
    unsafe { call(nr::__NR_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]) };
    info.freeram as usize * (info.mem_unit as usize).max(1)
}

/// Private memory, or none.
#[inline(always)]
pub fn map(len: usize) -> Option<*mut u8> {
    let rights = (PROT_READ | PROT_WRITE) as usize;
    let flags = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE) as usize;
    // SAFETY: L1: a new mapping takes nothing that is in use.
    let base = unsafe { call(nr::__NR_mmap, [0, len, rights, flags, usize::MAX, 0]) };
    (base > 0).then(|| ptr::with_exposed_provenance_mut(base as usize))
}

/// A new file in memory, of `len` bytes: its descriptor, or none.
pub fn file_in_memory(name: &CStr, len: usize) -> Option<isize> {
    let descriptor = plain(nr::__NR_memfd_create, &[text(name), 0]);
    if descriptor < 0 {
        return None;
    }
    if plain(nr::__NR_ftruncate, &[descriptor as usize, len]) != 0 {
        close(descriptor);
        return None;
    }
    Some(descriptor)
}

/// A shared mapping of a file, or none: where the kernel wants it, or at an address that [`map`] has reserved.
pub fn map_file(descriptor: isize, at: Option<*mut u8>, len: usize) -> Option<*mut u8> {
    let rights = (PROT_READ | PROT_WRITE) as usize;
    let flags = (MAP_SHARED | at.map_or(0, |_| MAP_FIXED)) as usize;
    let at = at.map_or(0, |at| at.expose_provenance());
    // SAFETY: L1: it takes nothing that is in use, but for what the caller has reserved.
    let base = unsafe { call(nr::__NR_mmap, [at, len, rights, flags, descriptor as usize, 0]) };
    (base > 0).then(|| ptr::with_exposed_provenance_mut(base as usize))
}

/// munmap(2) of what [`map`] or [`map_file`] gave.
///
/// # Safety
/// Nobody uses it any more.
#[inline(always)]
pub unsafe fn unmap(base: *mut u8, len: usize) {
    // SAFETY: L1: the caller's mapping.
    unsafe { call(nr::__NR_munmap, [base.expose_provenance(), len, 0, 0, 0, 0]) };
}

/// open(2), with rights for everybody if it makes a file.
pub fn open(path: &CStr, flags: u32) -> isize {
    plain(nr::__NR_open, &[text(path), flags as usize, 0o666])
}

/// close(2).
pub fn close(descriptor: isize) {
    plain(nr::__NR_close, &[descriptor as usize]);
}

/// unlink(2).
pub fn unlink(path: &CStr) {
    plain(nr::__NR_unlink, &[text(path)]);
}

/// dup2(2).
pub fn dup2(old: isize, new: isize) {
    plain(nr::__NR_dup2, &[old as usize, new as usize]);
}

/// To the beginning of a file.
pub fn rewind(descriptor: isize) {
    plain(nr::__NR_lseek, &[descriptor as usize, 0, nr::SEEK_SET as usize]);
}

/// read(2): the bytes that there were.
pub fn read(descriptor: isize, buffer: &mut [u8]) -> usize {
    // SAFETY: L1: no more than the buffer is written.
    let len =
        unsafe { call(nr::__NR_read, [descriptor as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
    len.max(0) as usize
}

/// pread(2): the bytes that there were.
pub fn read_at(descriptor: isize, buffer: &mut [u8], offset: usize) -> usize {
    let args = [descriptor as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset, 0, 0];
    // SAFETY: L1: no more than the buffer is written.
    unsafe { call(nr::__NR_pread64, args) }.max(0) as usize
}

/// write(2) of all of it, or of what can be written.
pub fn write(descriptor: isize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let len = plain(nr::__NR_write, &[descriptor as usize, bytes.as_ptr() as usize, bytes.len()]);
        match usize::try_from(len) {
            Ok(len @ 1..) => bytes = &bytes[len..],
            _ => return,
        }
    }
}

/// getdents64(2): bytes of entries that were read.
pub fn entries(descriptor: isize, buffer: &mut [u8]) -> usize {
    let args = [descriptor as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: L1: no more than the buffer is written.
    unsafe { call(nr::__NR_getdents64, args) }.max(0) as usize
}

/// mount(2) of a file system without a device.
pub fn mount(kind: &CStr, place: &CStr) {
    plain(nr::__NR_mkdir, &[text(place), 0o755]);
    plain(nr::__NR_mount, &[text(kind), text(place), text(kind), 0, 0]);
}

/// reboot(2), to turn the machine off.
pub fn power_off() {
    let (first, second) = (nr::LINUX_REBOOT_MAGIC1, nr::LINUX_REBOOT_MAGIC2);
    plain(nr::__NR_reboot, &[first as usize, second as usize, nr::LINUX_REBOOT_CMD_POWER_OFF as usize]);
}

/// iopl(2): lets the probe use I/O ports.
pub fn allow_ports() {
    plain(nr::__NR_iopl, &[3]);
}
