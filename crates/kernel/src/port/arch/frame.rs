//! The state that an entry into the kernel saves: the program's registers, as `entry.s`
//! lays them on the thread's kernel stack.

use core::fmt;

/// Selector of the program's code, ring 3: Linux's, which programs may have built in.
pub const USER_CS: u64 = 0x33;
/// Selector of the program's data, ring 3.
pub const USER_SS: u64 = 0x2b;
/// Flags that a program may set for itself: carry to direction, AC, ID.
const USER_FLAGS: u64 = 0x24_0dd5;
/// Interrupts on, and the bit that is always one.
const FORCED_FLAGS: u64 = 0x202;

/// The saved registers of a program, or of the kernel where a trap hit it.
#[repr(C, align(16))]
#[derive(Clone)]
#[allow(missing_docs)] // registers
pub struct Frame {
    pub xmm: [[u8; 16]; 16],
    pub mxcsr: u32,
    _pad: [u32; 3],
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    /// The trap's error code; in a system call its number.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

const _: () = assert!(core::mem::size_of::<Frame>() == 448);

impl Frame {
    /// A program's first registers.
    pub fn for_program(rip: u64, rsp: u64) -> Frame {
        Frame {
            xmm: [[0; 16]; 16],
            mxcsr: 0x1f80,
            _pad: [0; 3],
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rbp: 0,
            rdi: 0,
            rsi: 0,
            rdx: 0,
            rcx: 0,
            rbx: 0,
            rax: 0,
            vector: 0,
            error: 0,
            rip,
            cs: USER_CS,
            rflags: FORCED_FLAGS,
            rsp,
            ss: USER_SS,
        }
    }
    /// Whether the program was interrupted, not the kernel.
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }
    /// Takes over flags that a program chose, as far as it may choose them.
    pub fn set_user_flags(&mut self, flags: u64) {
        self.rflags = flags & USER_FLAGS | FORCED_FLAGS;
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, .. } = *self;
        let Frame { r12, r13, r14, r15, rip, rflags, cs, error, vector, .. } = *self;
        writeln!(
            f,
            "  rip {rip:016x} rsp {rsp:016x} rflags {rflags:08x} cs {cs:02x} vector {vector} error {error:#x}"
        )?;
        writeln!(f, "  rax {rax:016x} rbx {rbx:016x} rcx {rcx:016x} rdx {rdx:016x}")?;
        writeln!(f, "  rsi {rsi:016x} rdi {rdi:016x} rbp {rbp:016x} r8  {r8:016x}")?;
        writeln!(f, "  r9  {r9:016x} r10 {r10:016x} r11 {r11:016x} r12 {r12:016x}")?;
        write!(f, "  r13 {r13:016x} r14 {r14:016x} r15 {r15:016x}")
    }
}
