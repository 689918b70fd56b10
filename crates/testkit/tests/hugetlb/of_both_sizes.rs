//! Common parts of the tests of pages of 2 MiB and of 1 GiB.

use super::AT;
use super::common::*;
use softfault::{Advice, Errno, MmapError, Notice, PageRange};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Forks while the k-th allocation fails, for each k, until a child comes, which `see` is shown. Nothing is kept: `free` pages
/// are as many as before. Returns how many attempts were refused.
pub fn fork_refusing_each_frame(w: &World<'_>, free: fn(&World<'_>) -> (u64, u64), see: &dyn Fn(&Space<'_>)) -> u64 {
    for k in 0.. {
        let before = free(w);
        w.vm.fail_allocation(Some(k));
        let child = w.space.fork();
        w.vm.fail_allocation(None);
        let is_ok = child.is_ok();
        if let Ok(child) = child {
            see(&child);
            check(w.vm, &[w.space, &child]);
        }
        assert_eq!(free(w), before, "the {k}th");
        check(w.vm, &[w.space]);
        if is_ok {
            return k;
        }
    }
    unreachable!("a fork needs fewer frames than can be counted")
}

/// H1 and H2: of a pool of one page, which is mapped at `AT`, `drop` and touched by all, while `map` wants another one.
pub fn last_page_is_touched_by_all(
    w: &World<'_>,
    at: u64,
    nr: usize,
    drop: &dyn Fn(),
    map: fn(&Space<'_>) -> Result<u64, MmapError>,
) {
    let toucher = |running: &Running<'_>, stop: &AtomicBool| {
        while !stop.load(Relaxed) {
            running.store(at, &[1u8]).unwrap();
        }
    };
    let third = |running: &Running<'_>, stop: &AtomicBool| {
        while !stop.load(Relaxed) {
            assert_eq!(map(running.space()), Err(MmapError::NoHugePages));
        }
    };
    w.race(&[&toucher, &toucher, &third], |running| {
        for _ in 0..nr {
            drop();
            running.store(AT, &[1u8]).unwrap();
        }
    });
}

/// Returns the errors of calls that would cut a page of `page_bytes`, or move a part of it to `to`.
pub fn refusals_to_cut(space: &Space<'_>, from: u64, len: u64, (page_bytes, to): (u64, u64)) -> [Errno; 7] {
    [
        space.munmap(from, len).unwrap_err().errno(),
        space.mprotect(from, len, READ).unwrap_err().errno(),
        space.madvise(from, len, Advice::Random).unwrap_err().errno(),
        space.mmap(from, len, RW, PRIVATE | FIXED).unwrap_err().errno(),
        space.madvise(from, len, GUARD_INSTALL).unwrap_err().errno(),
        space.madvise(from, len, Advice::Collapse).unwrap_err().errno(),
        space.mremap(from + PAGE, len, page_bytes, MAYMOVE | MREMAP_FIXED, to).unwrap_err().errno(),
    ]
}

/// The ranges whose change subscribers are told of, from now on.
pub fn told_ranges(w: &World<'_>) -> Arc<Mutex<Vec<PageRange>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = told.clone();
    let push = move |_, notice: &Notice| {
        if let Notice::Start { range, .. } = notice {
            to.lock().unwrap().push(*range);
        }
        false
    };
    assert!(w.vm.machine().on_notice(Box::new(push)).is_ok());
    told
}
