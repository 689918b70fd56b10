//! The kernel half of every address space: the direct map and the image, each
//! with the least rights that do. Built once, shared by reference ever after;
//! entries for programs are the subsystem's alone.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::PhysAddr;
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::PhysFrame;

use crate::port::arch::phys::{IMAGE_BASE, direct_map};

/// Entries of a root table that are the kernel's.
const KERNEL_HALF: core::ops::Range<usize> = 256..512;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const HUGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
/// 4 KiB tables for the image: 8 MiB of it.
const NR_IMAGE_TABLES: usize = 4;

#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; 512]>);

// SAFETY: K9: written by `init` on the boot CPU before anyone else runs.
unsafe impl Sync for Table {}

static ROOT: Table = Table::empty();
static DIRECT: Table = Table::empty();
static IMAGE_TOP: Table = Table::empty();
static IMAGE_MIDDLE: Table = Table::empty();
static IMAGE: [Table; NR_IMAGE_TABLES] = [const { Table::empty() }; NR_IMAGE_TABLES];
static ROOT_ADDRESS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
}

impl Table {
    const fn empty() -> Table {
        Table(UnsafeCell::new([0; 512]))
    }
    fn physical(&self) -> u64 {
        self.0.get() as u64 - IMAGE_BASE
    }
    fn set(&self, index: usize, entry: u64) {
        // SAFETY: K9: only `init` calls this, on the boot CPU, once; the bounds
        // are the array's.
        unsafe { (*self.0.get())[index] = entry }
    }
}

fn map_image() {
    let [text, rodata, data, end] =
        [&raw const __text_start, &raw const __rodata_start, &raw const __data_start, &raw const __image_end]
            .map(|p| p as u64);
    assert!((end - IMAGE_BASE) / 4096 <= 512 * NR_IMAGE_TABLES as u64, "the image outgrew its tables");
    for at in (text..end).step_by(4096) {
        let rights = match at {
            _ if at < rodata => PRESENT,
            _ if at < data => PRESENT | NO_EXECUTE,
            _ => PRESENT | WRITABLE | NO_EXECUTE,
        };
        let page = ((at - IMAGE_BASE) / 4096) as usize;
        IMAGE[page / 512].set(page % 512, (at - IMAGE_BASE) | rights);
    }
}

/// Builds the kernel half and begins to use it; boot CPU only, once.
pub fn init() {
    map_image();
    for (i, table) in IMAGE.iter().enumerate() {
        IMAGE_MIDDLE.set(i, table.physical() | PRESENT | WRITABLE);
    }
    IMAGE_TOP.set(510, IMAGE_MIDDLE.physical() | PRESENT | WRITABLE);
    for gib in 0..512 {
        DIRECT.set(gib, (gib as u64) << 30 | PRESENT | WRITABLE | HUGE | NO_EXECUTE);
    }
    ROOT.set(256, DIRECT.physical() | PRESENT | WRITABLE);
    ROOT.set(511, IMAGE_TOP.physical() | PRESENT | WRITABLE);
    ROOT_ADDRESS.store(ROOT.physical(), Ordering::Release);
    load_kernel_root();
}

/// Makes the kernel half all that this CPU sees.
pub fn load_kernel_root() {
    load_root(ROOT_ADDRESS.load(Ordering::Acquire));
}

/// Makes the root table at physical address `root` this CPU's, and drops every
/// translation of the one before.
pub fn load_root(root: u64) {
    let frame = PhysFrame::containing_address(PhysAddr::new(root));
    // SAFETY: K9: each root that is loaded has the kernel half, the same in all.
    unsafe { Cr3::write(frame, Cr3Flags::empty()) }
}

/// Physical address of the root table in use on this CPU.
pub fn current_root() -> u64 {
    Cr3::read().0.start_address().as_u64()
}

/// Gives the empty root table at physical address `root` the kernel half: the
/// only table that the kernel writes for a program, and only this half of it.
pub fn add_kernel_half(root: u64) {
    let table = direct_map(root).cast::<u64>();
    for i in KERNEL_HALF {
        // SAFETY: K9: a root table that no CPU has loaded yet; the index is in
        // the upper half, which the subsystem leaves alone; ROOT is constant now.
        unsafe { table.add(i).write_volatile((*ROOT.0.get())[i]) };
    }
}
