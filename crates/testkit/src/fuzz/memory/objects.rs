//! Steps on objects: of memory, of the file, explicit, foreign, and of the pool.

use super::bytes::{Bytes, HUGE};
use super::spaces::flags;
use super::storage::NR_PAGES;
use super::world::{NR_OBJECTS, Object, World};
use crate::op::PAGE;
use softfault::{FillError, ObjectPart, Prot, Vm};
use softfault_host::Hosted;

pub(super) fn map(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    let kind = bytes.below(NR_OBJECTS);
    let at = if kind < 6 && kind != 1 { bytes.any_place() } else { bytes.huge_place() };
    let (len, flags, how) = (bytes.length(), flags(bytes), bytes.byte());
    let prot = if how & 3 == 0 { Prot::READ } else { Prot::READ | Prot::WRITE };
    let page = u64::from(how >> 3) * if kind < 6 { 1 } else { 512 };
    let (space, Some(object)) = world.space_and_object(kind) else { return };
    let part = ObjectPart::new(object)
        .with_offset_bytes(page * PAGE)
        .with_may_write(how & 7 != 4)
        .with_grows(how & 7 == 5 && kind >= 6);
    _ = space.mmap_object(at, len, prot, flags, part);
}

pub(super) fn call(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    let (kind, what) = (bytes.below(NR_OBJECTS), bytes.byte());
    if what == 255 {
        return world.forget_object(kind);
    }
    let vm = world.vm;
    let Some(object) = world.object(kind) else { return };
    if what % 16 < 8 { contents(object, what, bytes) } else { pages(vm, object, what, bytes) }
}

/// Calls that read and change what the object has.
fn contents(object: &Object<'_>, what: u8, bytes: &mut Bytes<'_>) {
    let first = bytes.page();
    let nr = bytes.below(64);
    let mut buffer = [what; 9000];
    let part = &mut buffer[..[1, 100, 4096, 9000][usize::from(what >> 4) % 4]];
    match what % 16 {
        0 | 1 => _ = object.write(first * PAGE + nr * 64, part),
        2 => _ = object.read(first * PAGE + nr * 64, part),
        3 | 4 => object.discard(first..first + nr),
        5 => _ = object.zero(first * PAGE + 9..(first + nr) * PAGE + 99),
        6 => object.set_size_bytes(nr * PAGE + first),
        _ => object.set_size_bytes([NR_PAGES * PAGE - 7, HUGE, 2 * HUGE, 0][(nr % 4) as usize]),
    }
}

/// Calls that move pages in and out.
fn pages(vm: &Vm<Hosted>, object: &Object<'_>, what: u8, bytes: &mut Bytes<'_>) {
    let first = bytes.page();
    let range = first..first + bytes.below(64);
    match what % 16 {
        8 => _ = object.allocate(range),
        9 => _ = object.write_back(range),
        10 => _ = object.install(first, &[what; 9000]),
        11 => _ = object.evict(range),
        12 => {
            // A fill that the embedder begins and ends.
            let fill = if what & 16 != 0 { object.begin_install(range).ok() } else { object.begin_evict(first).ok() };
            let result = if what & 32 != 0 { Ok(()) } else { Err(FillError) };
            _ = fill.map(|fill| vm.filled(fill, result));
        }
        13 if what & 16 != 0 => _ = object.reserve(range),
        13 => _ = object.extend(range),
        14 if what & 16 != 0 => object.mark_untouched(),
        14 => {
            let mut end = 0;
            object.touched(range, &mut |run| {
                assert!(run.start >= end, "runs in order");
                end = run.end;
            });
        }
        15 if what & 16 != 0 => _ = object.free_tail_descs(first / 512 * 512),
        15 if what & 32 != 0 => _ = object.restore_tail_descs(first / 512 * 512),
        _ => {
            _ = (
                object.nr_resident_pages(),
                object.next_resident(range),
                object.nr_mapped_pages(),
                object.nr_writable_pages(),
            )
        }
    }
}
