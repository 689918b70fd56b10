//! The things of a run: address spaces, objects, pins and subscriptions.

use super::bytes::Bytes;
use super::setup::IMAGE;
use super::storage::{self, Storage};
use crate::op::PAGE;
use softfault::policy::folio::FolioOrders;
use softfault::{
    AddressSpace, FileId, FrameRange, Order, Pfn, Pin, PinMut, SharedObject, SubpoolLimits, Subscription, Vm,
};
use softfault_host::{CpuGuard, Hosted};

pub(super) type Space<'vm> = AddressSpace<'vm, Hosted>;
pub(super) type Object<'vm> = SharedObject<'vm, Hosted>;

/// Address spaces that a run has at once.
const MOST_SPACES: usize = 4;
/// Kinds of objects, of which a run has one each, if there is room.
pub(super) const NR_OBJECTS: u64 = 8;

/// All of a run.
pub(super) struct World<'vm> {
    pub(super) vm: &'vm Vm<Hosted>,
    pub(super) cpu: &'vm CpuGuard<'vm>,
    pub(super) storage: &'vm Storage,
    file: FileId,
    /// The program that makes the next step.
    current: usize,
    spaces: Vec<Space<'vm>>,
    objects: [Option<Object<'vm>>; NR_OBJECTS as usize],
    pub(super) pins: Vec<Pin<'vm, Hosted>>,
    pub(super) pins_mut: Vec<PinMut<'vm, Hosted>>,
    pub(super) subscriptions: Vec<Subscription<'vm, Hosted>>,
}

impl<'vm> World<'vm> {
    pub(super) fn new(
        vm: &'vm Vm<Hosted>,
        cpu: &'vm CpuGuard<'vm>,
        storage: &'vm Storage,
        file: FileId,
    ) -> Option<World<'vm>> {
        let space = vm.new_space().ok()?;
        let (pins, pins_mut, subscriptions) = (Vec::new(), Vec::new(), Vec::new());
        let objects = [const { None }; NR_OBJECTS as usize];
        Some(World { vm, cpu, storage, file, current: 0, spaces: vec![space], objects, pins, pins_mut, subscriptions })
    }

    pub(super) fn spaces(&self) -> impl Iterator<Item = &Space<'vm>> {
        self.spaces.iter()
    }

    /// The space of the program that makes the step.
    pub(super) fn space(&self) -> &Space<'vm> {
        &self.spaces[self.current]
    }

    pub(super) fn fork(&mut self) {
        if self.spaces.len() < MOST_SPACES
            && let Ok(child) = self.space().fork()
        {
            self.spaces.push(child);
        }
    }

    /// Ends the program. One is left always.
    pub(super) fn exit(&mut self) {
        if self.spaces.len() > 1 {
            drop(self.spaces.swap_remove(self.current));
            self.current = 0;
        }
    }

    pub(super) fn switch(&mut self, to: u64) {
        self.current = to as usize % self.spaces.len();
    }

    /// The object of that kind, made when it is first wanted.
    pub(super) fn object(&mut self, kind: u64) -> Option<&Object<'vm>> {
        self.space_and_object(kind).1
    }

    pub(super) fn space_and_object(&mut self, kind: u64) -> (&Space<'vm>, Option<&Object<'vm>>) {
        let slot = kind as usize % self.objects.len();
        if self.objects[slot].is_none() {
            self.objects[slot] = self.new_object(kind);
        }
        (&self.spaces[self.current], self.objects[slot].as_ref())
    }

    pub(super) fn forget_object(&mut self, kind: u64) {
        self.objects[kind as usize % self.objects.len()] = None;
    }

    fn new_object(&self, kind: u64) -> Option<Object<'vm>> {
        let vm = self.vm;
        let orders = |least, most| FolioOrders::new(Order(least), Order(most)).ok();
        let size_bytes = storage::NR_PAGES * PAGE - 100;
        let huge_bytes = Order::PMD.nr_pages() * PAGE;
        match kind {
            0 => vm.new_shared_object(size_bytes).ok(),
            1 => vm.new_shared_object_of(2 * huge_bytes, orders(0, 9)?).ok(),
            2 => vm.new_file_object(size_bytes, FolioOrders::BASE, self.file).ok(),
            3 => vm.new_file_object(size_bytes, orders(0, 4)?, self.file).ok(),
            4 => vm.new_explicit_object(size_bytes, orders(0, 3)?).ok(),
            5 => vm.new_foreign_object(FrameRange { first: Pfn(IMAGE.first.0 + 8), nr_frames: 96 }).ok(),
            6 => vm.new_hugetlb_object(2 * huge_bytes, Order::PMD).ok(),
            _ => {
                let limits = SubpoolLimits::default().with_most(Some(2)).with_least(1);
                vm.new_hugetlb_subpool(Order::PMD, limits).ok()?.new_object(2 * huge_bytes).ok()
            }
        }
    }

    /// The frame of a page, or any frame.
    pub(super) fn frame(&self, bytes: &mut Bytes<'_>) -> Pfn {
        let (at, any) = (bytes.place(), bytes.byte());
        let there = if any < 192 { self.space().frame_at_rest(at) } else { None };
        there.map_or(Pfn(u32::from(any) * 67), |(pfn, _)| pfn)
    }
}
