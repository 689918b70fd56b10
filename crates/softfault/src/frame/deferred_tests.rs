//! Memory that is not zero is laid out when it is needed: all of it can be had, and nobody counts it twice.

use crate::addr::Pfn;
use crate::frame::Fill;
use crate::frame::mem_sections::MEM_SECTION_FRAMES;
use crate::machine::FrameRange;
use crate::mem;
use crate::space::Vm;
use crate::sync::Word;
use crate::testing::{Plain, from_frame, on_relax};
use crate::tunables::Tunables;
use core::cell::Cell;
use std::boxed::Box;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

const NR_SECTIONS: u64 = 20;
const HOLE: FrameRange = FrameRange { first: Pfn((17 * MEM_SECTION_FRAMES) as u32), nr_frames: MEM_SECTION_FRAMES };

/// With a hole in it, and a part of a section at the end. Where the metadata will lie is written all over.
fn dirty() -> Vm<Plain> {
    let nr = NR_SECTIONS * MEM_SECTION_FRAMES;
    let ranges = [(0, 17 * MEM_SECTION_FRAMES), ((18 * MEM_SECTION_FRAMES) as u32, 2 * MEM_SECTION_FRAMES - 5000)];
    let mut machine = from_frame(0, nr, &ranges);
    machine.is_zero = false;
    machine.addable = HOLE;
    machine.nr_frames_at_most = nr;
    let in_deferred = (16 * MEM_SECTION_FRAMES) as u32 + 7;
    for pfn in (1..6000).chain([in_deferred]) {
        let words: &[Word; 512] = mem::view(&machine, Pfn(pfn), 0);
        words.iter().for_each(|word| word.set(0xaaaa_aaaa_aaaa_aaaa));
    }
    Vm::new(machine, Tunables::default()).unwrap()
}

fn check(vm: &Vm<Plain>) {
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    vm.check_free_in_test().unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, vm.vmstat().nr_total_pages);
}

#[test]
fn idle_cpus_lay_out_one_section_after_the_other() {
    let vm = dirty();
    check(&vm);
    let there = || vm.frames.blocks.there().count();
    // Sections 16 and 18: the last one is not whole.
    for nr_left in [2, 1] {
        assert_eq!(vm.frames.deferred.nr_pages(), nr_left * MEM_SECTION_FRAMES);
        let before = there();
        assert!(vm.initialise_section());
        assert_eq!(there(), before + 64);
        check(&vm);
    }
    assert!(!vm.initialise_section());
    check(&vm);
}

/// A count of memory while a section comes counts no frame twice.
#[test]
fn a_section_that_comes_is_counted_once() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(dirty()));
    let nr_looks = Rc::new(Cell::new(0));
    let looks = nr_looks.clone();
    on_relax(move || {
        looks.set(looks.get() + 1);
        let stat = vm.vmstat();
        assert_eq!(stat.nr_free_pages, stat.nr_total_pages);
    });
    while vm.initialise_section() {}
    on_relax(|| ());
    assert!(nr_looks.get() > 1);
}

/// The hole below a section that is added leads to it, and is a section that comes later still.
#[test]
fn sections_come_after_one_above_them_was_added() {
    let vm = dirty();
    not_in_time(&vm);
    vm.add_memory(HOLE).unwrap();
    assert_eq!(vm.frames.deferred.nr_pages(), 2 * MEM_SECTION_FRAMES);
    while vm.initialise_section() {}
    assert_eq!(vm.frames.wrong_section(), None);
    assert_eq!(vm.vmstat().nr_free_pages, vm.frames.nr_free_in_blocks());
}

/// Blocks that are begun bring sections before memory runs out.
#[test]
fn a_section_comes_in_time() {
    let vm = dirty();
    let nr_left = vm.frames.deferred.nr_pages();
    let pfn = vm.obtain(Fill::Raw).unwrap();
    assert_eq!(vm.frames.deferred.nr_pages(), nr_left - MEM_SECTION_FRAMES);
    vm.give_back(pfn, Fill::Raw);
    check(&vm);
}

/// The next block that is begun brings no section.
fn not_in_time(vm: &Vm<Plain>) {
    vm.frames.deferred.nr_begun.set(1);
}

/// A CPU that takes all frames takes these, too, each once; huge pages first, then single frames.
#[test]
fn an_allocation_is_not_refused_before_all_is_laid_out() {
    for takes_huge in [true, false] {
        let vm = dirty();
        let nr_free = vm.vmstat().nr_free_pages;
        let huge: Vec<_> = core::iter::from_fn(|| (not_in_time(&vm), vm.obtain_huge().ok()).1).collect();
        assert_eq!(vm.frames.deferred.nr_pages(), 0);
        huge.iter().for_each(|huge| vm.give_back_huge(huge.first, huge.content));
        check(&vm);
        let vm = if takes_huge { vm } else { dirty() };
        let single: Vec<Pfn> = core::iter::from_fn(|| (not_in_time(&vm), vm.obtain(Fill::Raw).ok()).1).collect();
        assert_eq!((single.len() as u64, vm.frames.deferred.nr_pages()), (nr_free, 0));
        let mut is_taken = vec![false; vm.nr_frames() as usize];
        assert!(single.iter().all(|pfn| !core::mem::replace(&mut is_taken[pfn.0 as usize], true)));
        single.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
        check(&vm);
    }
}
