//! Flags of mmap(2).

bitflags::bitflags! {
    /// Flags of mmap(2) (`MAP_*`).
    ///
    /// The low four bits are a number, the [type](MapFlags::map_type): `SHARED_VALIDATE`
    /// has the bits of both `SHARED` and `PRIVATE`. Ask for the type, not whether the
    /// flags contain one of the three. Bits without a name are kept, and ignored by
    /// the calls, as on Linux.
    ///
    /// ```compile_fail,E0308
    /// use softfault::{AddressSpace, Machine, MapFlags, Prot};
    /// fn map<M: Machine>(space: &AddressSpace<'_, M>) {
    ///     let _ = space.mmap(0, 4096, MapFlags::PRIVATE, Prot::READ); // the other way round
    /// }
    /// ```
    ///
    /// Source: mmap(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct MapFlags: u64 {
        /// `MAP_SHARED`: writes are seen by all who map the object.
        const SHARED = 1;
        /// `MAP_PRIVATE`: writes are seen by this program alone.
        const PRIVATE = 2;
        /// `MAP_SHARED_VALIDATE`: shared, and unknown flags should be refused.
        const SHARED_VALIDATE = 3;
        /// `MAP_FIXED`: at exactly that address, in place of what is there.
        const FIXED = 0x10;
        /// `MAP_ANONYMOUS`: zeroes, of no file.
        const ANONYMOUS = 0x20;
        /// `MAP_32BIT`: below 2 GiB.
        const BITS_32 = 0x40;
        /// `MAP_ABOVE4G`: at 4 GiB or above; ignored.
        const ABOVE4G = 0x80;
        /// `MAP_GROWSDOWN`: grows towards lower addresses when touched below, as a stack.
        const GROWSDOWN = 0x100;
        /// `MAP_DENYWRITE`: ignored.
        const DENYWRITE = 0x800;
        /// `MAP_EXECUTABLE`: ignored.
        const EXECUTABLE = 0x1000;
        /// `MAP_LOCKED`: pages are brought in and stay.
        const LOCKED = 0x2000;
        /// `MAP_NORESERVE`: takes part in no commitment.
        const NORESERVE = 0x4000;
        /// `MAP_POPULATE`: pages are brought in at once.
        const POPULATE = 0x8000;
        /// `MAP_NONBLOCK`: makes `POPULATE` mean nothing.
        const NONBLOCK = 0x1_0000;
        /// `MAP_STACK`: for reports, and only with `GROWSDOWN`.
        const STACK = 0x2_0000;
        /// `MAP_HUGETLB`: from the pool of huge pages, which is empty here.
        const HUGETLB = 0x4_0000;
        /// `MAP_SYNC`: ignored.
        const SYNC = 0x8_0000;
        /// `MAP_FIXED_NOREPLACE`: at exactly that address, if nothing is there.
        const FIXED_NOREPLACE = 0x10_0000;
        /// `MAP_UNINITIALIZED`: ignored; pages are zero.
        const UNINITIALIZED = 0x400_0000;
        /// `MAP_HUGE_2MB`: a size for `HUGETLB`.
        const HUGE_2MB = 21 << 26;
        /// `MAP_HUGE_1GB`: a size for `HUGETLB`.
        const HUGE_1GB = 30 << 26;
        const _ = !0;
    }
}

/// The type of a mapping: the low four bits of [`MapFlags`] as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum MapType {
    /// `MAP_SHARED`.
    Shared,
    /// `MAP_PRIVATE`.
    Private,
    /// `MAP_SHARED_VALIDATE`.
    SharedValidate,
    /// None that is known here; `MAP_DROPPABLE` too.
    Unknown,
}

impl MapFlags {
    /// The bits of the type (`MAP_TYPE`).
    pub const TYPE: MapFlags = MapFlags::from_bits_retain(0xf);

    /// The flags with Linux's number `flags`; keeps bits without a name.
    pub const fn from_linux(flags: u64) -> MapFlags {
        MapFlags::from_bits_retain(flags)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits()
    }
    /// The type.
    pub const fn map_type(self) -> MapType {
        match self.bits() & MapFlags::TYPE.bits() {
            1 => MapType::Shared,
            2 => MapType::Private,
            3 => MapType::SharedValidate,
            _ => MapType::Unknown,
        }
    }
    /// Whether the address is no hint but where the mapping goes.
    pub(crate) const fn is_fixed(self) -> bool {
        self.intersects(MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE))
    }
}
