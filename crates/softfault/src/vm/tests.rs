//! Machines that name frames which cannot be, or too few of them.

use super::{NewVmError, Vm};
use crate::testing::without_memory;
use crate::tunables::Tunables;

#[test]
fn bad_frames_are_refused_before_any_is_touched() {
    let cases: [&[(u32, u64)]; 9] = [
        &[],
        &[(0, 0)],
        &[(0, 64), (63, 64)],
        &[(64, 64), (0, 65)],
        &[(0, 1024), (512, 1)],
        &[(5, 100), (5, 100)],
        &[(u32::MAX, 1)],
        &[(0, 1 << 32)],
        &[(1 << 20, u64::MAX)],
    ];
    for frames in cases {
        assert_eq!(
            Vm::new(without_memory(frames), Tunables::default()).err(),
            Some(NewVmError::BadFrames),
            "{frames:?}"
        );
    }
}

/// Memory far above frame 0 has descriptors for all frames below it.
#[test]
fn frames_without_room_for_the_metadata_are_refused_before_any_is_touched() {
    let cases: [&[(u32, u64)]; 4] =
        [&[(0, 3)], &[(1 << 27, 1 << 18)], &[(0x8_0000, 1 << 12)], &[(0, 2), (4, 2), (8, 2)]];
    for frames in cases {
        let refused = Vm::new(without_memory(frames), Tunables::default()).err();
        assert!(matches!(refused, Some(NewVmError::NoRoom { .. })), "{frames:?}: {refused:?}");
    }
}
