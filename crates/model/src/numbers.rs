//! Constants in the arguments of steps. They come from the C library's headers, not from the
//! library under test, so that tests find a wrong constant there.

macro_rules! numbers {
    ($($name:ident)*) => {
        $(
            #[allow(missing_docs)] // as the manual pages have them
            pub const $name: u64 = libc::$name as u64;
        )*
    };
}

// mmap(2), mprotect(2)
numbers! {
    PROT_GROWSDOWN PROT_GROWSUP
    MAP_TYPE MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_LOCKED MAP_NORESERVE MAP_POPULATE
    MAP_NONBLOCK MAP_FIXED_NOREPLACE MAP_HUGETLB
}
/// Not in the headers of every C library.
pub const PROT_SEM: u64 = 8;

// mremap(2)
numbers! { MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP }

// madvise(2)
numbers! {
    MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK MADV_DOFORK MADV_HUGEPAGE MADV_NOHUGEPAGE
    MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ
    MADV_POPULATE_WRITE MADV_DONTNEED_LOCKED MADV_COLLAPSE
}
/// Linux 6.13; not in the headers of every C library.
pub const MADV_GUARD_INSTALL: u64 = 102;
/// The same.
pub const MADV_GUARD_REMOVE: u64 = 103;
