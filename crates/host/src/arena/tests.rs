//! Bytes of frames, aligned and not.

use super::Arena;
use softfault::addr::Pfn;

#[test]
fn any_part_of_a_frame_reads_back() {
    let arena = Arena::new(1 << 20, 0, false).unwrap();
    assert_eq!(arena.nr_frames(), 256);
    assert!(arena.frame_ptr(Pfn(0)).addr().is_multiple_of(2 << 20));
    let mut shadow = vec![0u8; 4096];
    for (round, (offset, len)) in
        [(0, 4096), (1, 7), (3, 2), (4095, 1), (4090, 6), (5, 64), (8, 8), (7, 9), (0, 0), (4096, 0), (13, 4083)]
            .into_iter()
            .enumerate()
    {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + round) as u8).collect();
        arena.store(Pfn(255), offset, &bytes);
        shadow[offset..offset + len].copy_from_slice(&bytes);
        let mut whole = vec![0; 4096];
        arena.load(Pfn(255), 0, &mut whole);
        assert_eq!(whole, shadow);
        let mut part = vec![0; len];
        arena.load(Pfn(255), offset, &mut part);
        assert_eq!(part, bytes);
    }
    let mut other = vec![1; 4096];
    arena.load(Pfn(254), 0, &mut other);
    assert!(other.iter().all(|b| *b == 0), "the neighbour is untouched");
}

#[test]
#[should_panic(expected = "machine check")]
fn bytes_past_a_frame_are_refused() {
    Arena::new(1 << 20, 0, false).unwrap().store(Pfn(0), 4090, &[0; 7]);
}

#[test]
fn frames_past_the_end_are_refused() {
    let arena = Arena::new(1 << 20, 0, false).unwrap();
    assert_eq!(arena.frame_ptr(Pfn(255)).addr() - arena.frame_ptr(Pfn(0)).addr(), 255 * 4096);
    for pfn in [256, 257, u32::MAX] {
        let asked = || arena.frame_ptr(Pfn(pfn)).addr();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(asked)).is_err(), "frame {pfn}");
        let word = || arena.word(Pfn(pfn), 0).load(std::sync::atomic::Ordering::Relaxed);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(word)).is_err(), "frame {pfn}");
    }
}

#[test]
fn many_machines_fit_in_one_process() {
    let arenas: Vec<Arena> = (0..32).map(|_| Arena::new(1 << 30, 0, true).unwrap()).collect();
    for (i, arena) in arenas.iter().enumerate() {
        arena.word(Pfn(9), 8).store(i as u64, std::sync::atomic::Ordering::Relaxed);
    }
    for (i, arena) in arenas.iter().enumerate() {
        assert_eq!(arena.word(Pfn(9), 8).load(std::sync::atomic::Ordering::Relaxed), i as u64);
    }
}
