//! Checks of a machine before a [`Vm`](crate::Vm) is made, and why it is refused. Nothing here
//! writes: a refused machine is unchanged.

use crate::addr::{BLOCK_FRAMES, PAGE_SIZE, Pfn};
use crate::frame::mem_sections::MEM_SECTION_FRAMES;
use crate::machine::{CpuId, FrameRange, MAX_CPUS, MAX_NODES, Machine, MemoryNode};
use crate::policy::watermark::{MOST_SCALE, Watermarks};
use crate::tunables::Tunables;
use crate::tunables::huge::KnobError;

/// Why there is no [`Vm`](crate::Vm). A range is named by its place in [`Machine::frames`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NewVmError {
    /// [`Machine::frames`] gives no range.
    NoFrames,
    /// A range has no frame.
    EmptyRange {
        /// The range.
        range: usize,
    },
    /// A range does not end below frame 2^32.
    RangeTooHigh {
        /// The range.
        range: usize,
    },
    /// Two ranges have a frame in common.
    Overlap {
        /// The one.
        range: usize,
        /// One before it.
        with: usize,
    },
    /// [`Machine::frame_ptr`] is not linear over all ranges (I1).
    NotLinear {
        /// A frame that does not lie where the first one and its number say.
        pfn: Pfn,
    },
    /// [`Machine::frame_ptr`] is not a multiple of 4,096 (I1).
    NotAligned {
        /// The frame.
        pfn: Pfn,
    },
    /// [`Machine::nr_cpus`] is 0 or above [`MAX_CPUS`].
    BadCpus,
    /// [`Machine::nr_nodes`] is 0 or above [`MAX_NODES`].
    BadNodes,
    /// [`Machine::node_of_range`] gives a node that there is not.
    NoSuchNodeOfRange {
        /// The range.
        range: usize,
        /// The node.
        node: MemoryNode,
    },
    /// [`Machine::node_of_cpu`] gives a node that there is not.
    NoSuchNodeOfCpu {
        /// The CPU.
        cpu: CpuId,
        /// The node.
        node: MemoryNode,
    },
    /// No range has room for the metadata: this many frames in one piece.
    NoRoom {
        /// Frames wanted.
        nr_frames: u64,
    },
    /// The knobs of huge pages cannot be like this.
    BadKnobs(KnobError),
    /// [`Tunables::min_free_kbytes`] is more than half of memory.
    MinFreeTooLarge {
        /// The largest value that is allowed.
        most_kbytes: u64,
    },
    /// [`Tunables::watermark_scale_factor`] is above 3,000.
    BadScaleFactor,
}

impl core::fmt::Display for NewVmError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            NewVmError::NoFrames => f.write_str("Machine::frames: should have a range of frames, has none"),
            NewVmError::EmptyRange { range } => {
                write!(f, "Machine::frames: range {range} should have a frame, has none")
            }
            NewVmError::RangeTooHigh { range } => {
                write!(f, "Machine::frames: range {range} should end at frame {} at most", u32::MAX)
            }
            NewVmError::Overlap { range, with } => {
                write!(f, "Machine::frames: ranges {with} and {range} should have no frame in common")
            }
            NewVmError::NotLinear { pfn } => {
                write!(f, "Machine::frame_ptr: should be linear over all ranges, and {pfn:?} lies elsewhere")
            }
            NewVmError::NotAligned { pfn } => {
                write!(f, "Machine::frame_ptr: should be a multiple of {PAGE_SIZE}, is not for {pfn:?}")
            }
            NewVmError::BadCpus => write!(f, "Machine::nr_cpus: should be 1 to {MAX_CPUS}"),
            NewVmError::BadNodes => write!(f, "Machine::nr_nodes: should be 1 to {MAX_NODES}"),
            NewVmError::NoSuchNodeOfRange { range, node } => {
                write!(f, "Machine::node_of_range: should be below nr_nodes, is {} for range {range}", node.0)
            }
            NewVmError::NoSuchNodeOfCpu { cpu, node } => {
                write!(f, "Machine::node_of_cpu: should be below nr_nodes, is {} for CPU {}", node.0, cpu.0)
            }
            NewVmError::NoRoom { nr_frames } => {
                write!(f, "Machine::frames: one range should have room for {nr_frames} frames of metadata")
            }
            NewVmError::BadKnobs(error) => write!(f, "tunables.thp: {error}"),
            NewVmError::MinFreeTooLarge { most_kbytes } => {
                write!(f, "tunables.min_free_kbytes: should be at most {most_kbytes}, half of memory")
            }
            NewVmError::BadScaleFactor => {
                write!(f, "tunables.watermark_scale_factor: should be at most {MOST_SCALE}, is in ten-thousandths")
            }
        }
    }
}
impl core::error::Error for NewVmError {}

/// Checks the number of CPUs and gives it.
pub(super) fn nr_cpus_of<M: Machine>(machine: &M) -> Result<usize, NewVmError> {
    Some(machine.nr_cpus()).filter(|nr| (1..=MAX_CPUS).contains(nr)).ok_or(NewVmError::BadCpus)
}

/// Checks the ranges, each alone and with those before it, and gives the number of the
/// frame after the last.
pub(super) fn span_of(ranges: &[FrameRange]) -> Result<u64, NewVmError> {
    for (i, r) in ranges.iter().enumerate() {
        if r.nr_frames == 0 {
            return Err(NewVmError::EmptyRange { range: i });
        }
        if r.end() > u64::from(u32::MAX) {
            return Err(NewVmError::RangeTooHigh { range: i });
        }
        let meets = |o: &FrameRange| u64::from(r.first.0) < o.end() && u64::from(o.first.0) < r.end();
        if let Some(with) = ranges[..i].iter().position(meets) {
            return Err(NewVmError::Overlap { range: i, with });
        }
    }
    ranges.iter().map(FrameRange::end).max().ok_or(NewVmError::NoFrames)
}

/// Memory in blocks, holes apart.
pub(super) fn nr_blocks_of(ranges: &[FrameRange]) -> u64 {
    ranges.iter().map(|r| r.nr_frames).sum::<u64>().div_ceil(BLOCK_FRAMES)
}

/// The end of the sections that may be added later.
pub(super) fn span_at_most<M: Machine>(machine: &M) -> u64 {
    machine.nr_frames_at_most().min(u32::MAX.into()) & !(MEM_SECTION_FRAMES - 1)
}

/// Checks the node of each range and CPU.
pub(super) fn check_nodes<M: Machine>(machine: &M) -> Result<(), NewVmError> {
    let nr_nodes = machine.nr_nodes();
    if !(1..=MAX_NODES).contains(&nr_nodes) {
        return Err(NewVmError::BadNodes);
    }
    let is_none = |node: &MemoryNode| usize::from(node.0) >= nr_nodes;
    let ranges = (0..machine.frames().len()).map(|range| (range, machine.node_of_range(range)));
    if let Some((range, node)) = ranges.into_iter().find(|(_, node)| is_none(node)) {
        return Err(NewVmError::NoSuchNodeOfRange { range, node });
    }
    let cpus = (0..machine.nr_cpus()).map(|id| CpuId(id as u16)).map(|cpu| (cpu, machine.node_of_cpu(cpu)));
    match cpus.into_iter().find(|(_, node)| is_none(node)) {
        Some((cpu, node)) => Err(NewVmError::NoSuchNodeOfCpu { cpu, node }),
        None => Ok(()),
    }
}

/// Frames that can be given: all but the metadata and frame 0.
pub(super) fn nr_usable(ranges: &[FrameRange], meta: &FrameRange) -> u64 {
    let nr_frames: u64 = ranges.iter().map(|r| r.nr_frames).sum();
    let has_frame_0 = ranges.iter().any(|r| r.holds(0)) && !meta.holds(0);
    nr_frames - meta.nr_frames - u64::from(has_frame_0)
}

/// Checks the knobs of the watermarks, and gives these.
pub(super) fn watermarks_of(tunables: &Tunables, nr_pages: u64) -> Result<Watermarks, NewVmError> {
    let (min_free, scale) = (tunables.min_free_kbytes, tunables.watermark_scale_factor);
    let most_kbytes = Watermarks::kbytes(nr_pages / 2);
    if min_free.is_some_and(|kbytes| kbytes > most_kbytes) {
        return Err(NewVmError::MinFreeTooLarge { most_kbytes });
    }
    if scale > MOST_SCALE {
        return Err(NewVmError::BadScaleFactor);
    }
    Ok(Watermarks::of(nr_pages, min_free, scale))
}

/// Looks at both ends of each range. Frames of two ranges that touch are cleared, copied
/// and mapped as one piece, so that a wrong address there is somebody else's memory (I1).
pub(super) fn check_linear<M: Machine>(machine: &M) -> Result<(), NewVmError> {
    let frame_0 = |pfn: Pfn| machine.frame_ptr(pfn).addr().wrapping_sub(pfn.0 as usize * PAGE_SIZE as usize);
    let mut origin = None;
    for range in machine.frames() {
        for pfn in [range.first, Pfn((range.end() - 1) as u32)] {
            if !frame_0(pfn).is_multiple_of(PAGE_SIZE as usize) {
                return Err(NewVmError::NotAligned { pfn });
            }
            if *origin.get_or_insert(frame_0(pfn)) != frame_0(pfn) {
                return Err(NewVmError::NotLinear { pfn });
            }
        }
    }
    Ok(())
}
