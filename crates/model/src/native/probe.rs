//! Accesses that may fault, on any thread: five instructions at known addresses,
//! and a signal handler that hands what happened back in registers.
//!
//! There is no state to share, so threads do not meet.
#![allow(unsafe_code)]

use crate::op::Outcome;

core::arch::global_asm!(
    // The use of a label may be in another object file of this crate.
    ".globl softfault_native_load1, softfault_native_load8, softfault_native_store1, softfault_native_store8",
    ".globl softfault_native_exec, softfault_native_back, softfault_native_failed",
    ".p2align 4",
    "softfault_native_load1:  movzx eax, byte ptr [rdi]",
    "                         xor edx, edx",
    "                         ret",
    ".p2align 4",
    "softfault_native_load8:  mov rax, [rdi]",
    "                         xor edx, edx",
    "                         ret",
    ".p2align 4",
    "softfault_native_store1: mov [rdi], sil",
    "                         xor edx, edx",
    "                         ret",
    ".p2align 4",
    "softfault_native_store8: mov [rdi], rsi",
    "                         xor edx, edx",
    "                         ret",
    // The callee is a lone `ret`; the stack stays aligned for it.
    ".p2align 4",
    "softfault_native_exec:   sub rsp, 8",
    "                         xor edx, edx",
    "                         call rdi",
    "softfault_native_back:   add rsp, 8",
    "                         ret",
    ".p2align 4",
    "softfault_native_failed: ret",
);

/// In `rax` and `rdx`.
#[repr(C)]
struct Answer {
    /// The word that was loaded, or the address where it failed.
    value: u64,
    /// 0, or signal and code as `signo << 32 | code`.
    failed: u64,
}

unsafe extern "C" {
    fn softfault_native_load1(addr: u64, unused: u64) -> Answer;
    fn softfault_native_load8(addr: u64, unused: u64) -> Answer;
    fn softfault_native_store1(addr: u64, value: u64) -> Answer;
    fn softfault_native_store8(addr: u64, value: u64) -> Answer;
    fn softfault_native_exec(addr: u64, unused: u64) -> Answer;
    fn softfault_native_back();
    fn softfault_native_failed();
}

/// Which access.
#[derive(Clone, Copy, PartialEq, Eq)]
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
        Probe::Load1 => softfault_native_load1,
        Probe::Load8 => softfault_native_load8,
        Probe::Store1 => softfault_native_store1,
        Probe::Store8 => softfault_native_store8,
        Probe::Exec => softfault_native_exec,
    };
    // SAFETY: N4: the address is the sequence's; a fault is handled below (N5).
    let answer = unsafe { function(addr, value) };
    match answer.failed {
        0 if matches!(what, Probe::Load1 | Probe::Load8) => Outcome::Value(answer.value),
        0 => Outcome::Value(0),
        _ if answer.value != addr => Outcome::Broken(1),
        failed => Outcome::Signal { signo: failed >> 32, code: failed & 0xffff_ffff },
    }
}

extern "C" fn on_fault(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: N5: the kernel's own siginfo and context, valid in the handler.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as u64;
    // SAFETY: N5: SIGSEGV and SIGBUS carry an address.
    let addr = unsafe { info.si_addr() } as u64;
    let accesses = [softfault_native_load1, softfault_native_load8, softfault_native_store1, softfault_native_store8];
    let is_access = accesses.iter().any(|probe| *probe as usize as u64 == at);
    // SAFETY: N5: the stack that the handler runs on.
    let is_fetch =
        || unsafe { *(registers[libc::REG_RSP as usize] as *const u64) } == softfault_native_back as *const () as u64;
    let is_step = is_access || at == addr && is_fetch();
    if !is_step {
        // A fault of the program itself, not of a step: die of it.
        // SAFETY: N5: the default action, on return.
        unsafe { libc::signal(signo, libc::SIG_DFL) };
        return;
    }
    registers[libc::REG_RAX as usize] = addr as i64;
    registers[libc::REG_RDX as usize] = i64::from(signo) << 32 | i64::from(info.si_code as u32);
    registers[libc::REG_RIP as usize] = softfault_native_failed as *const () as i64;
}

/// Takes SIGSEGV and SIGBUS.
pub(super) fn install() {
    // SAFETY: N5: an all-zero sigaction is valid; the handler is of the form that
    // SA_SIGINFO asks for. No stack of its own: steps never touch the threads'.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        for signo in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signo, &action, core::ptr::null_mut());
        }
    }
}
