//! The probe: the first program of a machine, on the reference kernel and as
//! init on Linux. It touches the machine's memory, runs a program, times it, and
//! reports; or it counts instructions of a few operations itself.
//!
//! One binary for both systems, without a C library, so that what is measured
//! does not hang on the library of the host that built it. `sys` has the system
//! calls, `console` the way out, `linux` what an init owes Linux, `program`,
//! `count` and `around` the three things it can do. Its arguments:
//!
//! ```text
//! MARKER run REPEATS PROGRAM ARGUMENTS...
//! MARKER count
//! MARKER around PATTERN PAGES ROUNDS ORDER...
//! ```
//!
//! On Linux they come from the archive, where the kernel's command line would
//! split and shorten them. Each record on the output is MARKER and a line of JSON.
#![no_std]
#![no_main]

mod around;
mod console;
mod count;
mod linux;
#[path = "../../../kernel/src/port/packet.rs"]
mod packet;
mod program;
mod sys;
mod warm;

use console::Console;
use core::arch::global_asm;
use core::ffi::CStr;

global_asm!(include_str!("start.s"));
global_asm!(include_str!("../../../kernel/src/port/arch/bytes.s"));

/// The name under which Linux starts it; the archive for Linux has it so.
const NAME_AS_INIT: &CStr = c"/.softfault-init";
/// Exit status after a complaint.
const REFUSED: i32 = 2;

/// Strings that live as long as the probe, with a null pointer behind the last,
/// as execve(2) wants them.
#[derive(Clone, Copy)]
pub struct Args(&'static [*const u8]);

impl Args {
    /// The list whose first pointer is at `first`.
    ///
    /// # Safety
    /// It ends with a null pointer, and nobody ever changes it or its strings.
    unsafe fn at(first: *const *const u8) -> Args {
        let mut len = 0;
        // SAFETY: L7: the list goes on up to the null pointer.
        while unsafe { !(*first.add(len)).is_null() } {
            len += 1;
        }
        // SAFETY: L7: as far as was just walked, and the null pointer.
        Args(unsafe { core::slice::from_raw_parts(first, len + 1) })
    }
    fn len(self) -> usize {
        self.0.len() - 1
    }
    fn get(self, i: usize) -> &'static CStr {
        if i >= self.len() {
            return c"";
        }
        // SAFETY: L7: before the null pointer there are strings.
        unsafe { CStr::from_ptr(self.0[i].cast()) }
    }
    /// The list from `i` on.
    fn from(self, i: usize) -> Args {
        Args(&self.0[i.min(self.len())..])
    }
    fn pointers(self) -> *const *const u8 {
        self.0.as_ptr()
    }
}

/// Entered from `start.s` with the stack as the kernel laid it out: a count, the
/// arguments, a null pointer.
#[unsafe(no_mangle)]
extern "C" fn probe_main(stack: *const *const u8) -> ! {
    // SAFETY: L7: the arguments begin one word above the count.
    let args = unsafe { Args::at(stack.add(1)) };
    if args.get(0) == NAME_AS_INIT {
        let console = linux::become_init();
        match linux::arguments() {
            Some(args) => act(&console, args),
            None => console.complain(format_args!("{}: cannot be read", linux::ARGUMENTS.to_str().unwrap_or(""))),
        }
        linux::power_off(&console)
    }
    act(&Console::descriptors(), args);
    sys::exit(0)
}

fn act(console: &Console, args: Args) {
    let marker = args.get(1);
    match args.get(2).to_bytes() {
        b"run" if args.len() > 4 => {
            let repeats = args.get(3).to_str().ok().and_then(|n| n.parse().ok()).unwrap_or(1);
            program::run(console, marker, repeats, args.from(4));
        }
        b"count" => count::run(console, marker),
        b"around" if args.len() > 6 => around::run(console, marker, args.from(3)),
        _ => console.complain(format_args!("should be started with: MARKER run REPEATS PROGRAM..., MARKER count, or MARKER around PATTERN PAGES ROUNDS ORDER...")),
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    sys::exit(REFUSED)
}
