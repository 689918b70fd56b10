//! Segments, task state and the interrupt table of each CPU; the registers that
//! `syscall` enters by.

use super::cpu::{self, MAX_CPUS, STACK_BYTES};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};
use x86_64::VirtAddr;
use x86_64::instructions::tables::load_tss;
use x86_64::registers::model_specific::{KernelGsBase, LStar, SFMask, Star};
use x86_64::registers::rflags::RFlags;
use x86_64::registers::segmentation::{CS, SS, Segment};
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, DescriptorFlags, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

unsafe extern "C" {
    static trap_stubs: u8;
    fn syscall_entry();
}

const KERNEL_CS: u16 = 0x10;
const KERNEL_SS: u16 = 0x18;
/// `sysret` takes what follows.
const BEFORE_USER: u16 = 0x20 | 3;
/// No descriptor: where Linux has code of 32 bits, which does not run here.
const NONE: Descriptor = Descriptor::UserSegment(0);

/// One gate of the interrupt table.
#[repr(C)]
#[derive(Clone, Copy)]
struct Gate([u64; 2]);

/// Present, interrupts off on entry; ring 3 may raise `int3` and `into` itself.
fn gate(vector: u64) -> Gate {
    let stub = (&raw const trap_stubs as u64) + vector * 16;
    let stack = match vector {
        2 => 1,
        8 => 2,
        18 => 3,
        _ => 0,
    };
    let ring: u64 = if vector == 3 || vector == 4 { 3 } else { 0 };
    let low = (stub & 0xffff)
        | u64::from(KERNEL_CS) << 16
        | stack << 32
        | (0x8e | ring << 5) << 40
        | (stub >> 16 & 0xffff) << 48;
    Gate([low, stub >> 32])
}

static TSS: [AtomicPtr<TaskStateSegment>; MAX_CPUS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// A stack for `fatal_common`, which finds the address of this CPU's block above the frame.
fn new_fatal_stack() -> VirtAddr {
    let stack = Box::leak(alloc::vec![0u128; STACK_BYTES / 16].into_boxed_slice());
    let top = &mut stack[STACK_BYTES / 16 - 1];
    *top = VirtAddr::from_ptr(cpu::this()).as_u64().into();
    VirtAddr::from_ptr(top)
}

/// Loads tables of its own into the executing CPU.
pub fn init() {
    let mut tss = Box::new(TaskStateSegment::new());
    // NMI, double fault, machine check: the stack in use may be no good, or its
    // red zone in use.
    for slot in 0..3 {
        tss.interrupt_stack_table[slot] = new_fatal_stack();
    }
    let tss = Box::leak(tss);
    TSS[cpu::index()].store(tss, Ordering::Relaxed);

    let gdt = Box::leak(Box::new(GlobalDescriptorTable::<9>::empty()));
    gdt.append(NONE);
    gdt.append(Descriptor::UserSegment(DescriptorFlags::KERNEL_CODE64.bits()));
    gdt.append(Descriptor::UserSegment(DescriptorFlags::KERNEL_DATA.bits()));
    gdt.append(NONE);
    gdt.append(Descriptor::UserSegment(DescriptorFlags::USER_DATA.bits()));
    gdt.append(Descriptor::UserSegment(DescriptorFlags::USER_CODE64.bits()));
    // SAFETY: K3: leaked, so it outlives the CPU's use of it; only
    // `set_kernel_stack` writes it, on its own CPU.
    let task = gdt.append(unsafe { Descriptor::tss_segment_unchecked(tss) });
    gdt.load();

    let idt = Box::leak(Box::new([Gate([0; 2]); 256]));
    (0..256).for_each(|v| idt[v as usize] = gate(v));
    let limit = (size_of::<[Gate; 256]>() - 1) as u16;
    let pointer = DescriptorTablePointer { limit, base: VirtAddr::from_ptr(idt) };
    // SAFETY: K6: the selectors name the descriptors just laid out; each gate
    // leads to a stub of entry.s. Setting %gs by selector would lose its base,
    // so only CS and SS are set.
    unsafe {
        CS::set_reg(SegmentSelector(KERNEL_CS));
        SS::set_reg(SegmentSelector(KERNEL_SS));
        load_tss(task);
        x86_64::instructions::tables::lidt(&pointer);
        Star::write_raw(BEFORE_USER, KERNEL_CS);
    }
    LStar::write(VirtAddr::new(syscall_entry as *const () as u64));
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::ALIGNMENT_CHECK
            | RFlags::NESTED_TASK,
    );
    KernelGsBase::write(VirtAddr::zero());
}

/// Where the next entry from ring 3 on this CPU puts its frame.
pub fn set_kernel_stack(top: u64) {
    cpu::this().kernel_stack.set(top);
    let tss = TSS[cpu::index()].load(Ordering::Relaxed);
    // SAFETY: K3: this CPU's own task state, set by `init`; the CPU reads it only
    // on an entry from ring 3.
    unsafe { (*tss).privilege_stack_table[0] = VirtAddr::new(top) };
}
