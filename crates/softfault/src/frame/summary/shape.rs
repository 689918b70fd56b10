//! How wide the words of the trees are, so that each CPU's share of the blocks has its own.

/// 8,388,608 blocks (16 TiB) in block groups of 64, and three levels more.
pub(super) const MAX_LEVELS: usize = 5;

/// Blocks in a block group, and block groups in a row of level 1. A CPU's share of the blocks is a whole
/// number of block groups, a few, since a block group that has nothing left costs changes in
/// the level above; and these are a row of level 1, which no other CPU writes, either, if there
/// are 2 to 64 of them. A share is reckoned a little smaller than it is, for the metadata's blocks are nobody's.
pub(super) fn widths_of(nr_blocks: u32, nr_cpus: usize) -> [u32; 2] {
    let share = match nr_cpus as u32 {
        0 | 1 => nr_blocks,
        nr_cpus => (nr_blocks - nr_blocks / 96) / nr_cpus,
    };
    let (share, fewest) = (share.max(1), share.max(1).div_ceil(64));
    if fewest == 1 || fewest > 64 {
        return [share / fewest, 64];
    }
    // A remainder would be in the wrong share: a CPU's would be too small for it, and
    // it would end in another's.
    let nr_block_groups =
        (fewest..=64.min(2 * fewest)).min_by_key(|nr_block_groups| share % nr_block_groups).unwrap_or(fewest);
    [share / nr_block_groups, nr_block_groups]
}

/// First row of each level and the end of the last, number of levels.
pub(super) fn levels_of(nr_blocks: u32, widths: [u32; 2]) -> ([u32; MAX_LEVELS + 1], usize) {
    let mut starts = [0; MAX_LEVELS + 1];
    let mut nr_rows = nr_blocks.div_ceil(widths[0]);
    let mut nr_levels = 0;
    loop {
        starts[nr_levels + 1] = starts[nr_levels] + nr_rows;
        nr_levels += 1;
        if nr_rows <= 1 {
            return (starts, nr_levels);
        }
        nr_rows = nr_rows.div_ceil(widths.get(nr_levels).copied().unwrap_or(64));
    }
}
