//! A program in an address space of the hosted machine, at the speed of this CPU.
//!
//! A page fault is a call of `handle_fault`. The program's stores go straight to the
//! page's frame, which the core's `translate` finds by a walk of the tables, as
//! hardware would.
//!
//! One of the lab's files with `unsafe`:
//! - **L8** a [`Piece`] is memory of one thread: part of a `Mapping`, or frames that
//!   `translate` gave for a private mapping. The thread calls no other function of
//!   the core between that call and the last use of the piece.

use crate::bench::bind;
use crate::error::LabError;
use softfault::machine::Machine;
use softfault::{Access, MapFlags, Order, Prot, Vm};
use softfault_host::{Hosted, Running};
use std::hint::black_box;
use std::ops::Range;

/// Bytes in a page of either system.
pub const PAGE_BYTES: u64 = 4096;
/// The most that is set at once: one huge page.
pub const PIECE_BYTES: u64 = 2 << 20;
/// Where the program's memory begins: aligned for any size of page.
const BASE: u64 = 1 << 40;

/// The byte that [`fill`] writes; not zero, so that it is seen to be the program's.
pub const FILL: u8 = 0x5a;

/// Adjacent bytes.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The first.
    pub at: *mut u8,
    /// How many, a multiple of a page.
    pub len: u64,
}

impl Piece {
    /// Whether the other one begins where this one ends, and both together are not
    /// too long.
    fn is_before(&self, other: &Piece) -> bool {
        self.at.wrapping_add(self.len as usize) == other.at && self.len + other.len <= PIECE_BYTES
    }
}

/// Sets these bytes, as a memset does.
#[inline]
pub fn fill(piece: Piece) {
    // Opaque, or the compiler may join the calls or leave them out.
    let at = black_box(piece.at);
    // SAFETY: L8.
    unsafe { std::ptr::write_bytes(at, FILL, piece.len as usize) };
}

/// Which pieces there are, and how much of it all is in huge pages.
pub struct Mapped {
    /// In the order of their addresses. Frames that are adjacent are one piece: a
    /// memset does not stop at a page's end.
    pub pieces: Vec<Piece>,
    /// The share of the memory that huge pages map, from 0 to 1.
    pub huge_share: f64,
}

/// A CPU in an address space with the program's memory mapped.
pub struct Stage<'a> {
    /// The machine.
    pub machine: &'a Hosted,
    /// The calling thread as a CPU in the address space.
    pub running: &'a Running<'a>,
    nr_pages: u64,
}

/// Where the program's pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagesOf {
    /// Free memory.
    Memory,
    /// The pool of 2 MiB pages, which are promised to the mapping.
    Pool,
}

/// Maps `nr_pages` of private memory in an address space of its own and runs
/// `play` there, as CPU 0.
pub fn on_stage<T>(
    vm: &Vm<Hosted>,
    nr_pages: u64,
    from: PagesOf,
    play: impl FnOnce(&Stage<'_>) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let cpu = bind(vm.machine(), 0)?;
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    let prot = Prot::READ | Prot::WRITE;
    let kind = match from {
        PagesOf::Memory => MapFlags::NORESERVE,
        PagesOf::Pool => MapFlags::HUGETLB,
    };
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED | kind;
    space
        .mmap(BASE, nr_pages * PAGE_BYTES, prot, flags)
        .map_err(|e| LabError::subsystem(format!("mmap of {nr_pages} pages"), e))?;
    let running = cpu.enter(&space).map_err(|e| LabError::subsystem("entering the address space", e))?;
    play(&Stage { machine: vm.machine(), running: &running, nr_pages })
}

impl Stage<'_> {
    /// Addresses of the program's memory.
    pub fn addresses(&self) -> Range<u64> {
        BASE..BASE + self.nr_pages * PAGE_BYTES
    }

    /// The memory that is mapped at `addr`, to the end of that page, and whether
    /// the page is a huge one.
    fn piece(&self, addr: u64) -> Result<(Piece, bool), LabError> {
        let found = self.running.space().translate_at_rest(addr);
        let found = found.ok_or_else(|| LabError::subsystem(format!("{addr:#x} after its fault"), "is not mapped"))?;
        let size = found.order.nr_pages() * PAGE_BYTES;
        let len = (size - addr % size).min(self.addresses().end - addr);
        Ok((Piece { at: self.machine.frame_ptr(found.pfn), len }, found.order >= Order::PMD))
    }

    /// A memset of memory that is not mapped: faults each page in and sets its
    /// bytes.
    pub fn first_touch(&self) -> Result<(), LabError> {
        let mut addr = self.addresses().start;
        while addr < self.addresses().end {
            self.running
                .space()
                .handle_fault(addr, Access::Write)
                .map_err(|e| LabError::subsystem(format!("fault at {addr:#x}"), e))?;
            let (piece, _) = self.piece(addr)?;
            fill(piece);
            addr += piece.len;
        }
        Ok(())
    }

    /// Everything that is mapped now.
    pub fn mapped(&self) -> Result<Mapped, LabError> {
        let (mut pieces, mut huge_bytes, mut addr) = (Vec::<Piece>::new(), 0, self.addresses().start);
        while addr < self.addresses().end {
            let (piece, is_huge) = self.piece(addr)?;
            huge_bytes += if is_huge { piece.len } else { 0 };
            addr += piece.len;
            match pieces.last_mut() {
                Some(last) if last.is_before(&piece) => last.len += piece.len,
                _ => pieces.push(piece),
            }
        }
        Ok(Mapped { pieces, huge_share: huge_bytes as f64 / (self.nr_pages * PAGE_BYTES) as f64 })
    }
}
