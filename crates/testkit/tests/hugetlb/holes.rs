//! Holes in files of a pool: they remove pages that are there, with their claims, and keep what is promised, as Linux 6.18 does.

use super::common::objects::{bytes, content, touch};
use super::common::*;
use super::subpool::subpool;
use super::{AT, HUGE, NORESERVE, Object, counts, free, map, object, with_pool};
use softfault::{Advice, FaultError, MapFlags};

/// The ways to make a hole of these bytes in the file, of which page 0 is mapped at `AT`.
const WAYS: [fn(&World<'_>, &Object<'_>, core::ops::Range<u64>); 3] = [
    |_, file, at| file.discard(at.start / PAGE..at.end / PAGE),
    |w, _, at| w.space.madvise(AT + at.start, at.end - at.start, Advice::Remove).unwrap(),
    |_, file, at| file.zero(at).unwrap(),
];

/// Takes what nobody was promised, and keeps it.
fn take_the_rest<'vm>(w: &World<'vm>) -> Object<'vm> {
    let (free, reserved) = free(w);
    let other = object(w, free - reserved);
    other.allocate(0..(free - reserved) * 512).unwrap();
    other
}

/// Pages that nobody has touched stay promised, beside one that was removed, and in part of a hole.
#[test]
fn h3_a_hole_keeps_what_is_promised() {
    for hole in WAYS {
        with_pool(1, 8, |w| {
            let file = object(w, 4);
            map(w, AT, 4, &file, 0, MapFlags::empty()).unwrap();
            touch(w.space, AT).unwrap();
            assert_eq!(free(w), (7, 3));
            hole(w, &file, 0..4 * HUGE);
            assert_eq!(free(w), (8, 3), "the page went with its claim, and none of the others");
            check(w.vm, &[w.space]);
            let others = take_the_rest(w);
            assert_eq!(touch(w.space, AT), Err(FaultError::NoHugePage), "its claim was the page");
            (1..4).for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
            assert_eq!(free(w), (0, 0));
            drop(others);
            file.set_size_bytes(2 * HUGE);
            assert_eq!(free(w), (7, 0), "a smaller size ends all beyond it");
        });
    }
}

/// A hole that begins and ends within pages: these keep what they have, a page or a claim, and of a page the part is zero.
#[test]
fn h3_a_hole_of_parts_of_pages() {
    for hole in WAYS {
        with_pool(1, 8, |w| {
            let file = object(w, 5);
            map(w, AT, 5, &file, 0, MapFlags::empty()).unwrap();
            for page in [0, 1, 4] {
                file.write(page * HUGE, b"a").unwrap();
                file.write((page + 1) * HUGE - 1, b"z").unwrap();
            }
            assert_eq!(free(w), (5, 2));
            // 0 and 4 in part, 1 as a whole; 2 and 3 are missing.
            hole(w, &file, 5 * PAGE..5 * HUGE - 5 * PAGE);
            assert_eq!((free(w), content(&file, 0), content(&file, HUGE - 1)), ((6, 2), *b"a", [0]));
            assert_eq!((content(&file, 4 * HUGE), content(&file, 5 * HUGE - 1)), ([0], *b"z"));
            // 2 and 3 again, in part.
            hole(w, &file, 2 * HUGE + PAGE..4 * HUGE - PAGE);
            assert_eq!(free(w), (6, 2));
            check(w.vm, &[w.space]);
            let others = take_the_rest(w);
            assert_eq!(touch(w.space, AT + HUGE), Err(FaultError::NoHugePage));
            [2, 3].iter().for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
            drop((others, file));
        });
    }
}

/// Whatever the words are like: in a node that came for the reservation, in one that a fault had brought, or without any node.
#[test]
fn h3_a_hole_in_each_kind_of_node() {
    with_pool(1, 6, |w| {
        let file = object(w, 200);
        // A fault's node, of pages 0 to 63; the next comes with the reservation.
        map(w, AT + 8 * HUGE, 1, &file, 0, NORESERVE).unwrap();
        touch(w.space, AT + 8 * HUGE).unwrap();
        map(w, AT, 4, &file, 62, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (5, 4));
        file.discard(0..u64::MAX);
        assert_eq!(free(w), (6, 4));
        file.discard(62 * 512..66 * 512);
        file.discard(150 * 512..151 * 512);
        check(w.vm, &[w.space]);
        let others = take_the_rest(w);
        (0..4).for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
        assert_eq!(free(w), (0, 0));
        // All of them are there now, and go with their claims.
        file.discard(62 * 512..66 * 512);
        assert_eq!(free(w), (4, 0));
        drop((others, file));
    });
}

/// A private mapping shows a page that is removed, and has another one: both mappings keep the claims of what they have not.
#[test]
fn h3_a_hole_under_a_private_mapping() {
    with_pool(1, 6, |w| {
        let file = object(w, 3);
        map(w, AT, 3, &file, 0, MapFlags::empty()).unwrap();
        file.write(0, b"f").unwrap();
        let part = super::whole(&file);
        w.space.mmap_object(AT + 8 * HUGE, 3 * HUGE, RW, PRIVATE | FIXED, part).unwrap();
        assert_eq!((bytes(w.space, AT + 8 * HUGE), free(w)), (*b"f", (5, 5)));
        w.space.write(AT + 9 * HUGE, b"m").unwrap();
        assert_eq!(free(w), (4, 4));
        file.discard(0..3 * 512);
        assert_eq!(free(w), (6, 5));
        check(w.vm, &[w.space]);
        assert_eq!((bytes(w.space, AT + 9 * HUGE), free(w)), ([0], (5, 4)));
        let others = take_the_rest(w);
        assert_eq!(touch(w.space, AT), Err(FaultError::NoHugePage));
        [1, 2, 8, 10].iter().for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
        assert_eq!(free(w), (0, 0));
        drop((others, file));
    });
}

/// As on Linux a private page goes as a whole, in each process, whether the file has that page or not. Pages that the hole meets in part
/// stay. The owner's place has its claim again, and nobody loses the page to it.
#[test]
fn h3_a_hole_under_private_pages() {
    for hole in WAYS {
        with_pool(1, 8, |w| {
            let file = object(w, 3);
            map(w, AT, 3, &file, 0, NORESERVE).unwrap();
            file.write(HUGE, b"f").unwrap();
            let own = [0, 1, 2].map(|page| AT + (8 + page) * HUGE);
            w.space.mmap_object(own[0], 3 * HUGE, RW, PRIVATE | FIXED, super::whole(&file)).unwrap();
            own.iter().for_each(|at| w.space.write(*at, b"m").unwrap());
            let child = w.space.fork().unwrap();
            assert_eq!(free(w), (4, 0));
            hole(w, &file, 5 * PAGE..3 * HUGE - 5 * PAGE);
            assert_eq!(free(w), (6, 1), "the file's page, and the private one that stood for it");
            check(w.vm, &[w.space, &child]);
            for space in [w.space, &child] {
                assert_eq!(own.map(|at| bytes(space, at)), [*b"m", [0], *b"m"]);
            }
            assert_eq!(free(w), (4, 0));
            hole(w, &file, 0..3 * HUGE);
            assert_eq!((free(w), w.space.rss_pages().anon, child.rss_pages().anon), ((8, 3), 0, 0));
            check(w.vm, &[w.space, &child]);
            let others = take_the_rest(w);
            assert_eq!(touch(&child, own[0]), Err(FaultError::NoHugePage), "no page was taken from it");
            own.iter().for_each(|at| assert_eq!(bytes(w.space, *at), [0]));
            assert_eq!(free(w), (0, 0));
            drop((others, file, child));
        });
    }
}

/// A subpool counts a missing page that stays promised, below its least and above.
#[test]
fn h11_a_hole_in_a_file_of_a_subpool() {
    for least in 0..=4 {
        with_pool(1, 6, |w| {
            let few = subpool(w, Some(4), least);
            let file = few.new_object(4 * HUGE).unwrap();
            map(w, AT, 3, &file, 0, MapFlags::empty()).unwrap();
            touch(w.space, AT).unwrap();
            let unused = least.saturating_sub(3);
            assert_eq!((few.nr_used(), free(w)), (3, (5, 2 + unused)));
            file.discard(0..4 * 512);
            let unused = least.saturating_sub(2);
            assert_eq!((few.nr_used(), free(w)), (2, (6, 2 + unused)));
            check(w.vm, &[w.space]);
            let others = take_the_rest(w);
            [1, 2].iter().for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
            let refused = if unused == 0 { Err(FaultError::NoHugePage) } else { Ok(()) };
            assert_eq!(touch(w.space, AT), refused, "{least}");
            drop((others, few));
            w.space.munmap(AT, 3 * HUGE).unwrap();
            drop(file);
            assert_eq!(counts(w).reserved, 0);
        });
    }
}

/// A size that ends within a page: that page keeps its promise, and those behind it do not.
#[test]
fn h3_a_smaller_size_within_a_page() {
    with_pool(1, 8, |w| {
        let file = object(w, 3);
        map(w, AT, 3, &file, 0, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (8, 3));
        file.set_size_bytes(HUGE + PAGE);
        assert_eq!(free(w), (8, 2), "the page that is cut keeps its promise");
        let others = take_the_rest(w);
        touch(w.space, AT + HUGE).unwrap();
        assert_eq!((touch(w.space, AT + 2 * HUGE), free(w)), (Err(FaultError::BeyondObject), (1, 1)));
        check(w.vm, &[w.space]);
        drop(others);
        file.set_size_bytes(0);
        assert_eq!(free(w), (8, 0));
    });
}
