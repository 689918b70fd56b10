//! The frame that a handler finds on its stack, byte for byte as Linux lays it out:
//! unwinders, `longjmp` and handlers that change registers rely on it.

use super::Info;
use crate::port::arch::fpu::{IMAGE_BYTES, MXCSR_MASK};
use crate::port::arch::frame::{Frame, USER_CS, USER_SS};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `stack_t`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // sigaltstack(2)
pub struct RawStack {
    pub sp: u64,
    pub flags: u32,
    pub pad: u32,
    pub bytes: u64,
}

/// `struct sigcontext`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawRegisters {
    r8_to_r15: [u64; 8],
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    cs_gs_fs_ss: [u16; 4],
    error: u64,
    trap: u64,
    old_mask: u64,
    cr2: u64,
    fpu: u64,
    reserved: [u64; 8],
}

/// `struct ucontext`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RawContext {
    flags: u64,
    link: u64,
    stack: RawStack,
    registers: RawRegisters,
    /// Blocked signals to go back to.
    pub mask: u64,
}

/// `siginfo_t`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RawInfo {
    signal: u32,
    errno: u32,
    code: i32,
    pad: u32,
    value: u64,
    rest: [u64; 13],
}

/// The data at the handler's stack pointer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RawFrame {
    return_to: u64,
    context: RawContext,
    info: RawInfo,
}

/// Offset of the `ucontext` from the stack pointer.
pub const CONTEXT_OFFSET: u64 = 8;
/// Offset of the `siginfo_t`.
pub const INFO_OFFSET: u64 = 8 + size_of::<RawContext>() as u64;
/// The handler's context says that %ss is in it.
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;

const _: () = assert!(size_of::<RawFrame>() == 440 && size_of::<RawContext>() == 304);

impl RawInfo {
    /// Makes the form that programs read.
    pub fn new(info: &Info) -> RawInfo {
        let mut rest = [0; 13];
        rest[0] = info.extra;
        RawInfo { signal: info.signal, errno: 0, code: info.code, pad: 0, value: info.value, rest }
    }
}

impl RawFrame {
    /// For the interrupted program in `frame`.
    pub fn new(frame: &Frame, info: &Info, mask: u64, stack: RawStack, fpu: u64, restorer: u64) -> RawFrame {
        let registers = RawRegisters {
            r8_to_r15: [frame.r8, frame.r9, frame.r10, frame.r11, frame.r12, frame.r13, frame.r14, frame.r15],
            rdi: frame.rdi,
            rsi: frame.rsi,
            rbp: frame.rbp,
            rbx: frame.rbx,
            rdx: frame.rdx,
            rax: frame.rax,
            rcx: frame.rcx,
            rsp: frame.rsp,
            rip: frame.rip,
            rflags: frame.rflags,
            cs_gs_fs_ss: [USER_CS as u16, 0, 0, USER_SS as u16],
            error: frame.error,
            trap: frame.vector,
            old_mask: mask,
            cr2: info.value,
            fpu,
            reserved: [0; 8],
        };
        let flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
        RawFrame {
            return_to: restorer,
            context: RawContext { flags, link: 0, stack, registers, mask },
            info: RawInfo::new(info),
        }
    }
}

impl RawContext {
    /// Puts the registers back into `frame`, as far as a program may set them;
    /// gives where the floating-point image is.
    pub fn restore(&self, frame: &mut Frame) -> u64 {
        let r = &self.registers;
        [frame.r8, frame.r9, frame.r10, frame.r11, frame.r12, frame.r13, frame.r14, frame.r15] = r.r8_to_r15;
        frame.rdi = r.rdi;
        frame.rsi = r.rsi;
        frame.rbp = r.rbp;
        frame.rbx = r.rbx;
        frame.rdx = r.rdx;
        frame.rax = r.rax;
        frame.rcx = r.rcx;
        frame.rsp = r.rsp;
        frame.rip = r.rip;
        frame.set_user_flags(r.rflags);
        r.fpu
    }
    /// The alternate stack to go back to.
    pub fn stack(&self) -> RawStack {
        self.stack
    }
}

/// Puts the registers that the entry saved into the image of the others.
pub fn join_fpu(image: &mut [u8; IMAGE_BYTES], frame: &Frame) {
    image[24..28].copy_from_slice(&frame.mxcsr.to_le_bytes());
    image[160..416].copy_from_slice(frame.xmm.as_flattened());
}

/// The other way round.
pub fn split_fpu(image: &[u8; IMAGE_BYTES], frame: &mut Frame) {
    let mxcsr = [image[24], image[25], image[26], image[27]];
    frame.mxcsr = u32::from_le_bytes(mxcsr) & MXCSR_MASK;
    frame.xmm.as_flattened_mut().copy_from_slice(&image[160..416]);
}
