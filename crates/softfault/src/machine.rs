//! The interface between the core and its embedder.
//!
//! A port implements [`Machine`] once; the core is generic over it, so there is
//! no dynamic dispatch in a fault. `examples/port_in_100_lines.rs` is the
//! smallest one that works.

use crate::addr::{Pfn, SwapSlot};
use crate::notify::notice::Notice;
use crate::policy;
use crate::policy::fault::{FaultPlan, FaultQuestion};
use crate::sync::Word;
use crate::table::format::Format;
use core::ops::Range;

pub(crate) mod ask;
mod copy;
mod cpu_set;
pub(crate) mod file;
mod file_write;
mod flush;
mod hole;
mod lock_kind;
mod range;
mod swap;
mod tick;

pub use copy::FrameCopy;
pub use cpu_set::{CpuId, CpuSet, MAX_CPUS};
pub use file::{FileFill, FileId, FillError, Filling, ForeignFill, StorageId};
pub use file_write::{FileWrite, ForeignWrite, StoreRefused, WriteError, Writing};
pub use flush::{Flush, SpaceTag};
pub use hole::{HoleRefused, ObjectHole};
pub use lock_kind::LockKind;
pub use range::{FrameRange, MAX_NODES, MemoryNode};
pub use swap::SwapError;
pub use tick::Tick;

/// The machine that the embedder provides.
///
/// # Instruction caches
///
/// The core assumes that an instruction fetch sees the stores that happened before it, as on x86
/// and on Arm with `CTR_EL0.DIC` and `IDC`. It clears and copies frames by stores, and makes them
/// executable without telling the machine. `docs/design.md` says what a port to other CPUs would
/// need.
///
/// # Callers
///
/// Methods that name memory to be read or written are `unsafe` to call: a [`Vm`](crate::Vm) calls them, and promises what
/// each says (I63). Safe code reaches a machine by [`Vm::machine`](crate::Base::machine), and could otherwise name any frame.
///
/// # Safety
///
/// The implementor promises invariants I1 to I4, I42 and M1 to M9 of
/// `docs/invariants.md`:
/// - **I1** [`frame_ptr`](Machine::frame_ptr) gives, for every frame of
///   [`frames`](Machine::frames), a pointer to 4,096 bytes of memory that is
///   readable, writable, aligned to 4,096 and the same on every call. The map is
///   linear, within a range and across ranges: frames whose numbers differ by `n` are
///   `4096 * n` bytes apart. [`Vm::new`](crate::Vm::new) refuses ranges of which
///   that is not true. One pointer, moved, may be used for all frames: they have one provenance. The
///   frames belong to this value of the type: no other value names them while this one lives, and nobody but the subsystem, and the programs that it maps them for, uses them.
///   They are zero when [`begin`](Machine::begin) returns `true`;
/// - **I2** [`this_cpu`](Machine::this_cpu) is below
///   [`nr_cpus`](Machine::nr_cpus), no two threads of execution have the same
///   number at one time, and it does not change inside a call into the core
///   except in [`park`](Machine::park), in [`relax`](Machine::relax), in
///   [`swap_out`](Machine::swap_out), in [`swap_in`](Machine::swap_in), in [`fill`](Machine::fill),
///   [`write_back`](Machine::write_back), [`may_store`](Machine::may_store) and
///   [`punch_hole`](Machine::punch_hole), and in closures that the caller passed. None of these
///   changes it while [`notify`](Machine::notify) runs on the CPU;
/// - **I3** after [`heavy_barrier`](Machine::heavy_barrier), each CPU of the set
///   has executed a full memory barrier since the call began, or is not running;
/// - **I4** after [`shootdown`](Machine::shootdown), no CPU of the set starts an
///   access with a translation that it had read before the call;
/// - **I42** all CPUs have the instructions for zeroing memory that the one has on which
///   [`Vm::new`](crate::Vm::new) or [`calibrate`](crate::clear::calibrate) is called;
///   where [`vector_registers`](Machine::vector_registers) says `true`, vector registers
///   are the caller's on all of them;
/// - **M1** no callback calls back into the core, with three exceptions: in
///   [`notify`](Machine::notify), the calls that are listed there; in
///   [`punch_hole`](Machine::punch_hole), [`ObjectHole::discard`]; in
///   [`relax`](Machine::relax), [`park`](Machine::park), [`fill`](Machine::fill), [`write_back`](Machine::write_back),
///   [`may_store`](Machine::may_store) and [`punch_hole`](Machine::punch_hole), other threads of execution,
///   which may make any call. Any other call in `notify` panics before it has changed or
///   taken anything;
/// - **M2** [`frame_ptr`](Machine::frame_ptr), [`copy_frame`](Machine::copy_frame), [`this_cpu`](Machine::this_cpu),
///   [`nr_cpus`](Machine::nr_cpus), [`marks_entries`](Machine::marks_entries),
///   [`fault_policy`](Machine::fault_policy) and [`tick`](Machine::tick) are called in
///   sections, [`entered`](Machine::entered) at
///   the edge of one: they neither wait nor answer other CPUs;
/// - **M3** a CPU that waits in [`relax`](Machine::relax), [`park`](Machine::park),
///   [`heavy_barrier`](Machine::heavy_barrier), [`shootdown`](Machine::shootdown),
///   [`swap_out`](Machine::swap_out), [`swap_in`](Machine::swap_in), [`fill`](Machine::fill),
///   [`write_back`](Machine::write_back), [`may_store`](Machine::may_store) or [`punch_hole`](Machine::punch_hole)
///   answers the requests of others meanwhile. An answer is given outside sections
///   only, if [`shootdown_is_grace`](Machine::shootdown_is_grace);
/// - **M4** [`park`](Machine::park) returns after an [`unpark`](Machine::unpark) of the
///   word that follows its change;
/// - **M5** a CPU loads the root of a space only while it is
///   [active](crate::AddressSpace::activate) in it: activation first, then the root;
///   another root first, then deactivation, with no translation left;
/// - **M6** the embedder writes only those entries of a root table that lie above the
///   user part of the format, before the root is first loaded. The core neither reads
///   nor frees what they name;
/// - **M7** a walker of the embedder's own (an emulated TLB, a second table) reads entries as whole
///   words while its CPU is active in the space, changes them only as
///   [`used`](crate::table::format::used) does, by compare-and-swap in a present leaf, and drops
///   what it keeps in [`shootdown`](Machine::shootdown). A frame that
///   [`Walker::translate`](crate::Walker::translate) gave is used through
///   [`frame_ptr`](Machine::frame_ptr) only while the CPU is active and the translation [is
///   current](crate::Walker::is_current), and no such access is in progress when `shootdown`
///   returns;
/// - **M8** no callback unwinds: an operation that stops half-way leaves locks and
///   entries as they are, and nothing may use the subsystem afterwards;
/// - **M9** [`copy_frame`](Machine::copy_frame) writes to `to` and nowhere else, by stores that precede what the CPU
///   stores afterwards. `to` has the bytes of `from` where the answer is `Done`.
#[allow(unsafe_code)] // the promises are those of the implementor and of `machine/ask.rs`
pub unsafe trait Machine: Sized + Sync {
    /// The page-table format.
    type Format: Format;

    /// The memory that is the subsystem's, in any order, without overlap.
    /// The same on every call. Ranges may touch: the core joins their frames.
    fn frames(&self) -> &[FrameRange];

    /// One past the highest frame that may be added; constant. Each 128 MiB below it costs a few words.
    fn nr_frames_at_most(&self) -> u64 {
        0
    }
    /// Hands memory to the core, as I1 says, until [`frames_removed`](Self::frames_removed): see
    /// [`add_memory`](crate::Memory::add_memory). Returns whether all of it is zero; `None` if the machine has
    /// no such memory.
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine, and has no frame of the range, which ends within the limit.
    unsafe fn add_frames(&self, _range: &FrameRange) -> Option<bool> {
        None
    }
    /// Returns memory to the machine. No CPU has a translation of it.
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine. Nobody uses the frames any more.
    unsafe fn frames_removed(&self, _range: &FrameRange) {}

    /// Whether these foreign frames can be read while the [`Vm`](crate::Vm) lives.
    ///
    /// # Safety
    ///
    /// As [`add_frames`](Self::add_frames).
    unsafe fn foreign_frames(&self, _range: &FrameRange) -> bool {
        false
    }

    /// Number of memory nodes, at most [`MAX_NODES`]; constant. A CPU searches its node for frames
    /// first; any answer is sound.
    fn nr_nodes(&self) -> usize {
        1
    }

    /// The node of all frames of a range, by its place in [`frames`](Machine::frames); constant. If
    /// a firmware range spans two nodes, report two ranges.
    fn node_of_range(&self, range: usize) -> MemoryNode {
        let _ = range;
        MemoryNode(0)
    }

    /// The node that a CPU is near; constant. A node may have CPUs and no memory, or
    /// memory and no CPUs.
    fn node_of_cpu(&self, cpu: CpuId) -> MemoryNode {
        let _ = cpu;
        MemoryNode(0)
    }

    /// Announces that the frames are about to be written, and returns whether all of them are zero now.
    /// [`Vm::new`](crate::Vm::new) calls it once, after its checks and before it touches a frame. A machine that
    /// serves again later returns `true` at most the first time, and drops the translations that its CPUs hold.
    fn begin(&mut self) -> bool {
        false
    }

    /// The direct map: the address of the frame's bytes. Linear over all frames of all ranges (I1);
    /// there need be no memory between ranges.
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8;

    /// Copies a frame, on a machine that goes on after a load from memory that failed. It copies by loads from which its
    /// handler of machine checks returns, and says whether all of them had bytes. By default the core copies, and no
    /// copy fails.
    ///
    /// `to` is the caller's alone. A program may store to `from` meanwhile: each aligned word is loaded once. May be called in a
    /// section, and while the caller owns entries: it neither waits nor answers other CPUs (M2).
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine. `to` is the caller's alone, and something keeps `from` in use.
    #[inline(always)]
    unsafe fn copy_frame(&self, to: Pfn, from: Pfn) -> FrameCopy {
        let _ = (to, from);
        FrameCopy::ByCore
    }

    /// Number of CPUs, at most [`MAX_CPUS`]; constant.
    fn nr_cpus(&self) -> usize;

    /// The CPU that executes the caller.
    fn this_cpu(&self) -> CpuId;

    /// Makes every CPU of the set execute a full barrier, and waits for that: by an interrupt, or
    /// `membarrier(2)`. The calling CPU is never in the set.
    fn heavy_barrier(&self, cpus: &CpuSet);

    /// Invalidates translations on every CPU of the set, including the calling one if it is a
    /// member, and waits until that is done. A wait in here has to serve requests of other CPUs;
    /// otherwise two removers could wait for each other for ever.
    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush);

    /// Whether, once [`shootdown`](Machine::shootdown) returns, every access through an old translation and
    /// every section that was open when it began is over. True of interrupts that are taken only outside
    /// sections; false of a broadcast invalidation, which interrupts nobody.
    fn shootdown_is_grace(&self) -> bool;

    /// Called in each iteration of a spin, and for each chunk of clearing or copying: serves
    /// pending requests of other CPUs, and may let other threads run. Never called in a section, so
    /// an answer here may count as the end of all sections of this CPU.
    fn relax(&self);

    /// Waits while `word` has the value `expected`; may return spuriously. Called with nothing held.
    fn park(&self, word: &Word, expected: u64);

    /// Wakes all that [`park`](Machine::park) at `word`.
    fn unpark(&self, word: &Word);

    /// Whether the hardware sets the accessed and dirty bits of an entry without a fault. Any
    /// answer is sound; `false` saves a fault for each neighbouring page that a fault maps.
    #[inline(always)]
    fn marks_entries(&self) -> bool {
        true
    }

    /// The highest level of the page tables whose entries this processor takes for leaves: at most what the
    /// [`Format`] has ([`TOP_LEAF`](Format::TOP_LEAF)), and at least 1, which every processor has. 2 permits
    /// mappings of pages of 1 GiB; not every x86-64 processor has such entries (CPUID 0x8000_0001, EDX bit 26).
    fn top_leaf(&self) -> u8 {
        1
    }

    /// Whether the core may use vector registers beyond those that the compiler uses for this
    /// target anyway: `false` if they contain a program's state that is not saved, as in most
    /// kernels (I42).
    fn vector_registers(&self) -> bool {
        false
    }

    /// Decides what to put into an empty entry. Any answer is sound.
    #[inline(always)]
    fn fault_policy(&self, question: &FaultQuestion) -> FaultPlan {
        policy::fault::linux(question)
    }

    /// Notifies the subscribers of a space ([`AddressSpace::subscribe`]). The answer counts for
    /// [`Notice::Young`] only. Never called for a space without subscriptions, never in a section.
    /// The following may be blocked until this returns, so this must not wait for them: (1)
    /// operations on the space, faults in it and pins of its pages, because the caller may hold the
    /// space's writer lock; (2) users of a [`SharedObject`](crate::SharedObject), and operations,
    /// faults and pins in any space that maps one, because removing or moving its pages notifies
    /// those spaces while others wait for the pages, and the end of a space that maps one of a pool privately; (3) operations on a space that shares private
    /// pages with this one since fork(2), and its end, because moving a private page, or taking one
    /// out of use, notifies such spaces one after another, and the end of each waits until all were
    /// told; (4) anybody who may be waiting for a frame, because a fault or a compaction that calls
    /// this holds frames, and because a caller that was refused frames waits for the one that reclaims, which
    /// may wait for a page that is being moved until this returns.
    ///
    /// May be called back here, about this space and any other:
    /// - [`lookup`] and [`is_current`] of a subscription, [`page_state`];
    /// - loads and stores through pins, and the end of a pin;
    /// - reads of counters and sizes (`vmstat`, [`rss_pages`], ...), and calls that read or
    ///   write one setting of a space.
    ///
    /// All other calls panic before they do anything: operations, accesses, new pins, new objects
    /// and spaces and the end of one, subscriptions, steps of daemons. A handle that ends here
    /// panics in its `Drop`, which aborts the program if a panic is in progress. [`handle_fault`]
    /// panics unless its first turn can finish the fault without a frame. The CPU stays the same
    /// until this returns, also in a [`relax`](Machine::relax) of a call that it makes (I2).
    ///
    /// [`AddressSpace::subscribe`]: crate::AddressSpace::subscribe
    /// [`lookup`]: crate::Subscription::lookup
    /// [`is_current`]: crate::Subscription::is_current
    /// [`page_state`]: crate::AddressSpace::page_state
    /// [`rss_pages`]: crate::AddressSpace::rss_pages
    /// [`handle_fault`]: crate::AddressSpace::handle_fault
    #[cold]
    fn notify(&self, space: SpaceTag, notice: &Notice) -> bool {
        let _ = (space, notice);
        false
    }

    /// Reports the progress of a call, and the locks that it takes and releases; must not call back. May be called in a
    /// section. Does nothing by default. Test machines measure with it how long calls run without answering other CPUs, and
    /// check the order of locks ([`LockKind::may_take`]).
    #[inline(always)]
    fn tick(&self, tick: Tick) {
        let _ = tick;
    }

    /// Reports that this CPU is about to enter a section; the word is odd until it leaves. Does
    /// nothing by default; test machines check with it that waits happen outside sections only.
    #[inline(always)]
    fn entered(&self, slot: &Word) {
        let _ = slot;
    }

    /// Number of slots of the swap area, of a page each; constant. With 0 nothing is swapped out.
    fn nr_swap_slots(&self) -> u32 {
        0
    }

    /// Writes the frame's bytes to the slot. Like [`swap_in`](Machine::swap_in) it is called outside
    /// sections, with no lock or entry held, but with frames. It may wait, but not for anybody who
    /// waits for a frame.
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine, and has the slot. Nobody writes the frame meanwhile.
    unsafe fn swap_out(&self, _slot: SwapSlot, _pfn: Pfn) -> Result<(), SwapError> {
        Err(SwapError)
    }

    /// Fills the frame, which the caller owns alone, with the bytes that were last written to the slot. Several CPUs may
    /// read a slot at a time; nobody writes it meanwhile.
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine. The frame is the caller's alone.
    unsafe fn swap_in(&self, _slot: SwapSlot, _pfn: Pfn) -> Result<(), SwapError> {
        Err(SwapError)
    }

    /// Reads pages of a file into frames, which are zero and nobody else's. Called outside sections, with nothing held,
    /// so that it may wait for as long as it likes, also for memory. Only a CPU that wants one of the pages waits for it.
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine, and has made the fill.
    unsafe fn fill(&self, fill: FileFill) -> Filling {
        Filling::Ended(fill, Err(FillError))
    }

    /// Writes pages of a file, which stay mapped and may be stored to meanwhile: of bytes that change meanwhile either version is written, and the page
    /// is written again. Called outside sections, with no lock of a space or an object held. It may wait for the storage, but not for anybody who waits
    /// for a frame: a caller that was refused a frame writes dirty pages, and others that were refused wait for it for a while. So it takes no lock that
    /// is held during a call that allocates. It does not make the file longer: bytes behind the end of the storage are not written. See
    /// [`SharedObject::write_back`](crate::SharedObject::write_back).
    ///
    /// Removals wait for a call that writes a folio which they remove: see [`FileWrite`] for what this may rely on, and must not wait for.
    /// A call that never returns keeps its caller. Others that are refused frames drop clean pages, and write to other [storages](Machine::storage).
    ///
    /// # Safety
    ///
    /// I63: the caller is the [`Vm`](crate::Vm) that has the machine, and has made the write.
    unsafe fn write_back(&self, write: FileWrite) -> Writing {
        Writing::Ended(write, Err(WriteError))
    }

    /// Returns which storage has the file. If the writes of one file are not answered, no caller that was refused a frame
    /// writes to another one of its storage. By default each file has its own. Called outside sections, and returns at once.
    fn storage(&self, file: FileId) -> StorageId {
        StorageId(file.0)
    }

    /// Asks before a page of a clean folio of a file is stored to through a shared mapping or a handle, so that the machine can find room for all pages
    /// of the folio, up to the size: they are written together. Called as [`fill`](Machine::fill) is, perhaps more than once for a store, and for two stores
    /// at once: pages for which it has found room have it until they are written, or have left. Not asked for a folio that is dirty, nor for zeroes of a smaller
    /// size or a hole in one that stays, for which it has room: a hole gives back what [`discard`](ObjectHole::discard) returns. So has a larger size, for a dirty folio at the end.
    fn may_store(&self, _file: FileId, _pages: Range<u64>) -> Result<(), StoreRefused> {
        Ok(())
    }

    /// Makes a hole that a program asks for (`MADV_REMOVE`), in an object that it may store to: changes the storage, and then calls
    /// [`discard`](ObjectHole::discard). Called as [`fill`](Machine::fill) is. By default objects without a file get holes and
    /// files refuse them.
    ///
    /// Between the one and the other, fills of the hole wait, or stay under way. Afterwards the storage takes no bytes of the pages that `discard`
    /// returns from writes that were asked for before: where none stays under way, it changes these once more after `discard`, before fills go on. No lock that
    /// [`write_back`](Machine::write_back) takes is held during `discard`.
    fn punch_hole(&self, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
        if hole.file().is_some() {
            return Err(HoleRefused::Unsupported);
        }
        hole.discard();
        Ok(())
    }

    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;

    /// Any number; it need not be secret.
    fn random(&self) -> u64;
}
