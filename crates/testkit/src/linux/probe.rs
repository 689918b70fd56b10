//! Accesses that may fault: five instructions at known addresses, and a signal
//! handler that goes on behind them.
//!
//! Runs in the child only. Each function's faulting instruction is its first, so
//! the handler knows it by its address; a fetch faults at its target instead.
#![allow(unsafe_code)]

use crate::op::Outcome;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

core::arch::global_asm!(
    ".p2align 4",
    "softfault_load1:  movzx eax, byte ptr [rdi]",
    "                  xor edx, edx",
    "                  ret",
    ".p2align 4",
    "softfault_load8:  mov rax, [rdi]",
    "                  xor edx, edx",
    "                  ret",
    ".p2align 4",
    "softfault_store1: mov [rdi], sil",
    "                  xor edx, edx",
    "                  ret",
    ".p2align 4",
    "softfault_store8: mov [rdi], rsi",
    "                  xor edx, edx",
    "                  ret",
    // The callee is a lone `ret`; the stack stays aligned for it.
    ".p2align 4",
    "softfault_exec:   sub rsp, 8",
    "                  xor edx, edx",
    "                  call rdi",
    "                  add rsp, 8",
    "                  ret",
    ".p2align 4",
    "softfault_failed: mov edx, 1",
    "                  ret",
);

#[repr(C)]
struct Answer {
    value: u64,
    failed: u64,
}

unsafe extern "C" {
    fn softfault_load1(addr: u64, unused: u64) -> Answer;
    fn softfault_load8(addr: u64, unused: u64) -> Answer;
    fn softfault_store1(addr: u64, value: u64) -> Answer;
    fn softfault_store8(addr: u64, value: u64) -> Answer;
    fn softfault_exec(addr: u64, unused: u64) -> Answer;
    fn softfault_failed();
}

static SIGNO: AtomicU64 = AtomicU64::new(0);
static CODE: AtomicU64 = AtomicU64::new(0);
static ADDR: AtomicU64 = AtomicU64::new(0);
/// Target of the fetch under way, or [`NO_FETCH`].
static TARGET: AtomicU64 = AtomicU64::new(NO_FETCH);
/// An address that is not canonical, so nothing is fetched from it.
const NO_FETCH: u64 = 1 << 63;

/// Which access.
#[derive(Clone, Copy)]
pub(super) enum Probe {
    Load1,
    Load8,
    Store1,
    Store8,
    Exec,
}

/// Makes the access; a signal is an outcome.
pub(super) fn probe(what: Probe, addr: u64, value: u64) -> Outcome {
    let function = match what {
        Probe::Load1 => softfault_load1,
        Probe::Load8 => softfault_load8,
        Probe::Store1 => softfault_store1,
        Probe::Store8 => softfault_store8,
        Probe::Exec => softfault_exec,
    };
    TARGET.store(if matches!(what, Probe::Exec) { addr } else { NO_FETCH }, Relaxed);
    // SAFETY: T3: the address is the sequence's; a fault is handled below.
    let answer = unsafe { function(addr, value) };
    TARGET.store(NO_FETCH, Relaxed);
    if answer.failed == 0 {
        return Outcome::Value(if matches!(what, Probe::Load1 | Probe::Load8) { answer.value } else { 0 });
    }
    if ADDR.load(Relaxed) != addr {
        return Outcome::Broken(1);
    }
    Outcome::Signal { signo: SIGNO.load(Relaxed), code: CODE.load(Relaxed) }
}

extern "C" fn on_fault(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: T2: the kernel's own siginfo and context, valid in the handler.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let at = *rip as u64;
    let probes = [softfault_load1, softfault_load8, softfault_store1, softfault_store8];
    let target = TARGET.load(Relaxed);
    if !probes.iter().any(|probe| *probe as usize as u64 == at) && target != at {
        // A fault of the child itself: a bug here. Die of it, visibly.
        // SAFETY: T2: raw system call; ends the process.
        unsafe { libc::_exit(86) };
    }
    SIGNO.store(signo as u64, Relaxed);
    CODE.store(info.si_code as u64, Relaxed);
    // SAFETY: T2: SIGSEGV and SIGBUS carry an address.
    ADDR.store(unsafe { info.si_addr() } as u64, Relaxed);
    *rip = softfault_failed as *const () as i64;
}

/// Takes SIGSEGV and SIGBUS. In the child, once.
pub(super) fn install() {
    // SAFETY: T2: an all-zero sigaction is valid; the handler is of the form that
    // SA_SIGINFO asks for. No stack of its own: steps never touch the child's.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        for signo in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signo, &action, core::ptr::null_mut());
        }
    }
}
