//! The duties of the first program of Linux: file systems, the arguments, the end.

use crate::console::{Channel, Console};
use crate::packet::End;
use crate::{Args, sys};
use core::arch::asm;
use core::ffi::CStr;
use core::ptr;
use linux_raw_sys::general::{O_DIRECTORY, O_RDONLY, O_RDWR, O_WRONLY};

/// The arguments, each ended by a zero.
pub const ARGUMENTS: &CStr = c"/.softfault/arguments";
/// When to use huge pages, and where Linux is told so.
const HUGE_PAGES: &CStr = c"/.softfault/huge-pages";
const HUGE_PAGES_KNOB: &CStr = c"/sys/kernel/mm/transparent_hugepage/enabled";
/// Linux's defaults, and the reference kernel's: what else it leaves off in a small
/// machine.
const OTHER_KNOBS: [(&CStr, &[u8]); 3] = [
    (c"/sys/kernel/mm/transparent_hugepage/defrag", b"madvise"),
    (c"/sys/kernel/mm/transparent_hugepage/use_zero_page", b"1"),
    (c"/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", b"1"),
];
/// Most bytes of arguments, and most arguments.
const ARGUMENT_BYTES: usize = 1 << 20;
const NR_ARGUMENTS: usize = 1 << 14;
/// QEMU's exit device.
const EXIT_PORT: u16 = 0xf4;
const EXIT_VALUE: u32 = 0x10;

/// Mounts what programs look for.
pub fn become_init() -> Console {
    sys::allow_ports();
    sys::mount(c"proc", c"/proc");
    sys::mount(c"sysfs", c"/sys");
    sys::mount(c"devtmpfs", c"/dev");
    sys::mount(c"tmpfs", c"/dev/shm");
    // A mount would hide files of the archive.
    if is_empty(c"/tmp") {
        sys::mount(c"tmpfs", c"/tmp");
    }
    keep_standard_descriptors();
    set_huge_pages();
    Console::port()
}

/// Linux leaves them off in a small machine, whatever its command line says.
fn set_huge_pages() {
    let asked = sys::open(HUGE_PAGES, O_RDONLY);
    let mut text = [0; 16];
    let len = sys::read(asked, &mut text);
    sys::close(asked);
    set_knob(HUGE_PAGES_KNOB, &text[..len]);
    OTHER_KNOBS.iter().for_each(|(knob, value)| set_knob(knob, value));
}

fn set_knob(file: &CStr, value: &[u8]) {
    let knob = sys::open(file, O_WRONLY);
    sys::write(knob, value);
    sys::close(knob);
}

/// 0 to 2 are taken, so that no file of the probe's gets one of these numbers.
fn keep_standard_descriptors() {
    loop {
        let descriptor = sys::open(c"/dev/null", O_RDWR);
        if !(0..=2).contains(&descriptor) {
            return sys::close(descriptor);
        }
    }
}

fn is_empty(folder: &CStr) -> bool {
    let descriptor = sys::open(folder, O_RDONLY | O_DIRECTORY);
    if descriptor < 0 {
        return true;
    }
    let mut buffer = [0; 512];
    let len = sys::entries(descriptor, &mut buffer);
    sys::close(descriptor);
    // `.` and `..` take 24 bytes each.
    len <= 48
}

/// Reads the arguments into memory that stays.
pub fn arguments() -> Option<Args> {
    let descriptor = sys::open(ARGUMENTS, O_RDONLY);
    if descriptor < 0 {
        return None;
    }
    let texts = sys::map(ARGUMENT_BYTES)?;
    let list = sys::map(NR_ARGUMENTS * size_of::<usize>())?.cast::<*const u8>();
    // SAFETY: L7: both mappings are new, and stay; the last byte remains zero.
    let bytes = unsafe { core::slice::from_raw_parts_mut(texts, ARGUMENT_BYTES - 1) };
    let mut len = 0;
    loop {
        match sys::read(descriptor, &mut bytes[len..]) {
            0 => break,
            n => len += n,
        }
    }
    sys::close(descriptor);
    let texts = bytes[..len].split_inclusive(|b| *b == 0);
    for (at, text) in texts.take(NR_ARGUMENTS - 1).enumerate() {
        // SAFETY: L7: there is one place for the null pointer.
        unsafe { ptr::write(list.add(at), text.as_ptr()) };
    }
    // SAFETY: L7: nobody changes list or texts from here on.
    Some(unsafe { Args::at(list) })
}

/// Says that all is well and turns the machine off: by QEMU's exit device, which
/// takes no time, else by Linux.
pub fn power_off(console: &Console) -> ! {
    console.send(Channel::End, &End::Exit(0).to_bytes());
    // SAFETY: L7: iopl(2) came before; QEMU exits.
    unsafe { asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") EXIT_VALUE, options(nostack, nomem)) };
    sys::power_off();
    sys::exit(0)
}
