//! Module `account`: what happened, counted where it happened.
//!
//! Events are per CPU, added with a plain load and store, and summed when read. Resident counts are
//! per CPU and address space. Both are exact at rest: when no operation is in progress.
//!
//! This module has names and words. `base.rs` counts, `frame/stat.rs` sums.

pub(crate) mod rss;
pub(crate) mod sizes;

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One enum variant = one counter = one word in the output. Names are
        /// those of Linux's `/proc/vmstat` where it has one.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Event { $($(#[$doc])* $variant,)* }

        impl Event {
            /// All of them.
            pub const ALL: &'static [Event] = &[$(Event::$variant),*];
            /// The word in the output.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => $name),* }
            }
        }
    };
}

events! {
    /// Faults handled, successfully or not.
    Fault = "pgfault",
    /// Frames installed by faults on anonymous memory.
    AnonInstall = "pganon_install",
    /// Zero frame mapped by a read.
    ZeroMap = "zero_page_map",
    /// Private copies made of shared frames.
    CowBreak = "cow_break",
    /// Write faults that found that only their entry maps the frame, and reused it.
    CowReuse = "cow_reuse",
    /// Pages of shared objects mapped.
    SharedMap = "shared_map",
    /// A private page of a pool was mapped.
    HugetlbPrivate = "hugetlb_private",
    /// A child got no page, because the pool had none for a copy of a pinned one, or the parent had lost it.
    ForkNoHugePage = "fork_no_huge_page",
    /// Pages of shared objects mapped by a fault on a neighbour.
    MapAround = "map_around",
    /// Page tables installed.
    TableInstall = "pgtable_install",
    /// Page tables freed.
    TableFree = "pgtable_free",
    /// Compare-and-swaps lost to another fault; the frame was kept.
    Raced = "fault_raced",
    /// Faults that found an entry owned or locked by an operation and waited.
    Waited = "fault_waited",
    /// Faults that found the mapping good already.
    Spurious = "fault_spurious",
    /// Plans that the mechanism refused.
    PlanRejected = "fault_plan_rejected",
    /// Faults outside every mapping.
    RefusedNotMapped = "fault_refused_not_mapped",
    /// Faults refused: the VMA does not grant the right.
    RefusedNoRights = "fault_refused_no_rights",
    /// Faults on a guard.
    RefusedGuard = "fault_refused_guard",
    /// Faults beyond the end of an object.
    RefusedBeyondObject = "fault_refused_beyond_object",
    /// Faults on a page whose memory failed.
    RefusedPoisoned = "fault_refused_poisoned",
    /// Faults on a page that could not be read from the swap area.
    RefusedNotRead = "fault_refused_not_read",
    /// Faults on a page that the embedder installs, and that is missing.
    RefusedMissing = "fault_refused_missing",
    /// Stores to pages of files for which the machine had no room.
    RefusedNoRoom = "fault_refused_no_room",
    /// Faults refused: out of frames.
    RefusedOutOfFrames = "fault_refused_out_of_frames",
    /// Faults refused: the pool of huge pages is empty.
    RefusedNoHugePage = "fault_refused_no_huge_page",
    /// Faults refused: the subpool has its most pages.
    RefusedSubpoolFull = "fault_refused_subpool_full",
    /// Surplus pages that came to a pool of huge pages.
    HtlbBuddyAllocSuccess = "htlb_buddy_alloc_success",
    /// Surplus pages for which there was no memory.
    HtlbBuddyAllocFail = "htlb_buddy_alloc_fail",
    /// Shootdowns sent, local ones included.
    Shootdown = "tlb_shootdown",
    /// Grace periods waited for.
    Grace = "grace_period",
    /// Pages unmapped.
    Unmapped = "pgunmap",
    /// Address spaces forked.
    Fork = "fork",
    /// Huge pages (2 MiB) that faults installed.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that could have used a huge page and found none.
    ThpFaultFallback = "thp_fault_fallback",
    /// Huge pages taken for a collapse.
    ThpCollapseAlloc = "thp_collapse_alloc",
    /// Collapses for which there was no huge page.
    ThpCollapseAllocFailed = "thp_collapse_alloc_failed",
    /// Huge folios split into frames.
    ThpSplitPage = "thp_split_page",
    /// Huge mappings split into entries.
    ThpSplitPmd = "thp_split_pmd",
    /// Huge folios that wait to be split. None does here: the last mapping's end
    /// splits.
    ThpDeferredSplitPage = "thp_deferred_split_page",
    /// Huge folios split for being mostly zeroes.
    ThpUnderusedSplitPage = "thp_underused_split_page",
    /// Huge zero pages made.
    ThpZeroPageAlloc = "thp_zero_page_alloc",
    /// Huge zero pages that could not be made.
    ThpZeroPageAllocFailed = "thp_zero_page_alloc_failed",
    /// Collapses refused for `max_ptes_none`.
    ThpScanExceedNonePte = "thp_scan_exceed_none_pte",
    /// Collapses refused for `max_ptes_swap`.
    ThpScanExceedSwapPte = "thp_scan_exceed_swap_pte",
    /// Collapses refused for `max_ptes_shared`.
    ThpScanExceedSharePte = "thp_scan_exceed_share_pte",
    /// Frames taken out of use because their memory failed, or is about to.
    FramesPoisoned = "frames_poisoned",
    /// Faults that read a page from the swap area.
    Pgmajfault = "pgmajfault",
    /// Pages read from files.
    FileRead = "file_read",
    /// Pages that the embedder installed in explicit objects.
    ExplicitInstalled = "explicit_installed",
    /// Pages that the embedder took out of explicit objects.
    ExplicitEvicted = "explicit_evicted",
    /// Clean pages of files that were dropped for want of frames.
    FileDropped = "file_dropped",
    /// Clean pages of files that were looked at for want of frames, and stayed: they were used.
    FileRotated = "file_rotated",
    /// Pages of holes that programs have made in objects.
    ObjectHole = "object_hole",
    /// Reads of folios from files that failed.
    FileReadFailed = "file_read_failed",
    /// Stores that made a mapped page of a file dirty.
    FileFirstStore = "file_first_store",
    /// Pages written to files.
    FileWritten = "file_written",
    /// Writes of folios to files that failed.
    FileWriteFailed = "file_write_failed",
    /// Pages read from the swap area, those included that were not needed any more.
    Pswpin = "pswpin",
    /// Pages written to the swap area.
    Pswpout = "pswpout",
    /// Faults that found a swapped page in memory still.
    SwapCopied = "swap_copied",
    /// Not swapped out: there is no swap area.
    SwapRefusedNoArea = "swap_refused_no_area",
    /// Not swapped out: the swap area is full.
    SwapRefusedFull = "swap_refused_full",
    /// Not swapped out: a page of a file.
    SwapRefusedOfFile = "swap_refused_of_file",
    /// Not swapped out: locked by a mapping.
    SwapRefusedLocked = "swap_refused_locked",
    /// Swapped out, and kept in memory: the machine could not write it.
    SwapRefusedNotWritten = "swap_refused_not_written",
    /// Direct compactions: begun for a fault or a call that waits.
    CompactStall = "compact_stall",
    /// Of these, with a block made.
    CompactSuccess = "compact_success",
    /// Of these, without.
    CompactFail = "compact_fail",
    /// Frames looked at to be moved.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Frames set aside to be moved, or to be moved to.
    CompactIsolated = "compact_isolated",
    /// Pages moved to another frame.
    PgmigrateSuccess = "pgmigrate_success",
    /// Pages that could not be moved.
    PgmigrateFail = "pgmigrate_fail",
    /// Huge pages split in order to be moved.
    ThpMigrationSplit = "thp_migration_split",
    /// Huge pages made of small ones.
    Collapsed = "pages_collapsed",
    /// Collapses refused: knobs, advice or process allow none there.
    CollapseNotAllowed = "collapse_not_allowed",
    /// Collapses refused: not in one private mapping.
    CollapseOutsideVma = "collapse_outside_vma",
    /// Collapses refused: huge already.
    CollapseAlreadyHuge = "collapse_already_huge",
    /// Collapses refused: nothing was ever touched.
    CollapseEmpty = "collapse_empty",
    /// Collapses refused: a page is pinned.
    CollapsePinned = "collapse_pinned",
    /// Collapses refused: a guard.
    CollapseGuard = "collapse_guard",
    /// Collapses refused: the memory of a page failed.
    CollapsePoisoned = "collapse_poisoned",
    /// Collapses refused: a page was swapped out.
    CollapseSwapped = "collapse_swapped",
    /// Collapses refused: an operation owned an entry.
    CollapseBusy = "collapse_busy",
    /// Collapses refused: an operation changed the mapping meanwhile.
    CollapseChanged = "collapse_changed",
    /// Collapses refused: nothing used lately.
    CollapseNotReferenced = "collapse_not_referenced",
    /// Collapses refused: no frame for a table.
    CollapseNoFrame = "collapse_no_frame",
    /// Collapses refused: the memory of a page failed while it was copied.
    CollapseSourceFailed = "collapse_source_failed",
    /// Changes of entries that subscribers were told of.
    NotifyStart = "notify_start",
    /// Lookups refused: the subscription was to another space.
    LookupOtherSpace = "lookup_refused_other_space",
    /// Lookups refused because of a change in progress.
    LookupUnderWay = "lookup_refused_under_way",
    /// Lookups refused because no page was there.
    LookupAbsent = "lookup_refused_absent",
    /// Pinned pages that a fork copied.
    ForkPinned = "fork_pinned_copy",
    /// Pages that fork copied since they had as many mappings as can be counted.
    ForkMapsFull = "fork_maps_full_copy",
    /// Pins raised.
    PinAcquired = "nr_foll_pin_acquired",
    /// Pins released.
    PinReleased = "nr_foll_pin_released",
    /// Pins raised at the first look, without a fault.
    PinQuick = "pin_quick",
    /// Pins that needed a fault, or a second look.
    PinSlow = "pin_slow",
    /// Pins meant to last.
    PinLongterm = "pin_longterm",
    /// Of these, the ones whose page moved first to a block of such pages.
    PinSetApart = "pin_set_apart",
    /// And those whose page could not be moved: its block has a pin from then on.
    PinInPlace = "pin_in_place",
    /// Looks that found the entry changed; the pin was undone.
    PinRaced = "pin_raced",
    /// Pins refused because the count was at its limit.
    PinRefusedFull = "pin_refused_full",
    /// Not moved: pinned.
    MigrateRefusedPinned = "migrate_refused_pinned",
    /// Not moved: being written to its file.
    MigrateRefusedUnderWrite = "migrate_refused_under_write",
    /// Not moved: a page table.
    MigrateRefusedTable = "migrate_refused_table",
    /// Not moved: the subsystem's own.
    MigrateRefusedMeta = "migrate_refused_meta",
    /// Not moved: a hole, the zero frame, taken out of use.
    MigrateRefusedReserved = "migrate_refused_reserved",
    /// Not moved: part of a huge page.
    MigrateRefusedHuge = "migrate_refused_huge",
    /// Not moved: part of a folio of an object that cannot be split.
    MigrateRefusedCannotSplit = "migrate_refused_cannot_split",
    /// Not moved: part of a page of a pool of huge pages.
    MigrateRefusedHugetlb = "migrate_refused_hugetlb",
    /// Not moved: free, cached or held.
    MigrateRefusedNotInUse = "migrate_refused_not_in_use",
    /// Not moved: more mappings than are handled at once.
    MigrateRefusedTooManyMaps = "migrate_refused_too_many_maps",
    /// Not moved: the spaces that may map it have too many VMAs.
    MigrateRefusedWalkTooLong = "migrate_refused_walk_too_long",
    /// Not moved: a space that maps it has subscribers.
    MigrateRefusedSubscribed = "migrate_refused_subscribed",
    /// Not moved: a mapping came or went, or another operation owned it.
    MigrateRefusedRaced = "migrate_refused_raced",
    /// Folios of objects of which a part moved, as there were no frames for the whole.
    FolioMovedInPart = "folio_moved_in_part",
    /// Folios of objects split where they are, as a page of them failed or is swapped out.
    FoliosSplit = "folios_split",
    /// Not moved: no frame to move to.
    MigrateRefusedNoTarget = "migrate_refused_no_target",
    /// Not moved: the memory of the page failed while it was copied.
    MigrateRefusedSourceFailed = "migrate_refused_source_failed",
    /// Copies for a fault or a child that ended since the memory of the page failed.
    CopyFailed = "copy_failed",
    /// Frames that had descriptors of a folio's tails and became free memory.
    TailDescsFreed = "tail_descs_freed",
    /// Frames that such descriptors took again.
    TailDescsRestored = "tail_descs_restored",
    /// Tail descriptors stay as they are: no folio of 2 MiB is there.
    TailDescsNoFolio = "tail_descs_no_folio",
    /// Tail descriptors stay: they are what was asked for.
    TailDescsUnchanged = "tail_descs_unchanged",
    /// Tail descriptors stay: their frames are of no use.
    TailDescsInMetadata = "tail_descs_in_metadata",
    /// Descriptors of tails kept: of a page of a pool of huge pages.
    TailDescsInPool = "tail_descs_in_pool",
    /// Tail descriptors do not come back: no frames.
    TailDescsNoFrames = "tail_descs_no_frames",
    /// Ranges of memory added.
    MemoryAdded = "memory_added",
    /// Not added: not whole sections.
    AddMemoryNotSections = "add_memory_not_sections",
    /// Not added: frame 0, or too high.
    AddMemoryOutOfRange = "add_memory_out_of_range",
    /// Not added: some of it is there.
    AddMemoryAlreadyThere = "add_memory_already_there",
    /// Not added: the machine has none there.
    AddMemoryNoSuchMemory = "add_memory_no_such_memory",
    /// Not added: no frames for its descriptors.
    AddMemoryNoMetadata = "add_memory_no_metadata",
    /// Ranges of memory removed.
    MemoryRemoved = "memory_removed",
    /// Not removed: not whole sections.
    RemoveMemoryNotSections = "remove_memory_not_sections",
    /// Not removed: some of it is not there.
    RemoveMemoryNotThere = "remove_memory_not_there",
    /// Not removed: a frame is in use.
    RemoveMemoryInUse = "remove_memory_in_use",
    /// Not removed: an allocation is about to be refused.
    RemoveMemoryLastResort = "remove_memory_last_resort",
    /// Faults that found no huge page and left it at that, or to the daemon.
    CompactNotAsked = "compact_not_asked",
    /// Compactions deferred, because the last ones failed.
    CompactDeferred = "compact_deferred",
    /// Compactions that found no block worth emptying.
    CompactNoBlock = "compact_no_block",
    /// Compactions that met a frame that stays.
    CompactInTheWay = "compact_in_the_way",
    /// Compactions that ran out of frames to look at or to move, or of time.
    CompactOverBudget = "compact_over_budget",
    /// Compactions that ended, or did not begin, because a last-resort allocation waited for
    /// frames.
    CompactLastResort = "compact_last_resort",
    // A new name comes last: words that are counted together, as those of faults or of munmap(2), stay in the lines that they have.
    /// Entries that lost their page of a pool to the process with the reservation.
    HugePageTaken = "huge_page_taken",
    /// Faults refused: the process with the reservation has taken the page of the pool.
    RefusedTaken = "fault_refused_taken",
}

/// Words reserved for events in each CPU's data.
pub(crate) const NR_EVENTS: usize = 152;
const _: () = assert!(Event::ALL.len() <= NR_EVENTS);

/// Counters and free frames at one moment; as `/proc/vmstat`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VmStat {
    /// Free frames, those in per-CPU frame caches included.
    pub nr_free_pages: u64,
    /// Frames that were free after [`Vm::new`](crate::Vm::new).
    pub nr_total_pages: u64,
    pub(crate) events: [u64; NR_EVENTS],
}

impl VmStat {
    /// How often it happened.
    pub fn get(&self, event: Event) -> u64 {
        self.events[event as usize]
    }
    /// All counters, named.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        [("nr_free_pages", self.nr_free_pages), ("nr_total_pages", self.nr_total_pages)]
            .into_iter()
            .chain(Event::ALL.iter().map(|e| (e.name(), self.get(*e))))
    }
}
