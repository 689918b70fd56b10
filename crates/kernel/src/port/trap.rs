//! Traps and interrupts: page faults to the subsystem, other exceptions to
//! signals, the timer and other CPUs' requests to their places.

use crate::linux::file::console;
use crate::linux::oom;
use crate::linux::process::Mm;
use crate::linux::signal::{Info, deliver};
use crate::log;
use crate::port::arch::apic;
use crate::port::arch::frame::Frame;
use crate::port::arch::serial::SERIAL;
use crate::port::mailbox;
use crate::port::sched::{self, Thread};
use linux_raw_sys::general::{
    BUS_ADRERR, BUS_MCEERR_AR, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGFPE, SIGILL, SIGSEGV,
    SIGTRAP, TRAP_BRKPT, TRAP_TRACE,
};
use softfault::{Access, FaultError, Vma};

const PAGE_FAULT: u64 = 14;
/// `si_code` of what the kernel cannot say more about.
const SI_KERNEL: u32 = 0x80;

/// Every trap and interrupt; `frame` lies on the kernel stack in use (K8).
#[unsafe(no_mangle)]
extern "C" fn trap_dispatch(frame: &mut Frame) {
    // The first thing, before anything here can fault again.
    let address = x86_64::registers::control::Cr2::read_raw();
    if !frame.is_user() {
        return in_kernel(frame, address);
    }
    sched::with_current(|thread| {
        thread.usage.entered_kernel();
        match frame.vector {
            PAGE_FAULT => page_fault(thread, address, frame),
            apic::TIMER | apic::POKE | apic::SPURIOUS | SERIAL => interrupt(frame.vector),
            _ => exception(thread, frame),
        }
    });
    deliver::before_return(frame, None);
}

/// Interrupts of an idle CPU; anything else is a bug of the kernel.
fn in_kernel(frame: &Frame, address: u64) {
    match frame.vector {
        apic::TIMER => {
            apic::end_of_interrupt();
            sched::tick();
        }
        apic::POKE => {
            apic::end_of_interrupt();
            mailbox::poll();
        }
        SERIAL => {
            apic::end_of_interrupt();
            console::pump();
        }
        apic::SPURIOUS => {}
        PAGE_FAULT => {
            panic!(
                "page fault in the kernel: {} of {address:#x}\n{frame}{}",
                access_of(frame.error).1,
                InSpace(address)
            )
        }
        2 | 8 | 18 => panic!("vector {}: machine check, double fault or NMI\n{frame}", frame.vector),
        _ => panic!("exception in the kernel\n{frame}"),
    }
}

/// Interrupts while a program runs.
fn interrupt(vector: u64) {
    if vector != apic::SPURIOUS {
        apic::end_of_interrupt();
    }
    mailbox::poll();
    if vector == SERIAL {
        console::pump();
    }
    if vector == apic::TIMER {
        sched::tick();
        sched::yield_now();
    }
}

fn access_of(error: u64) -> (Access, &'static str) {
    match (error & 1 << 4 != 0, error & 1 << 1 != 0) {
        (true, _) => (Access::Exec, "execution"),
        (_, true) => (Access::Write, "write"),
        _ => (Access::Read, "read"),
    }
}

fn page_fault(thread: &Thread, address: u64, frame: &Frame) {
    assert!(frame.error & 1 << 3 == 0, "a table entry with reserved bits at {address:#x}\n{frame}");
    let segv = |code: u32| Info::of_fault(SIGSEGV, code, address);
    let info = match thread.space().handle_fault(address, access_of(frame.error).0) {
        Ok(_) => {
            thread.usage.faulted();
            return;
        }
        Err(FaultError::NotMapped | FaultError::Guard) => segv(SEGV_MAPERR),
        Err(FaultError::BeyondObject) => Info::of_fault(SIGBUS, BUS_ADRERR, address),
        Err(FaultError::Poisoned) => Info::of_fault(SIGBUS, BUS_MCEERR_AR, address),
        Err(FaultError::OutOfFrames) => return oom::out_of_memory(thread, address),
        Err(_) => segv(SEGV_ACCERR),
    };
    deliver::force(thread, info, frame);
}

fn exception(thread: &Thread, frame: &Frame) {
    let at_rip = |signal, code| Info::of_fault(signal, code, frame.rip);
    let info = match frame.vector {
        0 => at_rip(SIGFPE, FPE_INTDIV),
        1 => at_rip(SIGTRAP, TRAP_TRACE),
        3 => at_rip(SIGTRAP, TRAP_BRKPT),
        6 => at_rip(SIGILL, ILL_ILLOPN),
        16 | 19 => at_rip(SIGFPE, SI_KERNEL),
        2 | 8 | 18 => panic!("vector {} in a program\n{frame}", frame.vector),
        _ => Info::of_fault(SIGSEGV, SI_KERNEL, 0),
    };
    deliver::force(thread, info, frame);
}

/// Logs what a program dies of.
pub fn report_death(thread: &Thread, info: &Info, frame: &Frame) {
    let access = match frame.vector {
        PAGE_FAULT => access_of(frame.error).1,
        _ => "no access",
    };
    let (signal, value) = (info.signal, info.value);
    let (mm, pid) = (thread.mm(), thread.process().pid);
    log!("{}[{pid}]: killed by signal {signal}, code {}: {access}, address {value:#x}", mm.path, info.code);
    log!("{}", VmaLine(mm, value));
    log!("{frame}");
}

fn vma_at(mm: &Mm, address: u64) -> Option<Vma> {
    let mut found = None;
    mm.space.maps(&mut |vma: &Vma| {
        if vma.range.contains(softfault::Vpn::of(address)) {
            found = Some(*vma);
        }
    });
    found
}

/// Says which mapping an address is in.
struct VmaLine<'a>(&'a Mm, u64);

impl core::fmt::Display for VmaLine<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match vma_at(self.0, self.1) {
            Some(vma) => write!(f, "  in the mapping {:?} {:?}", vma.range, vma.flags),
            None => write!(f, "  in no mapping"),
        }
    }
}

/// The same for the space that is loaded, where the kernel itself is at fault.
struct InSpace(u64);

impl core::fmt::Display for InSpace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let local = crate::port::arch::cpu::this().local.try_borrow().ok();
        match local.map(|l| l.current()) {
            Some(thread) if thread.process.is_some() => write!(f, "\n{}", VmaLine(thread.mm(), self.0)),
            _ => Ok(()),
        }
    }
}
