//! The steps: which call the first byte means. The answers are not looked at, but what two ways to read have to agree on.

use super::bytes::Bytes;
use super::world::World;
use super::{daemons, objects, spaces};

/// Makes the next step.
pub(super) fn step(world: &mut World<'_>, bytes: &mut Bytes<'_>) {
    match bytes.byte() % 64 {
        0..6 => spaces::map(world, bytes),
        6..8 => objects::map(world, bytes),
        8..10 => spaces::map_huge(world, bytes),
        10..12 => spaces::unmap(world, bytes),
        12..15 => spaces::protect(world, bytes),
        15..18 => spaces::remap(world, bytes),
        18..22 => spaces::advise(world, bytes),
        22..30 => spaces::touch(world, bytes),
        30..33 => spaces::copy(world, bytes),
        33..35 => world.fork(),
        35 => world.exit(),
        36..38 => world.switch(bytes.below(4)),
        38..44 => objects::call(world, bytes),
        44..46 => spaces::pin(world, bytes),
        46 => spaces::unpin(world, bytes),
        47..49 => spaces::lock(world, bytes),
        49 => spaces::sync(world, bytes),
        50 => spaces::heap(world, bytes),
        51..55 => daemons::run(world, bytes),
        55..57 => daemons::set(world, bytes),
        57..59 => daemons::fail(world, bytes),
        59 => spaces::subscribe(world, bytes),
        60..62 => spaces::report(world, bytes),
        62 => spaces::age(world, bytes),
        _ => spaces::limit(world, bytes),
    }
}
