//! Blocks with their summaries, and no allocator around them: for models of what a block's
//! state and the trees over it say (I40).

use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::frame::mem_sections::MEM_SECTION_BLOCK_SHIFT;
use crate::frame::{BLOCK_WORDS, BlockData, BlockPieces, Blocks, Class, Content, Kind, Summary};
use crate::machine::Machine;
use crate::mem::FrameArray;

/// Blocks of which all frames are in use at first.
pub struct FewBlocks {
    blocks: Blocks,
}

impl FewBlocks {
    /// In frames of zeroes from `first` on.
    pub fn over<M: Machine>(machine: &M, first: Pfn, nr_blocks: u32, nr_cpus: usize) -> FewBlocks {
        let summary = Summary::over(machine, first, nr_blocks, nr_cpus);
        let after = Pfn(first.0 + Summary::frames_for(nr_blocks, nr_cpus) as u32);
        let nr = nr_blocks as usize;
        let array = FrameArray::<BlockData>::over(machine, after, 0, nr);
        let nr_sections = BlockPieces::nr_pieces(nr);
        let data = BlockPieces::over(FrameArray::over(machine, after, nr * size_of::<BlockData>(), nr_sections), nr);
        for section in 0..nr_sections {
            data.put(section, &array.part(section << MEM_SECTION_BLOCK_SHIFT, data.len_of(section)));
        }
        let blocks = Blocks::new(data, summary);
        for b in blocks.names().iter() {
            (0..BLOCK_WORDS).for_each(|w| blocks.at(b).init(w, !0, Content::Zero));
            blocks.at(b).tell_of_init();
        }
        FewBlocks { blocks }
    }

    /// Frames come back, some of one word of a bitmap: those of `mask` from `first` on.
    pub fn give(&self, first: u64, mask: u64) {
        let b = BlockId((first / BLOCK_FRAMES) as u32);
        self.blocks.at(b).release((first / 64) as usize % BLOCK_WORDS, mask, Content::Zero);
    }

    /// Takes as many as there are in the word that frame `first` is in.
    pub fn take(&self, first: u64) -> u64 {
        let b = BlockId((first / BLOCK_FRAMES) as u32);
        self.blocks.at(b).claim_some((first / 64) as usize % BLOCK_WORDS, 64).0
    }

    /// Takes one of them that stays where it is.
    pub fn take_fixed(&self, first: u64) -> u64 {
        let b = BlockId((first / BLOCK_FRAMES) as u32);
        self.blocks.at(b).claim_marked((first / 64) as usize % BLOCK_WORDS, 1, Class::Fixed).0
    }

    /// Whether block `b` says that frames in it stay.
    pub fn is_fixed(&self, b: u32) -> bool {
        self.blocks.at(BlockId(b)).class() == Class::Fixed
    }

    /// Somebody found no run in block `b`.
    pub fn lose_runs(&self, b: u32) {
        self.blocks.at(BlockId(b)).lose_runs();
    }

    /// The first block in which a search finds a free frame, or a run of them.
    pub fn found(&self, order: Order) -> Option<u32> {
        let kind = Kind::run(order).unwrap_or(Kind::Any);
        self.blocks.summary.first_in(kind, &self.blocks.names()).map(|b| b.0)
    }

    /// Whether at rest each block's state and the trees deny nothing.
    pub fn are_true(&self) -> bool {
        self.blocks.names().iter().all(|b| self.blocks.at(b).is_told())
    }
}
