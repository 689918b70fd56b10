//! Entries from ring 3: page faults go to the subsystem, interrupts to the timer, the
//! other CPUs and the serial line, all else to the program's owner.

use super::arch::apic;
use super::arch::frame::Frame;
use super::arch::serial::{self, SERIAL};
use super::mailbox;
use super::mm::{Space, USER_END};
use super::sched::{self, Next, Thread};
use core::fmt;
use core::sync::atomic::Ordering;
use softfault::{Access, Vma, Vpn};

/// Vector of a page fault.
const PAGE_FAULT: u64 = 14;

/// Every trap and interrupt; `frame` lies on the kernel stack in use (K8).
#[unsafe(no_mangle)]
extern "C" fn trap_dispatch(frame: &mut Frame) {
    // The first thing, before anything here can fault again.
    let address = x86_64::registers::control::Cr2::read_raw();
    if !frame.is_user() {
        return in_kernel(frame, address);
    }
    let next = sched::with_current(|thread| {
        thread.usage.entered_kernel();
        match frame.vector {
            // Not by the table of the others.
            vector if vector == PAGE_FAULT => page_fault(thread, address, frame),
            apic::TIMER | apic::POKE | apic::SPURIOUS | SERIAL => interrupt(frame.vector),
            2 | 8 | 18 => panic!("vector {} in a program\n{frame}", frame.vector),
            _ => thread.program.exception(thread, frame),
        }
        let is_looked_for = thread.attention.load(Ordering::SeqCst) || frame.rip >= USER_END;
        let next = if is_looked_for { thread.program.before_return(thread, frame) } else { Next::Resumes };
        thread.usage.leaving_kernel();
        next
    });
    leave(next);
}

/// Every system call; `frame` lies on the thread's kernel stack (K8).
#[unsafe(no_mangle)]
extern "C" fn syscall_dispatch(frame: &mut Frame) {
    let next = sched::with_current(|thread| {
        thread.usage.entered_kernel();
        let next = thread.program.system_call(thread, frame);
        thread.usage.leaving_kernel();
        next
    });
    leave(next);
}

fn leave(next: Next) {
    if let Next::Ends(end) = next {
        end();
    }
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
            serial::interrupted();
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
        serial::interrupted();
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
    match thread.space().handle_fault(address, access_of(frame.error).0) {
        Ok(_) => thread.usage.faulted(),
        Err(error) => thread.program.fault_refused(thread, frame, address, error),
    }
}

/// Says by which access a program came into the kernel.
pub struct AccessWord<'a>(pub &'a Frame);

impl fmt::Display for AccessWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.vector {
            PAGE_FAULT => access_of(self.0.error).1,
            _ => "no access",
        })
    }
}

fn vma_at(space: &Space, address: u64) -> Option<Vma> {
    let mut found = None;
    space.maps(&mut |vma: &Vma| {
        if vma.range.contains(Vpn::of(address)) {
            found = Some(*vma);
        }
    });
    found
}

/// Says which mapping of a space an address is in.
pub struct VmaLine<'a>(pub &'a Space, pub u64);

impl fmt::Display for VmaLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match vma_at(self.0, self.1) {
            Some(vma) => write!(f, "  in the mapping {:?} {:?}", vma.range, vma.flags),
            None => write!(f, "  in no mapping"),
        }
    }
}

/// The same for the space of the thread that runs, where the kernel itself is at fault.
struct InSpace(u64);

impl fmt::Display for InSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match sched::current_space() {
            Some(space) => write!(f, "\n{}", VmaLine(&space, self.0)),
            None => Ok(()),
        }
    }
}
